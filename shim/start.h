/*
 * Starts a keeper so that the program does not notice: no child for its wait(), no SIGCHLD, no descriptor, none of its
 * signal handlers run in another process, no line in a tracer that follows forks.
 */
#ifndef DFLOCK_SHIM_START_H
#define DFLOCK_SHIM_START_H

#include <stdbool.h>
#include <stddef.h>

#include "shim/protect.h"

/* How long a new keeper may take until it serves. */
#define START_PATIENCE_MS 10000

/*
 * Starts a keeper and waits until one serves. `nonblock`: signals do not end the wait. Several threads and processes
 * may do this at the same time, also while a keeper runs. Callable wherever flock() is; errno changes.
 *
 * 0; -EINTR (not with `nonblock`); -EPERM: this process would have to reap the keeper, is restricted by seccomp, or
 * only root can start it;
 * -ENOLCK: the keeper could not be started. With the last two, `why` says in one line what is wrong and what to do.
 */
int start_keeper(const struct protect_by *by, bool nonblock, char *why, size_t why_size);

/* Is this process under seccomp? Then a call that it has not made before may kill it. */
bool start_is_restricted(void);

/* A fork with these flags; no handler of pthread_atfork() runs. Its result, or -errno. */
long start_fork(unsigned long flags);

#endif
