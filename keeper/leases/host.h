/*
 * This host in its stores: handles what a store reports unasked (messages, up and down), and hosts that were silent for
 * long. Loop only.
 *
 * All that is true of a host is true of it in one store: its connection, beats (deadline.h), incarnation and grace (grace.h),
 * who is silent there, and what has to be confirmed (confirm.h). That is a member. A lock's file says which store has its
 * leases (locks.h), so nothing that happens to one member is felt by leases of another.
 *
 * A store with shards has a member for each of them: lock tables of their own, over which config_shard() spreads the names. Hosts with
 * another number of shards would look for a name in another table, so each record has the number, and the store of a host with another one
 * is refused (store.lua). A record that is new has the number of the host that began it, so one's own number has to be the store's before
 * that:
 *
 *  - A shard but the first connects when a lock needs it, and not before the first one's record has agreed in the life of this keeper.
 *  - When a shard begins a new incarnation, this host uses it only after it has read the first one's record again (store_admit()). One that is
 *    open was opened by a host that had asked.
 *  - A grace ends only when the number is known to be right: that of the first one when all others were read since it began, none refused, and
 *    those that are new were watched for a ttl, too (for `dflock init`: as long as other hosts take to come back; so a host with a wrong number, which is the first to begin a first shard that lost its
 *    memory, uses nothing as long as one shard knows better, or as a lease may stand in a shard that knew better); that of another one when
 *    the first one is open (grace_may_end()).
 *
 * `dflock init --force` changes the number. It asks all shards whether they would refuse: they do while hosts have leases there (as for
 * another ttl_ms). Then it changes them, the first one first, and each is a new incarnation in grace, which hosts with the old number are
 * refused by. A host with the old number may begin a shard that loses its memory meanwhile, but does not use it, since it reads the first
 * shard before that. When all have the new number, it opens those
 * incarnations, and is refused by a shard that has another one by then. A refusal after the first round leaves shards in grace, some with the
 * new number: nothing is used wrongly, and it can be repeated.
 *
 * docs/model/shards.pml has all of this.
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

#define SHARD_IDLE_MS 300000

/* Part of struct keeper: this host in one store. */
struct member {
	struct keeper *keeper;
	const struct config_store *config;
	struct member *first; /* the first shard of the store; often itself */
	unsigned shard;
	bool wanted; /* to be connected; the first one always is, others until they were not needed for SHARD_IDLE_MS */
	int64_t needed_ns;
	bool renewing;    /* it is shut since its incarnation is new, and soon connected again */
	bool agreed;      /* its record was read last with our number */
	int64_t read_ns;  /* when it was read last */
	int64_t asked_ns; /* grace_may_end() had it read */
	struct store *store;
	bool reached;           /* a connection stood or failed since the start */
	bool tried;             /* ... and it was up or down, or there can be none: callers need not wait for that */
	struct watch *watch;    /* hosts that were silent for a ttl: dead */
	struct watch *sweeping; /* hosts that are silent for sweep_ms: removed */
	uv_timer_t sweep;
	int64_t away_ns; /* since when the store cannot be used; 0: it is there */
	bool said_away;
	bool fit_asked,
		fit_awaited; /* callers/control.c: it is being asked whether jobs may start; they wait for its answer */
	unsigned told;       /* queue.c: of enum queue_store */
	unsigned shown;      /* pagefile.c: how many of its leases the page shows */
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
/* The store, or its shard, that has the leases of this lock name; it is wanted from now on. Valid as long as the keeper. */
struct member *member_of_name(struct keeper *k, const char *name);
/* The same, where the path says which rule it is. */
struct member *member_of_path(struct keeper *k, const char *path, const char *name);
/* Connects this shard, if the first one agrees. */
void member_want(struct member *m);
/* How people call it: "default" or the name in `stores`, and "/N" if it is shard N of several. Returns `name`. */
#define MEMBER_NAME_BYTES (CONFIG_STORE_BYTES + 12)
const char *member_name(const struct member *m, char name[MEMBER_NAME_BYTES]);
/* All shards of all stores are wanted. True: each was tried, so what they have can be asked for. */
bool host_reaches_all(struct keeper *k);

#endif
