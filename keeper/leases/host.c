/* See host.h. */
#include "keeper/leases/host.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "keeper/leases/act.h"
#include "keeper/leases/answers.h"
#include "keeper/callers/callers.h"
#include "keeper/clock.h"
#include "keeper/callers/control.h"
#include "keeper/callers/deadlock.h"
#include "keeper/leases/grace.h"
#include "keeper/guard/table_notes.h"
#include "keeper/leases/leasepage.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"
#include "keeper/leases/lost.h"
#include "keeper/leases/unseen.h"
#include "keeper/leases/requests.h"
#include "keeper/callers/serve.h"

#define SWEEPS_PER_PERIOD 24
#define NOTE_MS           10000

/* --- the deadline --- */

/* Past it nothing is sure, whatever the store says next: everything must be confirmed. */
static void check_deadline(struct keeper *k)
{
	int64_t now = clock_now_ns();

	if (k->expired || now < k->deadline_ns) /* mutant: deadline-passed */
		return;
	k->expired = true;
	if (HASH_COUNT(k->leases))
		log_info("no beat was answered for %lld ms: leases are unsure until the store confirms them",
			 (long long)((now - k->deadline_ns + host_ttl_ns(k) * 9 / 10) / NS_PER_MS));
	keeper_raise_all(k, LEASE_EV_EXPIRED);
	grace_lose_forgotten(k);
}

int64_t host_sure_until(struct keeper *k)
{
	check_deadline(k);
	return k->expired ? 0 : k->freeze_at_ns;
}

void host_set_deadline(struct keeper *k, int64_t deadline_ns)
{
	k->deadline_ns = deadline_ns;
	k->freeze_at_ns = deadline_ns - k->config->lease.freeze_margin_ms * NS_PER_MS;
	table_renewed(k->table, k->freeze_at_ns, deadline_ns);
}

static bool holds_something(const struct keeper *k)
{
	const struct lease *lease, *next;

	HASH_ITER (hh, k->leases, lease, next)
		if (lease_is_ours(lease->state))
			return true;
	return false;
}

static void on_deadline(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	int64_t now = clock_now_ns();
	int64_t next = now < k->freeze_at_ns ? k->freeze_at_ns : k->deadline_ns;
	char why[512];

	if (now >= k->deadline_ns) {
		check_deadline(k);
		serve_all(k);
		return;
	}
	if (now >= k->freeze_at_ns && holds_something(k)) {
		host_store_trouble(k, why, sizeof(why));
		log_error("leases cannot be renewed and run out in %lld ms: %s",
			  (long long)((k->deadline_ns - now) / NS_PER_MS), why);
	}
	/* The loop's clock is not ours: it may have been early. */
	uv_timer_start(timer, on_deadline, (next - now) / NS_PER_MS + 1, 0);
}

void host_renewed(struct keeper *k, int64_t sent_ns)
{
	int64_t deadline = sent_ns + host_ttl_ns(k) * 9 / 10; /* mutant: deadline */
	int64_t now = clock_now_ns();
	bool was_sure = host_sure_until(k) - now > SERVE_LEAST_NS; /* first the old deadline, then the new */

	if (deadline <= k->deadline_ns || deadline <= now || grace_has_forgotten(k))
		return;
	host_set_deadline(k, deadline);
	k->expired = false;
	leasepage_refresh(k);
	uv_timer_start(&k->deadline, on_deadline, k->freeze_at_ns > now ? (k->freeze_at_ns - now) / NS_PER_MS + 1 : 1,
		       0);
	if (!was_sure)
		serve_all(k);
}

/* --- beats --- */

static void send_beat(struct keeper *k);

static void on_beat(void *arg, const struct store_reply *reply)
{
	struct keeper *k = arg;

	k->beat_under_way = false;
	if (reply->status == STORE_OK)
		host_renewed(k, k->beat_sent_ns);
	else if (reply->status == STORE_ERROR)
		log_error("the store refused a beat: %s", reply->error);
}

