/* This host and the store: handles what the store reports unasked (messages, up and down), and hosts that were silent
 * for long. Beats: deadline.h. Loop only. */
#ifndef DFLOCK_KEEPER_HOST_H
#define DFLOCK_KEEPER_HOST_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "store/store.h"

struct keeper;
struct watch;

/* The store is away, and back again, are two events. A connection that stands again within this time is neither: after it
 * callers are told, too (callers/waiting.c). */
#define HOST_AWAY_MS 1000

/* Part of struct keeper. */
struct host_in_store {
	bool tried;                  /* a connection stood or failed since the start */
	char twin[STORE_HOST_BYTES]; /* the host that had this one's id, or whose id this one had; "": none is known */
	struct watch *sweeping;      /* hosts that are silent for sweep_ms: removed */
	uv_timer_t sweep;
	int64_t away_ns; /* since when the store cannot be used; 0: it is there */
	bool said_away;
};

int host_start(struct keeper *k); /* 0 or -errno */
void host_stop(struct keeper *k);
/* Looks for how long the store has been away: ten times a second. */
void host_tick(struct keeper *k);

#endif
