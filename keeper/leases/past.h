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
 * A look, of which one goes on at a time:
 *
 *   a worker   reads /proc/locks
 *   the loop   compares with the leases, a few milliseconds at a time. Most locks are covered
 *   a survey   finds a descriptor that shows a lock which was not covered in two looks one after the other, and under which
 *              path our mount namespace has that file. What it found is kept while the lock is listed, and looked for again
 *              after some minutes: a file may be renamed
 *   the loop   compares with the rules, and with the leases of that name
 *   suspects   are confirmed
 *
 * After a look the keeper rests for SHARE times what it took, and for past_look_ms at the least. Looks go on without a survey for
 * SURVEY_SHARE times what the last one took.
 *
 * Why no alarm is false. A lock is reported after PAST_LOOKS looks one after the other in which the lock was listed and not
 * covered, and in the last PAST_SURE of them
 *  - a process that may be looked into has it on a descriptor, and the path of that descriptor
 *    leads to a protected file in the keeper's own mount namespace (a container's own file of that name is another one), by
 *    itself or by way of another mount of the same file system; or its inode is that of a file with several links that a
 *    caller has named by a protected path, which still leads to it;
 *  - no lease of this host was there that covers it, at any moment from before the list was read until the judgement:
 *    what ends meanwhile is noted (touched.h);
 *  - no question about the lock was under way, and no question of that process of which the keeper does not know so
 *    far what it is about; and the process was not stopped: a stopped one may be between its kernel lock and its
 *    question (shim/acquire.c, places 2 and 4);
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
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>
#include <uthash.h>
#include <uv.h>

#include "keeper/kernel/command.h"
#include "keeper/kernel/identity.h"
#include "keeper/kernel/mountmap.h"
#include "keeper/leases/survey.h"
#include "procfs/procfs.h"
#include "store/store.h"
#include "wire/msg.h"

#define PAST_MAX    256 /* locks that are watched or reported; more are counted */
#define PAST_LOOKS  4
#define PAST_SURE   3
#define PAST_LINKS  1024  /* protected files with several links that are remembered */
#define PAST_LISTED 65536 /* locks in one look */

struct keeper;

/* The locks of one process, or of all that have its descriptor, on one file and in one space. */
struct past_key {
	uint64_t dev, ino; /* the kernel's number (procfs.h) */
	int32_t locker;    /* the process that took them; -1: OFD locks, of whatever process */
	int32_t space;
};

static inline struct past_key past_key_of(const struct procfs_lock *lock)
{
	return (struct past_key){.dev = lock->dev, .ino = lock->ino, .locker = lock->locker, .space = (int)lock->space};
}

/* What is known of such locks while they are listed. */
struct past_known {
	struct past_key key;
	struct suspect *suspect;
	unsigned listed;   /* the last look that had one of them listed */
	unsigned naked;    /* ... and not covered by its number */
	unsigned looks;    /* in how many one after the other that was so */
	int64_t sought_ns; /* when a survey looked for it; 0: not yet */
	bool before;       /* listed in the first look: nobody knows since when */
	bool unused;       /* a survey found no protected path of it */
	bool nowhere;      /* ... since no descriptor that may be looked at shows it */
	bool crowded;      /* there was no room to watch it */
	UT_hash_handle hh;
};

/* Locks of a protected file that nothing covers. */
struct suspect {
	struct keeper *keeper;
	struct past_known *known;
	enum wire_mode mode; /* of one of the locks that are not covered, with its range */
	int64_t from, to;
	char *name, *path;
	char *linked; /* the protected path that must lead to the inode, since `path` is not protected; else NULL */
	bool plain;   /* mountmap_paths() */
	pid_t pid;    /* a process that has it */
	int fd;
	char command[COMMAND_BYTES];
	time_t since;  /* the first look that found it */
	unsigned look; /* the last one that did */
	unsigned sure; /* in how many one after the other that was confirmed */
	bool reported;
	struct suspect *prev, *next;
};