static void send_beat(struct keeper *k)
{
	if (k->beat_under_way || !store_is_up(k->store))
		return;
	k->beat_under_way = true;
	k->beat_sent_ns = clock_now_ns();
	store_beat(k->store, on_beat, k);
}

static void on_beat_timer(uv_timer_t *timer)
{
	struct keeper *k = timer->data;

	if (!k->leases) {
		uv_timer_stop(timer); /* nothing to renew */
		return;
	}
	send_beat(k);
}

bool host_beats(struct keeper *k)
{
	int64_t third = k->config->lease.ttl_ms / 3;
	bool recent = k->deadline_ns - clock_now_ns() > host_ttl_ns(k) / 2;

	if (uv_is_active((uv_handle_t *)&k->beat))
		return recent;
	uv_timer_start(&k->beat, on_beat_timer, third, third);
	/* mutant: beat-after-pause */
	return false; /* the last one may be long ago, and the next comes only in a third of ttl_ms */
}

/* --- what the store says --- */

static void store_tried(struct keeper *k)
{
	if (k->store_tried)
		return;
	k->store_tried = true;
	control_store_tried(k);
}

static void on_up(void *arg)
{
	struct keeper *k = arg;

	store_tried(k);
	log_info("store %s is reachable (version %s)%s", store_server(k->store), store_version(k->store),
		 store_in_grace(k->store) ? ", in grace" : "");
	grace_store_is_up(k);
	if (k->leases) {
		send_beat(k);
		host_beats(k);
	}
	keeper_raise_all(k, LEASE_EV_UP);
	serve_all(k);
}

static void on_down(void *arg, const char *why)
{
	struct keeper *k = arg;

	store_tried(k);
	log_error("store %s is not reachable: %s", store_server(k->store), why);
	control_store_down(k);
	serve_all(k);
}

static void on_incarnation(void *arg, const char *old, const char *now)
{
	grace_begin(arg, old, now);
}

static void on_unknown_released(void *arg, const struct store_reply *reply)
{
	(void)arg, (void)reply; /* if it was lost, the next recall brings it again */
}

/* Somebody waits for, or was granted, a token that is not ours any more: it must not stay in the store. */
static void release_unknown(struct keeper *k, const struct store_message *m)
{
	/* It may be one that could not be read from the table (table_take_up()): its holders end first. Another recall comes. */
	if (k->losing)
		return;
	log_debug("%s %.8s: unknown, given back", m->name, m->token);
	store_release(k->store, m->name, m->token, on_unknown_released, k); /* mutant: unknown-token */
}

static void on_message(void *arg, const struct store_message *m)
{
	struct keeper *k = arg;
	struct lease *lease = lease_find(k, m->token);

	if (k->leaving)
		return; /* what is in the table is the next keeper's */
	if (lease && strcmp(lease->lock->file->name, m->name) != 0)
		lease = NULL;
	switch (m->kind) {
	case STORE_MSG_RECALL:
		if (!lease || lease->state == LEASE_ENDED)
			release_unknown(k, m);
		else
			lease_recall(lease, m);
		return;
	case STORE_MSG_GRANTED:
		if (!lease)
			release_unknown(k, m);
		else if (lease->state == LEASE_ASKING && (m->provisional || lease->lapsed))
			/* Lapsed: it may be from before the silence, and others have it since. */
			lease_acquire(lease, NULL, 0);
		else if (lease->state == LEASE_ASKING)
			lease_handed_over(lease, m->fence);
		return;
	case STORE_MSG_CHASE:
		deadlock_message(k, m);
		return;
	case STORE_MSG_IN_USE:
		if (!lease || lease->state != LEASE_ASKING)
			return;
		answers_add(lease, m->holder, &m->range);
		return;
	}
}

void host_see(struct keeper *k, const struct store_reply *reply)
{
	int64_t now = clock_now_ns();

	for (size_t i = 0; i < reply->blocker_count; i++)
		if (strcmp(reply->blockers[i].host, k->host) != 0)
			watch_see(k->watch, &reply->blockers[i], now);
}

