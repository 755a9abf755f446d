/*
 * This host in its stores: handles what a store reports unasked (messages, up and down), and hosts that were silent for
 * long. Loop only.
 *
 * All that is true of a host is true of it in one store: its connection, beats (deadline.h), incarnation and grace (grace.h),
 * who is silent there, and what has to be confirmed (confirm.h). That is a member. A lock's file says which store has its
 * leases (locks.h), so nothing that happens to one member is felt by leases of another.
 */
#ifndef DFLOCK_KEEPER_HOST_H
#define DFLOCK_KEEPER_HOST_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "keeper/clock.h"
#include "keeper/leases/confirm.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/grace.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/posting.h"
#include "store/store.h"

struct keeper;
struct watch;

/* The store is away, and back again, are two events. A connection that stands again within this time is neither: after it
 * callers are told, too (callers/waiting.c). */
#define HOST_AWAY_MS 1000

/* Part of struct keeper: this host in one store. */
struct member {
	struct keeper *keeper;
	const struct config_store *config;
	struct store *store;
	bool tried;             /* a connection stood or failed since the start */
	struct watch *watch;    /* hosts that were silent for a ttl: dead */
	struct watch *sweeping; /* hosts that are silent for sweep_ms: removed */
	uv_timer_t sweep;
	int64_t away_ns; /* since when the store cannot be used; 0: it is there */
	bool said_away;
	unsigned told;  /* queue.c: of enum queue_store */
	unsigned shown; /* pagefile.c: how many of its leases the page shows */
	struct lease_states states;
	struct deadline deadline;
	struct grace grace;
	struct posting posting;
	struct confirms confirms;
};

/* Has the host leases in this store, or asks for some? */
static inline bool member_has_leases(const struct member *m)
{
	for (int space = 0; space < WIRE_SPACES; space++)
		for (int state = 0; state < LEASE_STATES; state++)
			if (m->states.count[space][state])
				return true;
	return false;
}
/* Is it past the moment at which holders of leases in this store are stopped? */
static inline bool member_is_past(const struct member *m)
{
	return m->deadline.at_ns && clock_now_ns() >= m->deadline.freeze_at_ns && member_has_leases(m);
}

/* Once the configuration is loaded: which stores there are. 0; -EINVAL with a line in `why`: an engine is missing. Blocks on the file
 * system of the installation. */
int host_prepare(struct keeper *k, char *why, size_t why_size);
/* Before the leases of an earlier keeper are taken up, and after that: until when they are sure, as the table says. */
void host_takeup(struct keeper *k);
void host_took_up(struct keeper *k);
int host_start(struct keeper *k); /* 0 or -errno */
void host_stop(struct keeper *k);
/* Looks for how long stores have been away: ten times a second. */
void host_tick(struct keeper *k);
/* Is some lease of this host not sure, or past the moment at which holders are stopped? */
bool host_is_unsure(const struct keeper *k);
/* When the first of the leases of this host runs out; INT64_MAX: there is none. */
int64_t host_deadline_ns(const struct keeper *k);
/* The store that has the leases of this lock name. Valid as long as the keeper. */
struct member *member_of_name(struct keeper *k, const char *name);
/* ... of this resolved path. */
struct member *member_of_path(struct keeper *k, const char *path);

#endif
