/* Runs the actions of the lease table, and takes what happens to a lease: the top of this room. Loop only. */
#ifndef DFLOCK_KEEPER_ACT_H
#define DFLOCK_KEEPER_ACT_H

#include "keeper/leases/locks.h"
#include "store/store.h"

/* Before anything is raised: this does the queue's work from now on. */
void act_start(struct keeper *k);
/* The end: nothing is under way any more. Frees all leases and files. */
void act_free_all(struct keeper *k);

/* A caller was granted under it: it is given back linger_ms after the last of them at the earliest. */
void lease_used(struct lease *lease);

/* Another host wants the lease (store message). */
void lease_recall(struct lease *lease, const struct store_message *message);

#endif
