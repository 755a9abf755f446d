/*
 * Which processes were granted locks of files whose rule has warn_after_ms or kill_after_ms, and when. toolong.h judges by
 * this how old a lock is. Loop only.
 *
 * For each such file and space there is one holding for each process that was granted a lock, with the time of its last
 * grant. While a file has holdings, no lease of it is shown in the page (leasepage.h), so each lock that a process takes is
 * a grant of this keeper:
 *
 *   a lock that process P took is at least as old as the last pin that P was given for this file and space.
 *
 * Because a lock call succeeds only if the kernel lock was there before the end of a pin of that call (shim/acquire.c). So a
 * process that locks briefly and often always has a young holding, whatever it holds when somebody looks. The lock line says
 * which process took a lock (the locker). If it does not (OFD locks; a locker that has ended, in a pid namespace that is not
 * the first), the last grant of all processes counts: the holding of pid 0.
 *
 * What is not known counts as young, or not at all: every grant begins the time anew, also one that repeats or converts a
 * lock (the keeper cannot tell whether the lock was lost in between: processes that share a description may take turns), and
 * also one after which the kernel refuses the lock; a keeper that takes over knows no holdings; where there is no room for a
 * holding, or where looks have not found its lock, there is none.
 *
 * Ages are in the running clock: it never runs faster than CLOCK_BOOTTIME, and stands still while the machine sleeps, the
 * keeper is stopped, or holders are frozen (holdings_tick()).
 */
#ifndef DFLOCK_KEEPER_HOLDINGS_H
#define DFLOCK_KEEPER_HOLDINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>
#include <uthash.h>

struct keeper;
struct lock;

#define HOLDINGS_MAX 1024 /* of one lock; no further process gets one */

/* What has been done about a lock that is held too long. */
enum holding_state {
	HOLDING_QUIET,
	HOLDING_WARNED,
	HOLDING_ENDING, /* its holders are being ended */
	HOLDING_STUCK,  /* they could not be ended: nothing more is tried */
};

struct holding {
	pid_t pid;          /* of the process that was granted the lock; 0: of any */
	uid_t uid;          /* its user; pid 0: LEASE_OF_NOBODY if there were several */
	int64_t at_ns;      /* running clock: the end of its last pin */
	int64_t granted_ns; /* CLOCK_BOOTTIME: the last grant */
	time_t since;       /* ditto, Unix time */
	enum holding_state state;
	bool said;         /* warned: and the log says so */
	unsigned missed;   /* how many looks have not found its lock */
	unsigned tries;    /* how often its holders were to be ended */
	pid_t holder;      /* warned: a process that has the lock, ... */
	char *command;     /* ... and its command; NULL: not known */
	UT_hash_handle hh; /* lock->holdings, by pid */
};

/* Part of struct keeper. */
struct holdings {
	struct lock *locks; /* those that have any */
	int64_t ran_ns;     /* the running clock at the last tick, ... */
	int64_t last_ns;    /* ... which was at this CLOCK_BOOTTIME */
	bool paused;
};

/* A caller has a pin until until_ns, for a lock of a file whose rule has a limit. Without memory the process has no holding. */
void holdings_granted(struct lock *lock, pid_t pid, uid_t uid, int64_t until_ns);
/* Of the process that took a lock, as a lock line has it (procfs_locks.h). NULL: nothing is known. */
struct holding *holdings_find(struct lock *lock, pid_t locker);
/* Nothing has been done about it. */
void holding_begin(struct holding *holding);
void holdings_drop(struct lock *lock, struct holding *holding);
/* The rule has no limit any more, or the file is freed. */
void holdings_drop_all(struct lock *lock);

/* The running clock, and how long the lock has certainly been held. */
int64_t holdings_now_ns(const struct keeper *k);
int64_t holding_age_ms(const struct keeper *k, const struct holding *holding);
/* To be called several times a second. Time between two ticks that is longer than HOLDINGS_TICK_MAX_MS does not count; nor does
 * any from a tick with `paused` to the next one. */
#define HOLDINGS_TICK_MAX_MS 1000
void holdings_tick(struct keeper *k, bool paused);

#endif
