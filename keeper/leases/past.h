/*
 * Locks that were taken past dflock: the kernel lists a lock on a protected file, and no lease of this host, no question
 * and no lease of another keeper on this machine covers it. Its program is not reached by the preload (Go, static
 * programs, a cleaned environment), so other hosts may hold "the" lock at the same time. Such locks are reported: log,
 * status, doctor. Nothing is done to the program.
 *
 *   past.c          when to look, and the way of one look
 *   past_cover.c    what covers a lock
 *   past_suspects.c what is found uncovered again and again, is confirmed and reported
 *
 * A look: a worker reads /proc/locks and finds out which files those are (openers.h); the loop compares with rules and
 * leases, a few milliseconds at a time. After a look the keeper rests for SHARE times what it took, and for past_look_ms at
 * the least.
 *
 * Why no alarm is false. A lock is reported after PAST_LOOKS looks one after the other in which
 *  - the lock was listed, a process that may be looked into has it on a descriptor, and the path of that descriptor
 *    leads to a protected file in the keeper's own mount namespace (a container's own file of that name is another one), by
 *    itself or by way of another mount of the same file system; or its inode is that of a file with several links that a
 *    caller has named by a protected path, which still leads to it;
 *  - no lease of this host was there that covers it, at any moment from before the list was read until the judgement:
 *    what ends meanwhile is noted (touched.h);
 *  - no question about the lock was under way, and no question of that process of which the keeper does not know so
 *    far what it is about; and the process was not stopped: a stopped one may be between its kernel lock and its
 *    question (shim/acquire.c, places 2 and 4);
 * and in the last PAST_SURE of them also
 *  - the store has no lease and no waiter of another keeper of this machine that touches this range, while the descriptor
 *    showed the lock both right before the store was asked and right after it had answered. A keeper's host id says on
 *    which machine it is (hostid.h). Without the store's answer nothing is reported.
 * A lock that was there before the keeper, or before the rule, is shown apart and not reported: it may be from a time
 * without dflock. Locks of keepers are left out (probes).
 *
 * What it misses: a lock that is held for less than some looks, or while a lease of this host happens to be there; a
 * lock that no descriptor shows, or that only the descriptors of processes show that the keeper may not look into
 * (status counts them); locks on files that are deleted, or open by a link that no rule names while no call has come by
 * one that a rule names (`dflock doctor` finds protected files with several links).
 *
 * A keeper of another store on the same machine covers nothing here: its locks do not exclude the hosts of this one.
 *
 * Loop only.
 */
#ifndef DFLOCK_KEEPER_PAST_H
#define DFLOCK_KEEPER_PAST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>
#include <uv.h>

#include "keeper/kernel/command.h"
#include "keeper/kernel/identity.h"
#include "keeper/kernel/openers.h"
#include "wire/msg.h"

#define PAST_MAX   256 /* locks that are watched or reported; more are counted */
#define PAST_LOOKS 4
#define PAST_SURE  3
#define PAST_LINKS 1024 /* protected files with several links that are remembered */

struct keeper;

/* The locks of one process, or of all that have its descriptor, on one file and in one space. */
struct suspect {
	struct keeper *keeper;
	struct opener_key key;
	enum wire_space space;
	enum wire_mode mode; /* of one of the locks that are not covered, with its range */
	int64_t from, to;
	char *name, *path;
	char *linked; /* the protected path that must lead to the inode, since `path` is not protected; else NULL */
	bool plain;   /* opener.h */
	pid_t pid;    /* a process that has it */
	int fd;
	char command[COMMAND_BYTES];
	time_t since;   /* the first look that found it */
	unsigned look;  /* the last one that did */
	unsigned looks; /* in how many one after the other it was not covered */
	unsigned sure;  /* in how many of them the store has confirmed that */
	bool before;    /* it was there before the keeper or the rule */
	bool reported;
	struct suspect *prev, *next;
};

/* The kernel's number of a protected file with several links, and its protected path. */
struct past_link {
	struct identity id;
	char *path;
	UT_hash_handle hh;
};

/* Part of struct keeper. */
struct past {
	struct past_link *links;
	struct openers openers; /* the worker's while `looking` */
	struct suspect *suspects;
	unsigned suspect_count;
	/* The last look that was judged: how many locks were listed, of how many openers no descriptor was found, for how
	 * many locks there was no room. */
	size_t listed, nowhere, over;
	bool on;      /* past_start() was called */
	bool looking; /* a worker does */
	bool judging; /* its result is being judged */
	bool leave;   /* atomic: the worker is to end */
	bool rules_changed;
	bool confirming;   /* some suspects are looked at once more */
	unsigned looks;    /* that were judged */
	uint64_t reported; /* locks, since the start; never goes back */
	int64_t took_ns;   /* processor time of the last look */
	uv_timer_t timer;  /* the next look; the next part of the judgement */
	/* Is a question of this process under way? */
	bool (*is_asking)(const struct keeper *k, pid_t pid);
};

void past_start(struct keeper *k, bool (*is_asking)(const struct keeper *k, pid_t pid));
/* Nothing begins any more; past_free() when the store and all workers have ended. */
void past_stop(struct keeper *k);
void past_free(struct keeper *k);

/* A caller has named a local file of several links by a protected path. */
void past_linked(struct keeper *k, const struct identity *id, const char *path);

/* Other rules, or another past_look_ms. */
void past_rules_changed(struct keeper *k);

#endif
