/*
 * What operators do: they take leases away from their holders (keeper/leases/breaking.h), on any host, in any state and at any moment,
 * mostly such as are in use, half of them while the parent is late; and they give up hosts that have been silent for a ttl (store_give_up()), also such as come back. Of random numbers of their own, so that
 * seeds which found something without them still mean the same (drop o0).
 */
#include <string.h>

#include "keeper/leases/breaking.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "tests/sim/sim.h"

#define BEGIN    (4 * SEC)
#define BREAKS   6
#define GIVEN_UP 3
#define LOOKS    12 /* of one operator at the silence of a host */
/* For so long the parent, which must end the holders, gets no processor; less than freeze_margin_ms, so that it still stops
 * holders in time whose leases run out. */
#define PARENT_LATE (250 * MS)

struct giving_up {
	struct host *asked, *silent; /* the operator's host, and the one that is given up */
	unsigned looks;
	char host[STORE_HOST_BYTES]; /* "": not known so far */
};

static char broken[BREAKS][STORE_TOKEN_BYTES];
static unsigned broken_count;

bool operator_broke(const char *token)
{
	for (unsigned i = 0; i < broken_count; i++)
		if (strcmp(broken[i], token) == 0)
			return true;
	return false;
}

static bool is_in_use(const struct host *host, const struct lease *lease)
{
	for (int i = 0; i < sim_program_count; i++) {
		const struct program *p = &sim_programs[i];

		if (p->host == host && p->state == PROGRAM_HOLDING && p->held.space == lease->lock->space &&
		    range_overlaps(&p->held, &lease->range) &&
		    strcmp(host->files[p->file], lease->lock->file->path) == 0)
			return true;
	}
	return false;
}

/* Mostly a lease that a program relies on; else any, in whatever state. NULL: there is none. */
static const struct lease *choose(const struct host *host, uint64_t number)
{
	const struct lease *lease, *next, *any = NULL;
	uint64_t at = 0, count = HASH_COUNT(host->k->leases);

	HASH_ITER (hh, host->k->leases, lease, next) {
		if (number % 4 && lease->fence && lease_is_ours(lease->state) && is_in_use(host, lease))
			return lease;
		if (at++ == number % count && lease->fence)
			any = lease;
	}
	return any;
}

static void break_lease(void *arg, uint64_t number)
{
	const struct breaking_asker asker = {.uid = 0};
	struct host *host = arg;
	const struct lease *lease;

	if (!host->k || host->k->leaving)
		return;
	lease = choose(host, number);
	if (!lease)
		return;
	sim_trace("h%d: an operator breaks %.8s, fence %llu", host->id, lease->token, (unsigned long long)lease->fence);
	if (broken_count < BREAKS)
		memcpy(broken[broken_count++], lease->token, sizeof(broken[0]));
	if (number % 2)
		host->parent_busy_until = sim_now + PARENT_LATE;
	breaking_start(lease_member(lease), lease->lock->file->name, lease->fence,
		       number % 3 ? UINT64_MAX : lease->fence, &asker);
	queue_settle(host->k);
}

static void on_given_up(void *arg, const struct store_reply *reply)
{
	struct giving_up *g = arg;

	sim_trace("h%d: giving up h%d: %d", g->asked->id, g->silent->id, (int)reply->status);
}

static void on_hosts(void *arg, enum store_status status, const struct store_blocker *hosts, size_t count)
{
	struct giving_up *g = arg;
	struct keeper *k = g->asked->k;
	struct member *m = k ? &k->members[g->looks % k->member_count] : NULL; /* dflock asks one after the other */

	for (size_t i = 0; status == STORE_OK && k && i < count; i++) {
		if (strcmp(hosts[i].host, g->host) != 0)
			continue;
		watch_see(m->watch, &hosts[i], clock_now_ns());
		if (!watch_is_dead(m->watch, hosts[i].host, hosts[i].beat, clock_now_ns()))
			continue;
		sim_trace("h%d: an operator gives up h%d", g->asked->id, g->silent->id);
		store_give_up(m->store, &hosts[i], on_given_up, g);
	}
}

static void ask_hosts(void *arg, uint64_t number)
{
	struct giving_up *g = arg;
	struct keeper *k = g->asked->k;
	const struct member *m = k ? &k->members[g->looks % k->member_count] : NULL;

	if (m && !k->leaving && store_is_up(m->store))
		store_hosts(m->store, on_hosts, g);
}

/* By the name that it has while it lives. */
static void look_at_host(void *arg, uint64_t number)
{
	struct giving_up *g = arg;

	if (g->silent->k)
		memcpy(g->host, g->silent->k->host, sizeof(g->host));
	if (*g->host)
		host_post(g->asked, ask_hosts, g, 0);
	if (++g->looks < LOOKS && sim_now < faults_end)
		sim_after(SIM_TTL_MS * MS / 4, look_at_host, g, 0);
}

static void strike(void *arg, uint64_t number) { host_post(arg, break_lease, arg, number); }

void operator_plan(void)
{
	static struct giving_up given_up[GIVEN_UP];
	struct rng rng = rng_of("operators", 0);
	int breaks = rng_chance(&rng, 400) ? (int)rng_between(&rng, 1, BREAKS + 1) : 0;
	int hosts = rng_chance(&rng, 300) ? (int)rng_between(&rng, 1, GIVEN_UP + 1) : 0;

	broken_count = 0;
	if (faults_mild || faults_dropped('o', 0))
		return;
	for (int i = 0; i < breaks; i++) {
		int64_t when = rng_between(&rng, BEGIN, faults_end);
		int64_t host = rng_between(&rng, 0, sim_host_count);

		sim_at(when, strike, &sim_hosts[host], (uint64_t)rng_between(&rng, 0, 1000));
	}
	for (int i = 0; i < hosts; i++) {
		int64_t asked = rng_between(&rng, 0, sim_host_count), when = rng_between(&rng, BEGIN, faults_end);

		given_up[i] = (struct giving_up){.asked = &sim_hosts[asked],
						 .silent = &sim_hosts[(asked + 1) % sim_host_count]};
		sim_at(when, look_at_host, &given_up[i], 0);
	}
}