void host_store_trouble(const struct keeper *k, char *out, size_t size)
{
	const char *why = store_last_error(k->store);

	snprintf(out, size, "store %s is not reachable: %s; see `dflock doctor`", store_server(k->store),
		 store_is_up(k->store) ? "no beat was answered in time"
		 : *why                ? why
				       : "connecting");
}

/* --- what hosts long gone left behind --- */

static void on_swept(void *arg, const struct store_reply *reply)
{
	(void)arg;
	if (reply->status == STORE_ERROR)
		log_error("what a silent host left behind cannot be removed: %s", reply->error);
}

static void on_hosts(void *arg, enum store_status status, const struct store_blocker *hosts, size_t count)
{
	struct keeper *k = arg;
	struct store_blocker silent[STORE_MAX_BLOCKERS];
	int64_t now = clock_now_ns();

	if (status != STORE_OK)
		return;
	for (size_t i = 0; i < count; i++)
		if (strcmp(hosts[i].host, k->host) != 0)
			watch_see(k->sweeping, &hosts[i], now);
	watch_forget(k->sweeping, now); /* those that are gone from the store */
	count = watch_dead(k->sweeping, now, silent, STORE_MAX_BLOCKERS);
	for (size_t i = 0; i < count; i++) {
		log_info("host %s has been silent for sweep_ms: what it left in the store is removed", silent[i].host);
		store_sweep(k->store, &silent[i], on_swept, k);
	}
	watch_forget(k->watch, now - 10 * host_ttl_ns(k));
}

static void on_sweep_timer(uv_timer_t *timer)
{
	struct keeper *k = timer->data;

	if (store_is_up(k->store))
		store_hosts(k->store, on_hosts, k);
}

/* --- start and end --- */

/* What came through the store and means nothing: at most a line in a while, since anybody who may publish can send it.
 */
static void on_note(void *arg, const char *line)
{
	struct keeper *k = arg;
	int64_t now = clock_now_ns();

	if (k->noted_ns && now - k->noted_ns < NOTE_MS * NS_PER_MS)
		return;
	k->noted_ns = now;
	log_error("store %s: %s", store_server(k->store), line);
}

int host_start(struct keeper *k)
{
	static const struct store_callbacks callbacks = {.on_up = on_up,
							 .on_down = on_down,
							 .on_incarnation = on_incarnation,
							 .on_message = on_message,
							 .on_note = on_note};
	uint64_t often = k->config->lease.sweep_ms / SWEEPS_PER_PERIOD;

	k->watch = watch_new(host_ttl_ns(k));
	k->sweeping = watch_new(k->config->lease.sweep_ms * NS_PER_MS);
	k->store = store_new(k->loop, &k->config->store, k->config->lease.ttl_ms, k->host, &callbacks, k);
	if (!k->watch || !k->sweeping || !k->store)
		return -ENOMEM;
	uv_timer_t *timers[] = {&k->beat, &k->deadline, &k->grace, &k->sweep};
	for (size_t i = 0; i < sizeof(timers) / sizeof(*timers); i++) {
		uv_timer_init(k->loop, timers[i]);
		timers[i]->data = k;
	}
	lost_start(k);
	unseen_start(k);
	uv_timer_start(&k->sweep, on_sweep_timer, often, often);
	k->expired = k->deadline_ns <= clock_now_ns();
	if (k->expired)
		keeper_raise_all(k, LEASE_EV_EXPIRED);
	return 0;
}

void host_stop(struct keeper *k)
{
	uv_close((uv_handle_t *)&k->beat, NULL);
	uv_close((uv_handle_t *)&k->deadline, NULL);
	uv_close((uv_handle_t *)&k->grace, NULL);
	uv_close((uv_handle_t *)&k->sweep, NULL);
	store_free(k->store);
	watch_free(k->watch);
	watch_free(k->sweeping);
	lost_stop(k);
	unseen_stop(k);
}
