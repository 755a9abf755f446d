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
#define SHARD_IS_NEW      "it is new, and its store's first shard is asked how many there are"
/* Where there are more, each looks more seldom, so that a store of N hosts does not list N hosts N times an hour. */
#define SWEEP_HOSTS 1000

/* --- what the store says --- */

static void store_tried(struct member *m)
{
	if (m->tried)
		return;
	m->tried = true;
	queue_tell_store(m, QUEUE_STORE_TRIED);
}

/* Its own connection stood or failed. */
static void store_reached(struct member *m)
{
	if (!m->reached)
		queue_tell_store(m, QUEUE_STORE_TRIED);
	m->reached = true;
}

/* The other shards of this one's store. */
static void each_shard(struct member *first, void (*act)(struct member *m))
{
	for (struct member *m = first + 1; m < first + first->config->shards; m++)
		act(m);
}

static void shard_admit(struct member *m)
{
	store_admit(m->store);
	if (m->wanted)
		store_reach(m->store);
}

static void shard_unreachable(struct member *m)
{
	if (m->wanted && !store_is_up(m->store))
		store_tried(m);
}

static void on_record(void *arg, bool agrees)
{
	struct member *m = arg;

	store_reached(m);
	m->renewing = false;
	m->agreed = agrees;
	m->read_ns = clock_now_ns();
	if (m == m->first && agrees)
		each_shard(m, shard_admit);
	queue_settle(m->keeper);
}

static int64_t store_away_ms(const struct member *m)
{
	return (clock_now_ns() - m->away_ns) / NS_PER_MS;
}

static void member_tick(struct member *m)
{
	if (!m->away_ns || m->said_away || store_away_ms(m) < HOST_AWAY_MS)
		return;
	m->said_away = true;
	event_raise(m->keeper,
		    &(struct event){.kind = EVENT_STORE_AWAY,
				    .store = member_store(m),
				    .reason = store_last_error(m->store),
				    .for_ms = store_away_ms(m)},
		    "store %s %s: %s; locks cannot be taken, and leases run out if this lasts; see `dflock doctor`",
		    store_server(m->store), store_trouble(m->store), store_last_error(m->store));
}

/* Most hosts need few shards, and a server has room for so many connections. The next one who needs it connects it again. */
static void shard_tick(struct member *m)
{
	if (m == m->first || !m->wanted)
		return;
	if (member_has_leases(m) || m->keeper->lost.losing || !store_is_up(m->store) ||
	    store_in_grace(m->store)) /* somebody may wait */
		m->needed_ns = clock_now_ns();
	if (clock_now_ns() - m->needed_ns < SHARD_IDLE_MS * NS_PER_MS)
		return;
	m->wanted = m->tried = m->reached = false;
	store_rest(m->store);
}

void host_tick(struct keeper *k)
{
	for (unsigned i = 0; i < k->member_count; i++) {
		member_tick(&k->members[i]);
		shard_tick(&k->members[i]);
	}
}

static void store_is_back(struct member *m)
{
	int64_t ms = store_away_ms(m);

	if (m->said_away)
		event_raise(m->keeper,
			    &(struct event){.kind = EVENT_STORE_BACK, .store = member_store(m), .for_ms = ms},
			    "store %s is reachable again, after %lld ms", store_server(m->store), (long long)ms);
	m->away_ns = 0;
	m->said_away = false;
}

static void on_up(void *arg)
{
	struct member *m = arg;

	store_reached(m);
	store_tried(m);
	log_about(LINE_STORE_CONNECTED, &(struct log_about){.store = member_store(m)},
		  "store %s is reachable (version %s)%s", store_server(m->store), store_version(m->store),
		  store_in_grace(m->store) ? ", in grace" : "");
	store_is_back(m);
	grace_store_is_up(m);
	if (member_has_leases(m)) {
		deadline_beat(m);
		deadline_beats(m);
	}
	queue_raise_all(m, LEASE_CUE_UP);
	waiters_serve_all(m->keeper);
	queue_settle(m->keeper);
	posting_send(m); /* behind all that leases wait for */
	if (*m->keeper->table->head->twin)
		store_tell(m->store, m->keeper->table->head->twin, &(struct store_message){.kind = STORE_MSG_TWICE});
}

static void on_down(void *arg, const char *why)
{
	struct member *m = arg;

	store_reached(m);
	store_tried(m);
	m->renewing = m->renewing && strcmp(why, SHARD_IS_NEW) == 0;
	if (m == m->first && !m->agreed)
		each_shard(m, shard_unreachable);
	log_about(LINE_STORE_DISCONNECTED, &(struct log_about){.subject = why, .store = member_store(m)},
		  "store %s %s: %s", store_server(m->store), store_trouble(m->store), why);
	if (!m->away_ns)
		m->away_ns = clock_now_ns();
	queue_tell_store(m, QUEUE_STORE_DOWN);
	waiters_serve_all(m->keeper);
	queue_settle(m->keeper);
}

