/*
 * Locks that are held by processes which the keeper may not look into, so that no descriptor shows them: a program that
 * may be run but not read (mode 0111) or that asked for it (PR_SET_DUMPABLE), and for an ordinary user's keeper another
 * user's process that has inherited the descriptor (sudo, su).
 *
 * What is known of them: /proc/locks has the lock, and who took it, unless it is an OFD lock. If that process still
 * runs and may not be looked into, it is taken for the holder. It may have passed the lock on and ended, and its number
 * may be another process's by now: the kernel does not say when a lock was taken, so a process of that number that may
 * not be looked into either is stopped, and killed, in its place.
 *
 * What remains: one that has inherited a flock from a process that has ended, or took an OFD lock, is not found; and
 * another user's process gets no signal from us. The log and status say so while the lease is held.
 *
 * unseen_find() is blocking, like holders.h and hidden.h; for a worker. unseen_due(), unseen_start(), unseen_stop():
 * loop.
 */
#ifndef DFLOCK_KEEPER_UNSEEN_H
#define DFLOCK_KEEPER_UNSEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "keeper/kernel/claims.h"
#include "procfs/procfs_locks.h"

/* pid: who took it; 0: not known, or not it. beyond: it could not be stopped. */
typedef int unseen_cb(void *arg, const struct claim *claim, const struct procfs_lock *lock, pid_t pid, bool beyond);

/* Calls back for each claim of which a lock is held that no process shows. keeper: is left out. 0, what cb returned, or
 * -errno. */
int unseen_find(struct claims *claims, pid_t keeper, unseen_cb *cb, void *arg);

struct keeper;
struct lease;

/* Part of struct keeper. */
struct unseen {
	uv_timer_t timer; /* the next look */
	bool looking;     /* a worker does */
	size_t due_count;
	int64_t not_before_ns; /* the next look */
};

/* A lease was found in use: it is to be looked at soon who holds its lock. If that is somebody who cannot be stopped,
 * the log says so, once for each lease. One worker looks at all that are due, for a twentieth of the time at the most.
 */
void unseen_due(struct lease *lease);
void unseen_start(struct keeper *k);
void unseen_stop(struct keeper *k);

#endif
