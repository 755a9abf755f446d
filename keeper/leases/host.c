/* See host.h. */
#include "keeper/leases/host.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "keeper/leases/keeper.h"
#include "keeper/leases/answers.h"
#include "keeper/leases/breaking.h"
#include "keeper/clock.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/event.h"
#include "keeper/guard/supervise.h"
#include "keeper/guard/table.h"
#include "keeper/leases/grace.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"
#include "keeper/leases/lost.h"
#include "keeper/leases/posting.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/recall.h"
#include "keeper/leases/requests.h"
#include "keeper/leases/survey.h"
#include "keeper/leases/waiters.h"

#define SWEEPS_PER_PERIOD 24

/* --- what the store says --- */

static void store_tried(struct keeper *k)
{
	if (k->host_in_store.tried)
		return;
	k->host_in_store.tried = true;
	queue_tell_store(k, QUEUE_STORE_TRIED);
}

static int64_t store_away_ms(const struct keeper *k)
{
	return (clock_now_ns() - k->host_in_store.away_ns) / NS_PER_MS;
}

void host_tick(struct keeper *k)
{
	struct host_in_store *h = &k->host_in_store;

	if (!h->away_ns || h->said_away || store_away_ms(k) < HOST_AWAY_MS)
		return;
	h->said_away = true;
	event_raise(k,
		    &(struct event){
			    .kind = EVENT_STORE_AWAY, .reason = store_last_error(k->store), .for_ms = store_away_ms(k)},
		    "store %s %s: %s; locks cannot be taken, and leases run out if this lasts; see `dflock doctor`",
		    store_server(k->store), store_trouble(k->store), store_last_error(k->store));
}

static void store_is_back(struct keeper *k)
{
	struct host_in_store *h = &k->host_in_store;
	int64_t ms = store_away_ms(k);

	if (h->said_away)
		event_raise(k, &(struct event){.kind = EVENT_STORE_BACK, .for_ms = ms},
			    "store %s is reachable again, after %lld ms", store_server(k->store), (long long)ms);
	h->away_ns = 0;
	h->said_away = false;
}

static void on_up(void *arg)
{
	struct keeper *k = arg;

	store_tried(k);
	log_event(LINE_STORE_CONNECTED, "store %s is reachable (version %s)%s", store_server(k->store),
		  store_version(k->store), store_in_grace(k->store) ? ", in grace" : "");
	store_is_back(k);
	grace_store_is_up(k);
	if (k->leases) {
		deadline_beat(k);
		deadline_beats(k);
	}
	queue_raise_all(k, LEASE_CUE_UP);
	waiters_serve_all(k);
	queue_settle(k);
	posting_send(k); /* behind all that leases wait for */
	if (*k->table->head->twin)
		store_tell(k->store, k->table->head->twin, &(struct store_message){.kind = STORE_MSG_TWICE});
}

static void on_down(void *arg, const char *why)
{
	struct keeper *k = arg;

	store_tried(k);
	log_about(LINE_STORE_DISCONNECTED, &(struct log_about){.subject = why}, "store %s %s: %s",
		  store_server(k->store), store_trouble(k->store), why);
	if (!k->host_in_store.away_ns)
		k->host_in_store.away_ns = clock_now_ns();
	queue_tell_store(k, QUEUE_STORE_DOWN);
	waiters_serve_all(k);
	queue_settle(k);
}

/*
 * Which of the two keepers goes on: the one that moved the host's seat last. This one may have leases that the other one has as well,
 * or has given back: so it sends nothing more. Its holders are stopped from now on, and the next keeper ends them. Another host
 * can have such a lease only if the other keeper gave it back, or after a ttl without a beat.
 */
static void on_twice(void *arg)
{
	struct keeper *k = arg;

	log_about(LINE_HOST_TWICE, &(struct log_about){.subject = k->host},
		  "another keeper uses the id of this host, %s: this machine or its runtime directory was copied. What "
		  "this host held is lost, and it goes on as another host",
		  k->host);
	table_disown(k->table);
	table_notify(k->table);
	log_flush();
	_exit(KEEPER_EXIT_TWICE);
}

/* The host that says so has held nothing under this id since. */
static void heard_of_twin(struct keeper *k, const char *host)
{
	log_about(LINE_HOST_TWICE, &(struct log_about){.subject = host},
		  "the host %s had the id of this host, %s: this machine or its runtime directory was copied. It gave "
		  "the id up; were it a copy of a running machine, both may have used locks for a third of ttl_ms",
		  host, k->host);
	snprintf(k->host_in_store.twin, sizeof(k->host_in_store.twin), "%s", host);
}

static void on_incarnation(void *arg, const char *old, const char *now)
{
	struct keeper *k = arg;

	deadline_notice(k);
	grace_begin(k, old, now);
	queue_settle(k);
	posting_send(k);
}

static void on_granted(struct keeper *k, struct lease *lease, const struct store_message *m)
{
	if (!lease)
		lost_give_back(k, m->name, m->token, false);
	else if (lease->state == LEASE_ASKING && (m->provisional || lease->asking.lapsed))
		/* Lapsed: the grant may be from before the silence, and another host may have got the lease since. */
		lease_acquire(lease, NULL, 0);
	else if (lease->state == LEASE_ASKING)
		lease_granted(lease, m->fence);
}