/*
 * Which of the two keepers goes on: the one that moved the host's seat last. This one may have leases that the other one has as well,
 * or has given back: so it sends nothing more. Its holders are stopped from now on, and the next keeper ends them. Another host
 * can have such a lease only if the other keeper gave it back, or after a ttl without a beat.
 */
static void on_twice(void *arg)
{
	struct member *m = arg;

	log_about(LINE_HOST_TWICE, &(struct log_about){.subject = m->keeper->host},
		  "another keeper uses the id of this host, %s: this machine or its runtime directory was copied. What "
		  "this host held is lost, and it goes on as another host",
		  m->keeper->host);
	table_disown(m->keeper->table);
	table_notify(m->keeper->table);
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
	snprintf(k->twin, sizeof(k->twin), "%s", host);
}

static void on_incarnation(void *arg, const char *old, const char *now)
{
	struct member *m = arg;

	deadline_notice(m->keeper);
	grace_begin(m, old, now);
	if (m != m->first && store_in_grace(m->store)) { /* mutant: shard-asked */
		m->renewing = true;
		store_shut(m->store, SHARD_IS_NEW);
		store_reread_record(m->first->store); /* while it is away: on_record() comes with it */
	}
	queue_settle(m->keeper);
	posting_send(m);
}

static void on_granted(struct member *m, struct lease *lease, const struct store_message *message)
{
	if (!lease)
		lost_give_back(m, message->name, message->token, false);
	else if (lease->state == LEASE_ASKING && (message->provisional || lease->asking.lapsed))
		/* Lapsed: the grant may be from before the silence, and another host may have got the lease since. */
		lease_acquire(lease, NULL, 0);
	else if (lease->state == LEASE_ASKING)
		lease_granted(lease, message->fence, 0, 0);
}

static void take_message(struct member *m, const struct store_message *message)
{
	const struct queue_news *news = m->keeper->queue.news;
	struct lease *lease = lease_find(m->keeper, message->token);

	if (lease && (lease_member(lease) != m || strcmp(lease->lock->file->name, message->name) != 0))
		lease = NULL;
	switch (message->kind) {
	case STORE_MSG_RECALL:
		if (!lease || lease->state == LEASE_ENDED)
			lost_give_back(m, message->name, message->token, false);
		else
			lease_recall(lease, message);
		return;
	case STORE_MSG_GRANTED:
		on_granted(m, lease, message);
		return;
	case STORE_MSG_AGAIN:
		if (lease && lease->state == LEASE_ASKING)
			lease_acquire(lease, NULL, 0);
		return;
	case STORE_MSG_BREAK:
		breaking_asked(m, message);
		return;
	case STORE_MSG_TWICE:
		heard_of_twin(m->keeper, message->holder);
		return;
	case STORE_MSG_BROKEN:
		news->broken(m->keeper, message);
		return;
	case STORE_MSG_WHO:
	case STORE_MSG_HOLDER:
	case STORE_MSG_HOLDERS:
		news->who(m, message);
		return;
	case STORE_MSG_CHASE:
		news->chase(m->keeper, message);
		return;
	case STORE_MSG_IN_USE:
		if (lease && lease->state == LEASE_ASKING)
			answers_add(lease, message->holder, &message->range);
		return;
	case STORE_MSG_KINDS:
		return;
	}
}

static void on_key(void *arg, const char *key)
{
	struct member *m = arg;

	if (m->keeper->leaving)
		return;
	deadline_notice(m->keeper);
	lease_ask_for_key(m, key);
	queue_settle(m->keeper);
}

static void on_message(void *arg, const struct store_message *message)
{
	struct member *m = arg;

	if (m->keeper->leaving)
		return; /* leases in the table belong to the next keeper */
	deadline_notice(m->keeper);
	take_message(m, message);
	queue_settle(m->keeper);
}

/* --- what hosts left that are gone for long --- */

static void on_swept(void *arg, const struct store_reply *reply)
{
	(void)arg;
	if (reply->status == STORE_ERROR)
		log_event(LINE_STORE_REFUSED, "what a silent host left behind cannot be removed: %s; tried again",
			  reply->error);
}

static uint64_t sweep_every_ms(const struct member *m, size_t hosts)
{
	uint64_t times = hosts / SWEEP_HOSTS + 1;

	return (uint64_t)m->keeper->config->lease.sweep_ms / SWEEPS_PER_PERIOD *
	       (times < SWEEPS_PER_PERIOD / 2 ? times : SWEEPS_PER_PERIOD / 2);
}

static void on_hosts(void *arg, enum store_status status, const struct store_blocker *hosts, size_t count)
{
	struct member *m = arg;
	struct store_blocker silent[STORE_MAX_BLOCKERS];
	int64_t now = clock_now_ns();
	size_t all = count;

	if (status != STORE_OK)
		return;
	for (size_t i = 0; i < count; i++)
		if (strcmp(hosts[i].host, m->keeper->host) != 0)
			watch_see(m->sweeping, &hosts[i], now);
	watch_forget(m->sweeping, now); /* those that are gone from the store */
	count = watch_dead(m->sweeping, silent, STORE_MAX_BLOCKERS);
	for (size_t i = 0; i < count; i++) {
		log_about(LINE_HOST_SWEPT, &(struct log_about){.subject = silent[i].host},
			  "host %s has been silent for sweep_ms: what it left in the store is removed", silent[i].host);
		store_sweep(m->store, &silent[i], on_swept, m);
	}
	watch_forget(m->watch, now - 10 * deadline_ttl_ns(m->keeper));
	uv_timer_set_repeat(&m->sweep, sweep_every_ms(m, all));
}

