/* Leases that were lost while processes may hold the lock: who is told of them, and until when nobody else gets it.
 * Loop only. */
#ifndef DFLOCK_KEEPER_LOST_H
#define DFLOCK_KEEPER_LOST_H

#include "keeper/keeper.h"

void lost_start(struct keeper *k);
void lost_stop(struct keeper *k);

/* Reports a lease as lost: log and status. */
void lost_report(struct lease *lease, const char *why);

/*
 * There may be lost leases whose holders the parent has to kill: sends for it. Until it has, nobody else gets these
 * locks: it tells holders by the kernel lock that they have.
 */
void lost_end_holders(struct keeper *k);
bool lost_has_holders(const struct lock *lock);

#endif
