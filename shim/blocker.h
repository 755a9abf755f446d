/* Is a record lock of another host in the way? For calls that test. */
#ifndef DFLOCK_SHIM_BLOCKER_H
#define DFLOCK_SHIM_BLOCKER_H

#include <fcntl.h>

#include "shim/intent.h"
#include "shim/protect.h"

/* *look: from protect_look(), with PROTECT_ASK. 1: yes, and *found has it as F_GETLK shows it. 0: no. Else -errno,
 * -ENOLCK after a line. want->nonblock is set: a test never waits. */
int blocker_find(int fd, const struct intent *want, struct protect_look *look, struct flock64 *found);

#endif
