/*
 * Reads what a caller's process holds (before.h) without delaying other callers: a process may have any number of
 * descriptors, and all of them must be read. The loop reads a few, which costs less than a worker; a worker reads many.
 * Each user has at most WORKERS_PER_DEVICE such workers at a time. Loop only.
 */
#ifndef DFLOCK_KEEPER_BEFORE_JOB_H
#define DFLOCK_KEEPER_BEFORE_JOB_H

#include <stdbool.h>
#include <sys/socket.h>

#include "keeper/kernel/before.h"
#include "keeper/kernel/workers.h"

#define BEFORE_FEW 100 /* descriptors, and threads */

/* Does the process have few descriptors and threads? True also if it may not be looked into: before_read() says so at
 * once. */
bool before_are_few(pid_t pid);

/* ret: before_read()'s; *before is the receiver's. */
typedef void before_cb(void *arg, int ret, struct before *before);

/* Reads in a worker which POSIX locks on the file the peer's process holds. The loop calls cb once, never from inside
 * this call. 0 or -ENOMEM. */
int before_start(struct workers *workers, const struct ucred *peer, const struct stat *st, before_cb *cb, void *arg);

#endif