/* The kernel's number of a protected file with several links, and its protected path. */
struct past_link {
	struct identity id;
	char *path;
	int64_t since_ns;
	UT_hash_handle hh;
};

/* Part of struct keeper. */
struct past {
	struct past_link *links;
	struct past_known *known;
	struct suspect *suspects;
	unsigned suspect_count;
	uv_work_t work;         /* reads the list, into the next two */
	UT_array locks;         /* struct procfs_lock */
	size_t lines;           /* ... in the last reading */
	size_t next;            /* of the locks, to be compared */
	struct survey survey;   /* looks for the next */
	UT_array wanted;        /* struct past_wanted */
	struct mountmap mounts; /* the survey's */
	int error;
	int64_t ran_ns;        /* processor time of the look that goes on */
	int64_t not_before_ns; /* the next survey */
	size_t left_out;       /* ... locks for which there is no room */
	/* The last look that ended: how many locks were listed, of how many no descriptor was found, for how many there was no
	 * room. */
	size_t listed, nowhere, over;
	bool on;      /* past_start() was called */
	bool looking; /* a look has begun, and the rest after it has not */
	bool began;   /* a look has seen the whole list: what is new now is new */
	bool rules_changed;
	unsigned look;     /* the number of the look */
	unsigned looks;    /* that came to an end */
	uint64_t reported; /* locks, since the start; never goes back */
	int64_t took_ns;   /* processor time of the last look */
	uv_timer_t timer;  /* the next look; the next part of the comparison */
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

/* --- past_suspects.c: locks that were found uncovered are watched, confirmed, reported --- */

/* Does this descriptor show such a lock? *mount_id: of the descriptor; may be NULL. For a worker: fdinfo is as long as its
 * process wants. */
bool suspects_are_shown(pid_t pid, int fd, const struct past_key *key, int *mount_id);

/* Watches this lock, or goes on with it: found has the descriptor that shows it, its known, and the command. No memory, or no room: it
 * is left out. */
void suspects_watch(const struct suspect *found, const struct procfs_lock *lock, const char *name, const char *path,
		    const char *linked);
/* Is this the name and the path of the suspect? NULL: neither is. */
bool suspects_is(const struct suspect *s, const char *name, const char *path);

/* The look that is judged has this lock, of those of the suspect, listed, and it is not covered by its number. */
void suspects_see(struct suspect *s, const struct procfs_lock *lock);

/* The judgement is over: forgets the suspects that this look has not seen. */
void suspects_forget(struct keeper *k);
/* Begins to confirm others; then, or at once if there are none, calls done(). */
void suspects_confirm(struct keeper *k, void (*done)(struct keeper *k));

/* The same, and says that it has gone if it was reported. */
void suspects_gone(struct suspect *s);
void suspects_remove(struct suspect *s);

/* --- past_cover.c: what covers a lock that the kernel lists --- */

enum past_cover {
	PAST_COVERED, /* by leases of this host */
	PAST_UNSURE,  /* a question is under way, or something has ended meanwhile */
	PAST_NAKED,
};

/* Do the leases of the file that the kernel's number leads to cover the lock? The quick way, since most locks are
 * covered; false: ask past_cover_of(). */
bool past_is_covered(struct keeper *k, const struct procfs_lock *lock);
/* name: the lock name of the file. plain: the kernel's number is the keeper's number of it, too. */
enum past_cover past_cover_of(struct keeper *k, const struct procfs_lock *lock, const char *name, bool plain);

/* Everything of the lock before *at is covered. If this range, at least in the lock's mode, covers more: true, and *at is behind
 * that. Pure. */
bool past_extend(int64_t *at, const struct store_range *range, const struct procfs_lock *lock);

/*
 * Is one of these entries of the store from another keeper on the machine of the host `own`, and of this file and a part of
 * this range? A file that is not plain has other numbers in the store than in the kernel's list: any file counts then. Pure.
 */
bool past_entries_cover(const struct store_entry *entries, size_t count, const char *own,
			const struct procfs_lock *lock, bool plain);

#endif
