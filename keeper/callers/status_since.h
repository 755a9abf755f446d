/*
 * Since when processes have locks, for status.
 *
 *   "granted"  the keeper knows the moment: the process that took the lock asked, and this was its last grant (files whose
 *              rule has warn_after_ms or kill_after_ms: grants.h)
 *   "after"    the lock was taken at this time or later: since then this host has had a lease (leases.h: programs take locks
 *              under an open lease without a question)
 *   "unknown"  an earlier keeper may have granted it; 0
 */
#ifndef DFLOCK_KEEPER_STATUS_SINCE_H
#define DFLOCK_KEEPER_STATUS_SINCE_H

#include <jansson.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

struct keeper;
struct lock;

/* What is known of one lock, for a worker. */
struct status_since {
	time_t leased_at; /* 0: unknown */
	struct status_since_one {
		pid_t pid;
		time_t at;
	} * all;
	size_t count;
};

/* Loop. Without memory less is known. status_since_free() in any thread. */
void status_since_init(struct status_since *since, const struct lock *lock);
void status_since_free(struct status_since *since);
/* Adds "since" and "since_is" to a holder. locker: as the lock line has it. Any thread. */
void status_since_add(const struct status_since *since, pid_t locker, json_t *holder);

/* Locks that are held too long (toolong.h): [{"name", "path", "space", "pid", "command", "since", "held_ms", "doing"}]. Loop. */
json_t *status_since_too_long(const struct keeper *k);

#endif
