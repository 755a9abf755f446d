/*
 * Which processes were granted locks of files whose rule has warn_after_ms or kill_after_ms, and when. toolong.h judges by
 * this how old a lock is. Loop only.
 *
 * For each such file and space there is one age for each process that was granted a lock: the time of its last
 * grant. While a file has ages, no lease of it is shown in the page (pagefile.h), so each lock that a process takes was
 * granted by this keeper:
 *
 *   a lock that process P took is at least as old as the last pin that P was given for this file and space.
 *
 * Because a lock call succeeds only if the kernel lock was there before the end of a pin of that call (shim/acquire.c). So a
 * process that locks briefly and often always has a young age, whatever it holds when somebody looks. The lock line says
 * which process took a lock (the locker). If it does not (OFD locks; a locker that has ended, in a pid namespace that is not
 * the first), the last grant of all processes counts: the age of pid 0.
 *
 * What is not known counts as young, or not at all: every grant begins the time anew, also one that repeats or converts a
 * lock (the keeper cannot tell whether the lock was lost in between: processes that share a description may take turns), and
 * also one after which the kernel refuses the lock; where there is no room for an age, or where looks have not found its lock,
 * there is none.
 *
 * Ages are in the running clock: it never runs faster than CLOCK_BOOTTIME, and stands still while the machine sleeps, the
 * keeper is stopped, no keeper runs, or holders are frozen (ages_tick()).
 *
 * A keeper that dies leaves its ages to the next one, which goes on with those of files that it takes up leases of, and whose
 * rule still has a limit. They are in RUNTIME_DIR/grants, a file on a tmpfs. A record in it counts as a whole or not at all: it has a
 * sum. A file of another boot, another version, or another size is void. The argument is the same then. Each age of the dead keeper was written, with
 * the end of the pin, before the caller was told, so no process has a lock that is younger than what is written of it; an age
 * that could not be written has no record, or an unreadable one, and such a lock is left alone. While no keeper ran, none was
 * granted. And no lock is taken by the page before or after: the dead keeper did not show these files, which had ages, and
 * the next one has taken up the ages before it shows anything. The running clock goes on from where the dead keeper wrote
 * it last, so ages are too small rather than too large.
 */
#ifndef DFLOCK_KEEPER_AGES_H
#define DFLOCK_KEEPER_AGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>
#include <uthash.h>

#include "keeper/guard/table_file.h"

struct keeper;
struct lock;
struct order;

#define AGES_MAX 1024 /* of one lock; no further process gets one */

/* What has been done about a lock that is held too long. */
enum age_state {
	AGE_QUIET,
	AGE_WARNED,
	AGE_ENDING, /* its holders are being ended */
	AGE_STUCK,  /* they could not be ended: nothing more is tried */
};

struct age {
	pid_t pid;          /* of the process that was granted the lock; 0: of any */
	uid_t uid;          /* its user; pid 0: LEASE_OF_NOBODY if there were several */
	int64_t at_ns;      /* running clock: the end of its last pin */
	int64_t granted_ns; /* CLOCK_BOOTTIME: the last grant */
	time_t since;       /* ditto, Unix time */
	enum age_state state;
	bool said;                /* warned: and the log says so */
	unsigned missed;          /* how many looks have not found its lock */
	unsigned tries;           /* how often its holders were to be ended */
	pid_t holder;             /* warned: a process that has the lock, ... */
	char *command;            /* ... and its command; NULL: not known */
	struct ages_record *kept; /* for the next keeper; NULL: it has none */
	UT_hash_handle hh;        /* lock->ages, by pid */
};

#define AGES_NAME    "grants"
#define AGES_RECORDS 4096

/* An age, for the next keeper. */
struct ages_record {
	uint64_t dev, ino; /* struct file_key */
	int64_t at_ns, granted_ns, since;
	int32_t pid;
	uint32_t uid;
	uint32_t space;
	uint32_t reserved;
	uint64_t sum; /* of all of the above; 0: the record is free */
};

struct ages_file {
	struct table_file_mark mark;
	int64_t ran_ns, ticked_ns; /* the keeper's last tick: the running clock, and CLOCK_BOOTTIME */
	struct ages_record records[AGES_RECORDS];
};

/* Part of struct keeper. */
struct ages {
	struct lock *locks; /* those that have any */
	int64_t ran_ns;     /* the running clock at the last tick, ... */
	int64_t last_ns;    /* ... which was at this CLOCK_BOOTTIME */
	bool paused;
	struct ages_file *file; /* NULL: closed */
	size_t hint;            /* where to look for a free record */
	bool cannot_keep;       /* there is no file, and the log says so */
};

/* The leases of an earlier keeper have been taken up: the ages of its grants count. Start-up, before anything is granted. */
void ages_takeup(struct keeper *k);
void ages_close(struct keeper *k);

/* A caller has a pin until until_ns, for a lock of a file whose rule has a limit. Without memory the process has no grant. */
void ages_note_granted(struct lock *lock, pid_t pid, uid_t uid, int64_t until_ns);
/* Of the process that took a lock, as a lock line has it (procfs.h). NULL: nothing is known. */
struct age *ages_find(struct lock *lock, pid_t locker);
/* The order (guard/deeds.h) to end the holders of the lock that this process took. NULL: there is none. */
struct order *ages_order(const struct lock *lock, pid_t locker);
/* Nothing has been done about it. */
void age_begin(struct age *age);
void ages_drop(struct lock *lock, struct age *age);
/* The rule has no limit any more, or the file is freed. */
void ages_drop_all(struct lock *lock);

/* The running clock, and how long the lock has certainly been held. */
int64_t ages_now_ns(const struct keeper *k);
int64_t age_ms_of(const struct keeper *k, const struct age *age);
/* To be called several times a second. Time between two ticks that is longer than AGES_TICK_MAX_MS does not count; nor does
 * any from a tick with `paused` to the next one. */
#define AGES_TICK_MAX_MS 1000
void ages_tick(struct keeper *k, bool paused);

#endif
