/* Is a record lock of another host in the way? For calls that test. */
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

#endif
