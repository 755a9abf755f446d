/*
 * The keeper's parent: restarts a keeper that died, kills one that hangs, and does not wait for the end of one that was
 * killed and cannot end (leftover.h). It is locked into memory and does no I/O of its own while the keeper lives, but for
 * a look at /proc/PID/stat once a second. Should it be killed, the keeper sees to a new one (orphan.h).
 */
#ifndef DFLOCK_KEEPER_SUPERVISE_H
#define DFLOCK_KEEPER_SUPERVISE_H

#include "keeper/main.h"

/*
 * Runs keepers until one ends by itself; returns its enum keeper_exit. SIGTERM and SIGINT are passed on; a keeper that
 * dies after the first is started again, since it may have been waiting for locks to end, and one after the second is
 * not.
 */
int supervise(struct keeper_options *options);

#endif
