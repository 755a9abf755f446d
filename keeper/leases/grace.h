/*
 * A store that lost its memory: what this host had is put back or lost, and nothing new is granted until all old leases
 * have run out. Loop only.
 *
 * A host that was cut off meanwhile has its old leases still, until its deadline; so a store that begins anew grants
 * nothing for one ttl. Each host counts that ttl by its own clock, from when it saw the new incarnation, and whoever
 * has counted to its end opens the store for all.
 */
#ifndef DFLOCK_KEEPER_GRACE_H
#define DFLOCK_KEEPER_GRACE_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "store/store.h"

struct keeper;

/* Part of struct keeper. */
struct grace {
	char taken_incarnation[STORE_INC_BYTES];   /* of the leases that were taken up; "" after that */
	char earlier_incarnation[STORE_INC_BYTES]; /* that this keeper has known before the store's own; "": none */
	int64_t since_ns;
	size_t forgotten_count; /* leases in LEASE_FORGOTTEN: lease_set_state() */
	uv_timer_t timer;
};

/* The store has another incarnation than it had. Leases whose time has not run out are put back. That the deadline has
 * passed has been noticed (deadline_notice()). */
void grace_begin(struct keeper *k, const char *old, const char *now);
/* A connection stands: goes on with ending the grace, if there is one. */
void grace_store_is_up(struct keeper *k);
/* For how long the store grants nothing yet, as this host counts. */
int64_t grace_left_ms(const struct keeper *k);
/* Until every other host that can reach the store has sent a beat since this host saw the incarnation begin. */
int64_t grace_beat_left_ms(const struct keeper *k);

#endif
