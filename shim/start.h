/*
 * Starting a keeper that the program cannot see: no child for its wait(), no SIGCHLD, no descriptor, no
 * signal handler of its own run elsewhere, no line in a tracer that follows forks.
 */
#ifndef DFLOCK_SHIM_START_H
#define DFLOCK_SHIM_START_H

#include <stdbool.h>
#include <stddef.h>

#include "shim/protect.h"

/* How long a keeper may take until it serves. */
#define START_PATIENCE_MS 10000

/*
 * Starts a keeper and waits until one serves. nonblock: signals do not end the wait. Several may do this
 * at once, and also while a keeper is there. Callable wherever flock() is; errno changes.
 *
 * 0; -EINTR (not with nonblock); -EPERM: this process would be asked to reap the keeper, or may not make one;
 * -ENOLCK: it could not be started. With the last two, `why` says in one line what is wrong and what to do.
 */
int start_keeper(const struct protect_by *by, bool nonblock, char *why, size_t why_size);

#endif
