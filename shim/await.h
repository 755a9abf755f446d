/*
 * Waiting until a keeper can answer, for calls of files with on_refused = "wait", after ASK_LATER.
 */
#ifndef DFLOCK_SHIM_AWAIT_H
#define DFLOCK_SHIM_AWAIT_H

#include "shim/ask.h"
#include "shim/protect.h"

/*
 * Returns when the keeper is to be asked again. If there is none (ask->absent): within a second after one listens, or when
 * the program may try to start one again, which takes longer each time (1, 2, 4, ... 32 s). If there is one that cannot
 * serve the call now: after 1, 2, 4, 8, 8, ... s. `tries`: how often this call has waited here.
 *
 * 0; -EINTR as in ask.h; -ENOLCK after a line: this process cannot wait. Callable wherever flock() is; errno changes. A
 * cancellation point where ask_receive() is one; a cancelled thread leaves `ask` open. Wakes up once a second.
 */
int await_keeper(struct ask *ask, const struct protect_by *by, unsigned tries);

#endif
