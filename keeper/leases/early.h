/*
 * The early release: while a closed lease waits for the end of its use, its release is prepared, and the probe's thread sends
 * it as soon as the kernel says that no process has the lock. The loop learns of it afterwards, mostly by the store's
 * answer. It saves a hand-over one wake-up.
 *
 * early.c has the argument why no lease goes back wrongly or twice. Loop only.
 */
#ifndef DFLOCK_KEEPER_EARLY_H
#define DFLOCK_KEEPER_EARLY_H

struct lease;

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
