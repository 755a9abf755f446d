/* Runs the actions of the lease's state table (rules/lease.h), and takes inputs about leases: the top of this room.
 * Loop only. */
#ifndef DFLOCK_KEEPER_ACT_H
#define DFLOCK_KEEPER_ACT_H

#include "keeper/leases/locks.h"
#include "store/histogram.h"

/* Part of struct keeper. All but a lease's own times; never go back. */
struct act_counts {
	uint64_t granted[WIRE_SPACES];          /* leases that the store granted */
	uint64_t handovers[WIRE_SPACES];        /* given back, or shrunk to shared, because another host wanted them */
	struct histogram held[WIRE_SPACES];     /* from the grant until a lease was given back or lost */
	struct histogram recalled[WIRE_SPACES]; /* from the wish of another host until the hand-over */
};

/* To be called before any event is raised: act.c does the queue's work from now on. */
void act_start(struct keeper *k);
/* The keeper ends. From now on nothing happens to a lease: it stays in the table as it is, and the next keeper takes it up.
 * This keeper does not wait for the end of pins; the next one does. */
void act_leave_all(struct keeper *k);
/* To be called after that, and after the last run of the loop, when nothing is under way any more. Frees all leases and
 * files. */
void act_free_all(struct keeper *k);

/* A caller was granted under the lease, which is given back at the earliest linger_ms after the last such grant. */
void lease_used(struct lease *lease);

#endif
