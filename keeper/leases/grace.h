/*
 * A store that lost its memory: puts back, or loses, what this host had. The store grants nothing new until all old
 * leases have run out. Loop only.
 *
 * A host that was cut off meanwhile still has its old leases, until its deadline; so a store that begins anew grants
 * nothing for one ttl. Each host counts that ttl by its own clock, from when it saw the new incarnation. The first host
 * whose ttl has passed opens the store for all.
 */
#ifndef DFLOCK_KEEPER_GRACE_H
#define DFLOCK_KEEPER_GRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "store/store.h"

struct member;

/* Part of struct member. */
struct grace {
	char taken_incarnation[STORE_INC_BYTES];   /* the incarnation of the leases that were taken up; "" after that */
	char earlier_incarnation[STORE_INC_BYTES]; /* the one that this keeper knew before the present one; "": none */
	int64_t since_ns;
	uint64_t losses; /* how often the store was seen to have lost its memory; never goes back */
	uv_timer_t timer;
};

/* The store has a new incarnation: puts back the leases whose time has not run out. To be called after
 * deadline_notice(). */
void grace_begin(struct member *m, const char *old, const char *now);
/* A connection stands: continues to end the grace, if the store is in grace. */
void grace_store_is_up(struct member *m);
/* Is this store, or shard, where its hosts look for its names (host.h)? If not, asks for what has to be known before. left_ms: for how long a
 * shard that is in grace has to be watched. */
bool grace_may_end(struct member *m, int64_t (*left_ms)(const struct member *m));
/* For how much longer the store grants nothing, as this host counts. */
int64_t grace_left_ms(const struct member *m);
/* How long until every other host that can reach the store has sent a beat since this host saw the incarnation
 * begin. */
int64_t grace_beat_left_ms(const struct member *m);

#endif