static void take_message(struct keeper *k, const struct store_message *m)
{
	struct lease *lease = lease_find(k, m->token);

	if (lease && strcmp(lease->lock->file->name, m->name) != 0)
		lease = NULL;
	switch (m->kind) {
	case STORE_MSG_RECALL:
		if (!lease || lease->state == LEASE_ENDED)
			lost_give_back(k, m->name, m->token, false);
		else
			lease_recall(lease, m);
		return;
	case STORE_MSG_GRANTED:
		on_granted(k, lease, m);
		return;
	case STORE_MSG_AGAIN:
		if (lease && lease->state == LEASE_ASKING)
			lease_acquire(lease, NULL, 0);
		return;
	case STORE_MSG_BREAK:
		breaking_asked(k, m);
		return;
	case STORE_MSG_TWICE:
		heard_of_twin(k, m->holder);
		return;
	case STORE_MSG_BROKEN:
		k->queue.news->broken(k, m);
		return;
	case STORE_MSG_WHO:
	case STORE_MSG_HOLDER:
	case STORE_MSG_HOLDERS:
		k->queue.news->who(k, m);
		return;
	case STORE_MSG_CHASE:
		k->queue.news->chase(k, m);
		return;
	case STORE_MSG_IN_USE:
		if (lease && lease->state == LEASE_ASKING)
			answers_add(lease, m->holder, &m->range);
		return;
	case STORE_MSG_KINDS:
		return;
	}
}

static void on_key(void *arg, const char *key)
{
	struct keeper *k = arg;

	if (k->leaving)
		return;
	deadline_notice(k);
	lease_ask_for_key(k, key);
	queue_settle(k);
}

static void on_message(void *arg, const struct store_message *m)
{
	struct keeper *k = arg;

	if (k->leaving)
		return; /* leases in the table belong to the next keeper */
	deadline_notice(k);
	take_message(k, m);
	queue_settle(k);
}

/* --- what hosts left that are gone for long --- */

static void on_swept(void *arg, const struct store_reply *reply)
{
	(void)arg;
	if (reply->status == STORE_ERROR)
		log_event(LINE_STORE_REFUSED, "what a silent host left behind cannot be removed: %s; tried again",
			  reply->error);
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
			watch_see(k->host_in_store.sweeping, &hosts[i], now);
	watch_forget(k->host_in_store.sweeping, now); /* those that are gone from the store */
	count = watch_dead(k->host_in_store.sweeping, now, silent, STORE_MAX_BLOCKERS);
	for (size_t i = 0; i < count; i++) {
		log_about(LINE_HOST_SWEPT, &(struct log_about){.subject = silent[i].host},
			  "host %s has been silent for sweep_ms: what it left in the store is removed", silent[i].host);
		store_sweep(k->store, &silent[i], on_swept, k);
	}
	watch_forget(k->watch, now - 10 * deadline_ttl_ns(k));
}

static void on_sweep_timer(uv_timer_t *timer)
{
	struct keeper *k = timer->data;

	if (store_is_up(k->store))
		store_hosts(k->store, on_hosts, k);
	posting_send(k);
}

/* --- start and end --- */

/* A message of the store that means nothing: any client that may publish can send such messages. */
static void on_note(void *arg, const char *line)
{
	struct keeper *k = arg;

	log_event(LINE_STORE_NONSENSE, "store %s: %s", store_server(k->store), line);
}

int host_start(struct keeper *k)
{
	static const struct store_callbacks callbacks = {.on_up = on_up,
							 .on_down = on_down,
							 .on_incarnation = on_incarnation,
							 .on_twice = on_twice,
							 .on_message = on_message,
							 .on_key = on_key,
							 .on_note = on_note};
	uint64_t often = k->config->lease.sweep_ms / SWEEPS_PER_PERIOD;

	k->watch = watch_new(deadline_ttl_ns(k));
	k->host_in_store.sweeping = watch_new(k->config->lease.sweep_ms * NS_PER_MS);
	k->store = store_new(k->loop, &k->config->stores[0], k->config->lease.ttl_ms, k->host, &callbacks, k);
	if (!k->watch || !k->host_in_store.sweeping || !k->store)
		return -ENOMEM;
	store_keep_seat(k->store, k->table->head->seat);
	store_keep_seen(k->store, k->table->head->seen);
	snprintf(k->host_in_store.twin, sizeof(k->host_in_store.twin), "%s", k->table->head->twin);
	uv_timer_t *timers[] = {&k->grace.timer, &k->host_in_store.sweep};
	for (size_t i = 0; i < sizeof(timers) / sizeof(*timers); i++) {
		uv_timer_init(k->loop, timers[i]);
		timers[i]->data = k;
	}
	posting_start(k);
	lost_start(k);
	breaking_open(k);
	survey_start(k);
	uv_timer_start(&k->host_in_store.sweep, on_sweep_timer, often, often);
	deadline_start(k);
	queue_settle(k);
	return 0;
}

void host_stop(struct keeper *k)
{
	survey_stop(k); /* while there is a store: answers go to other hosts */
	deadline_stop(k);
	uv_close((uv_handle_t *)&k->grace.timer, NULL);
	uv_close((uv_handle_t *)&k->host_in_store.sweep, NULL);
	store_free(k->store);
	watch_free(k->watch);
	watch_free(k->host_in_store.sweeping);
	lost_stop(k);
	breaking_close(k);
}
