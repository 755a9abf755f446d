/* Runs the actions of the lease table, and takes what happens to a lease: the top of this room. Loop only. */
#ifndef DFLOCK_KEEPER_ACT_H
#define DFLOCK_KEEPER_ACT_H

#include "keeper/leases/locks.h"

/* Before anything is raised: this does the queue's work from now on. */
void act_start(struct keeper *k);
/* The keeper ends. From now on nothing happens to a lease: it stays in the table as it is, and the next keeper takes it up.
 * Pins may be out that this keeper does not wait for; the next one does. */
void act_leave_all(struct keeper *k);
/* After that, and after the last run of the loop: nothing is under way any more. Frees all leases and files. */
void act_free_all(struct keeper *k);

/* A caller was granted under it: it is given back linger_ms after the last of them at the earliest. */
void lease_used(struct lease *lease);

#endif