static void on_sweep_timer(uv_timer_t *timer)
{
	struct member *m = timer->data;

	if (store_is_up(m->store))
		store_hosts(m->store, on_hosts, m);
	posting_send(m);
}

/* --- start and end --- */

/* A message of the store that means nothing: any client that may publish can send such messages. */
static void on_note(void *arg, const char *line)
{
	struct member *m = arg;

	log_event(LINE_STORE_NONSENSE, "store %s: %s", store_server(m->store), line);
}

static int member_start(struct member *m)
{
	static const struct store_callbacks callbacks = {.on_up = on_up,
							 .on_down = on_down,
							 .on_incarnation = on_incarnation,
							 .on_twice = on_twice,
							 .on_record = on_record,
							 .on_message = on_message,
							 .on_key = on_key,
							 .on_note = on_note};
	struct keeper *k = m->keeper;
	uint64_t often = sweep_every_ms(m, 0);
	uv_timer_t *timers[] = {&m->grace.timer, &m->sweep};

	m->watch = watch_new(deadline_ttl_ns(k));
	m->sweeping = watch_new(k->config->lease.sweep_ms * NS_PER_MS);
	m->store = store_new(k->loop, m->config, k->config->lease.ttl_ms, k->host, &callbacks, m);
	if (!m->watch || !m->sweeping || !m->store)
		return -ENOMEM;
	if (m != m->first)
		store_be_shard(m->store, m->shard);
	store_keep_seat(m->store, *TABLE_OF(k->table, member_number(m), seat));
	store_keep_seen(m->store, *TABLE_OF(k->table, member_number(m), seen));
	for (size_t i = 0; i < sizeof(timers) / sizeof(*timers); i++) {
		uv_timer_init(k->loop, timers[i]);
		timers[i]->data = m;
	}
	posting_start(m);
	uv_timer_start(&m->sweep, on_sweep_timer, often, often);
	deadline_start(m);
	return 0;
}

int host_prepare(struct keeper *k, char *why, size_t why_size)
{
	for (const struct config_store *c = k->config->stores; c < k->config->stores + k->config->store_count; c++) {
		struct member *first = &k->members[k->member_count];

		if (!store_engine(c, why, why_size))
			return -EINVAL;
		for (unsigned shard = 0; shard < c->shards; shard++)
			k->members[k->member_count++] = (struct member){
				.keeper = k, .config = c, .first = first, .shard = shard, .wanted = shard == 0};
	}
	return 0;
}

void host_takeup(struct keeper *k)
{
	/* The earlier keeper may have had a longer ttl_ms: a beat gives no more time than that of now. */
	int64_t most_ns = clock_now_ns() + deadline_ttl_ns(k) * 9 / 10;

	for (unsigned i = 0; i < k->member_count; i++) {
		struct member *m = &k->members[i];

		m->deadline.at_ns = *TABLE_OF(k->table, i, deadline_ns);
		if (m->deadline.at_ns > most_ns)
			m->deadline.at_ns = most_ns;
		snprintf(m->grace.taken_incarnation, sizeof(m->grace.taken_incarnation), "%s",
			 table_incarnation(k->table, i));
	}
}

void host_took_up(struct keeper *k)
{
	for (unsigned i = 0; i < k->member_count; i++) {
		struct member *m = &k->members[i];

		if (m->deadline.at_ns)
			deadline_set(m, m->deadline.at_ns);
		if (!member_has_leases(m))
			m->grace.taken_incarnation[0] = '\0';
	}
}

int host_start(struct keeper *k)
{
	int ret = 0;

	snprintf(k->twin, sizeof(k->twin), "%s", k->table->head->twin);
	lost_start(k);
	breaking_open(k);
	survey_start(k);
	for (unsigned i = 0; ret == 0 && i < k->member_count; i++) {
		k->members[i].wanted |= k->lost.losing; /* beats go on until their holders have ended */
		ret = member_start(&k->members[i]);
	}
	queue_settle(k);
	return ret;
}

static void member_stop(struct member *m)
{
	deadline_stop(m);
	uv_close((uv_handle_t *)&m->grace.timer, NULL);
	uv_close((uv_handle_t *)&m->sweep, NULL);
	store_free(m->store);
	watch_free(m->watch);
	watch_free(m->sweeping);
}

void host_stop(struct keeper *k)
{
	survey_stop(k); /* while there are stores: answers go to other hosts */
	for (unsigned i = 0; i < k->member_count; i++)
		member_stop(&k->members[i]);
	lost_stop(k);
	breaking_close(k);
}
