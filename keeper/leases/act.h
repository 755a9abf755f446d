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

/*
 * --- early.c ---
 *
 * The early release: while a closed lease waits for the end of its use, its release is prepared, and the probe's thread sends
 * it as soon as the kernel says that no process has the lock. The loop learns of it afterwards, mostly by the store's
 * answer. It saves a hand-over one wake-up.
 *
 * early.c has the argument why no lease goes back wrongly or twice.
 */

enum early_end {
	EARLY_NOT,      /* the thread has done nothing, and will do nothing */
	EARLY_RETURNED, /* the slot in the table says "returned", but nothing was sent: it must be sent */
	EARLY_SENT,     /* the release is sent; its answer comes, or has come, as for every release */
};

/* The lease is WAITING, and its probe waits. Does nothing where the loop has to send: the store is away or reached by
 * TLS, a front probes, record locks, a probe that ends when the lock is shared. */
void early_arm(struct lease *lease);

/* Before any event that leads out of WAITING: what has the thread done? Other than EARLY_NOT: LEASE_CUE_FREE comes first. */
enum early_end early_disarm(struct lease *lease);

#endif
