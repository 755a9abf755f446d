/*
 * A lock call on a protected file: the kernel lock and the lease, both or neither.
 */
#ifndef DFLOCK_SHIM_ACQUIRE_H
#define DFLOCK_SHIM_ACQUIRE_H

#include "shim/intent.h"
#include "shim/protect.h"

/*
 * flock(fd, op), whose intent is *want, under the keeper that *by names. 0: the caller has the kernel lock, and
 * had it while its host had an unexpired lease. Else -errno as flock(2) gives it, or -ENOLCK after a line that
 * says why; the lock that fd had before is kept if the call was refused at once, and is gone as flock(2) says
 * if it had to wait, would have had to wait, or was refused later. errno changes.
 */
int acquire_flock(int fd, int op, const struct intent *want, const struct protect_by *by);

#endif
