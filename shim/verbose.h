/*
 * DFLOCK_VERBOSE: at a refused call, a line on standard error that says which processes hold the lock, on which hosts.
 *
 * Callable wherever flock() is, in signal handlers too; errno changes. Without DFLOCK_VERBOSE it costs a load and a branch,
 * at a call that is refused. With it, the call returns after a question to the keeper, which takes two seconds at most, and
 * five if the keeper hangs.
 */
#ifndef DFLOCK_SHIM_VERBOSE_H
#define DFLOCK_SHIM_VERBOSE_H

#include "shim/intent.h"
#include "shim/protect.h"

/* A call that does not wait is about to return EWOULDBLOCK or EAGAIN. A file for which this was called within the last
 * second gets no line: programs ask again and again. */
void verbose_refused(int fd, const struct intent *want, struct protect_look *look);

#endif
