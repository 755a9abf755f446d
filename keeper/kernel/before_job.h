/*
 * What a caller's process holds (before.h), read without keeping others waiting: a process may have any number of descriptors,
 * and all of them are looked at. Few are looked at in the loop, which costs less than a worker; for many there is a worker, of
 * which each user has at most WORKERS_PER_DEVICE at a time. Loop only.
 */
#ifndef DFLOCK_KEEPER_BEFORE_JOB_H
#define DFLOCK_KEEPER_BEFORE_JOB_H

#include <stdbool.h>
#include <sys/socket.h>

#include "keeper/kernel/before.h"
#include "keeper/kernel/workers.h"

#define BEFORE_FEW 100 /* descriptors, and threads */

/* Has it few descriptors and threads? One that cannot be looked into is one of these: before_read() says so at once. */
bool before_are_few(pid_t pid);

/* ret: before_read()'s; *before is the receiver's. */
typedef void before_cb(void *arg, int ret, struct before *before);

/* Reads in a worker what the peer's process holds as POSIX locks on the file. cb comes once from the loop, never from inside the
 * call. 0 or -ENOMEM. */
int before_start(struct workers *workers, const struct ucred *peer, const struct stat *st, before_cb *cb, void *arg);

#endif
