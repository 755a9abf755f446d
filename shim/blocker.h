/* Which locks are in the way? For calls that test, and for people, at a call that was refused. */
#ifndef DFLOCK_SHIM_BLOCKER_H
#define DFLOCK_SHIM_BLOCKER_H

#include <fcntl.h>

#include "shim/ask.h"
#include "shim/intent.h"
#include "shim/protect.h"

/* *look is what protect_look() filled when it returned PROTECT_ASK; want->nonblock must be set: a test never waits. 1:
 * yes, and *found shows the lock as F_GETLK does. 0: no. Else -errno; -ENOLCK after a line. errno changes. Callable
 * wherever fcntl() is. */
int blocker_find(int fd, const struct intent *want, struct protect_look *look, struct flock64 *found);

/* Only the question, on behalf of the thread that behalf->thread, call and command say: look->by is filled. The same results. */
int blocker_ask(const struct ask *behalf, int fd, const struct intent *want, struct protect_look *look,
		struct flock64 *found);

/*
 * DFLOCK_VERBOSE: a line on standard error that says which processes hold the lock, on which hosts. A call that does not wait is about to
 * return EWOULDBLOCK or EAGAIN. A file for which this was called within the last second gets no line: programs ask again and again.
 *
 * Callable wherever flock() is, in signal handlers too; errno changes. Without DFLOCK_VERBOSE it costs a load and a branch,
 * at a call that is refused. With it, the call returns after a question to the keeper, which takes two seconds at most, and
 * five if the keeper hangs.
 */
void blocker_tell(int fd, const struct intent *want, struct protect_look *look);

#endif
