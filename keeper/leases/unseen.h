/*
 * Locks that no descriptor shows. They are held by processes which the keeper may not look into: a program that may be
 * run but not read (mode 0111) or that asked for it (PR_SET_DUMPABLE), and for an ordinary user's keeper another user's
 * process that has inherited the descriptor (sudo, su). Or their description is in a mapping, a message, an io_uring or a
 * loop device (hidden.h).
 *
 * What is known of them: /proc/locks has the lock, and who took it, unless it is an OFD lock. If that process still
 * runs, it counts as the holder. This may be wrong: the holder may have passed the lock on and ended, and another process
 * may have its number by now. The kernel does not say when a lock was taken, so that other process is stopped, and
 * killed, in the holder's place.
 *
 * What remains: a process that inherited a flock from a process that has ended, or took an OFD lock, is found by a
 * mapping only; and the keeper cannot signal another user's process. The log and status say so while the lease is held.
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

/* pid: the process that took the lock; 0: not known, or not the holder. beyond: the holder cannot be stopped. */
typedef int unseen_cb(void *arg, const struct claim *claim, const struct procfs_lock *lock, pid_t pid, bool beyond);

/* Calls back for each claim under which a lock is held that no process shows. Leaves out `keeper`. 0, what cb returned,
 * or -errno. */
int unseen_find(struct claims *claims, pid_t keeper, unseen_cb *cb, void *arg);

struct keeper;
struct lease;

/* Part of struct keeper. */
struct unseen {
	uv_timer_t timer; /* the next look */
	bool looking;     /* a worker looks now */
	size_t due_count;
	int64_t not_before_ns; /* the next look */
};

/* A lease was found in use: looks soon which process holds its lock. If that process cannot be stopped, the log says
 * so, once for each lease. One worker looks at all leases that are due, for at most a twentieth of the time. */
void unseen_due(struct lease *lease);
void unseen_start(struct keeper *k);
void unseen_stop(struct keeper *k);

#endif
