/* See serve.h. */
#include "keeper/callers/serve.h"

#include <stdio.h>

#include "keeper/callers/callers.h"
#include "keeper/callers/session.h"
#include "keeper/clock.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/answers.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/requests.h"
#include "keeper/leases/room.h"
#include "keeper/leases/waiters.h"
#include "keeper/log.h"

#define AWAY_MS 1000 /* after this time a caller is told that it waits for the store */
/* So long a caller that was called back waits for the probe: other threads may not be seen out for long. Three times what it takes until
 * those that were missed are seen to again (seenout.c). */
#define PROBE_MS 60

static void waiting_timeout(struct session *s);

static void waiting_start_timer(struct session *s, int64_t ms)
{
	s->held_back = false;
	session_expect(s, ms < 1 ? 1 : ms, waiting_timeout);
}

void waiting_begin(struct session *s)
{
	s->warned = s->asked_twice = s->named_dead = s->told_waiting = s->told_away = s->held_back = false;
	s->away_ns = 0;
}

/* A caller that waits: the store seems to be there, but it may not answer. */
void waiting_for_lease(struct session *s)
{
	waiting_start_timer(s, caller_is_nonblocking(s) ? s->keeper->config->lease.probe_ms : AWAY_MS);
}

void waiting_for_room(struct session *s)
{
	const struct config_lease *config = &s->keeper->config->lease;

	if (!s->waiter.roomless || !uv_is_active((uv_handle_t *)&s->timer))
		waiting_start_timer(s, caller_is_nonblocking(s) ? config->probe_ms
				       : caller_is_patient(s)   ? AWAY_MS
								: config->store_wait_ms);
	room_wait(&s->waiter);
}

void waiting_for_probe(struct session *s)
{
	if (!s->held_back)
		waiting_start_timer(s, PROBE_MS);
	s->held_back = true;
}

void waiting_pinned(struct session *s)
{
	waiting_start_timer(s, (s->waiter.pin_until_ns - clock_now_ns()) / NS_PER_MS);
}

/* --- for the store --- */

static int64_t since_ms(int64_t then_ns)
{
	return (clock_now_ns() - then_ns) / NS_PER_MS;
}

/* If store_wait_ms is shorter than AWAY_MS, the refusal tells the caller soon enough. */
static bool is_to_be_told(const struct session *s)
{
	return !s->told_away && (caller_is_patient(s) || s->keeper->config->lease.store_wait_ms >= AWAY_MS);
}

/* Starts the timer until the caller has waited long enough to be told why, or to be refused. A caller that waited for
 * another host before need not hear of a store that is away for a moment. */
static void start_away_timer(struct session *s)
{
	int64_t left = s->keeper->config->lease.store_wait_ms - since_ms(s->away_ns);
	int64_t silent = AWAY_MS - since_ms(s->told_waiting ? s->away_ns : s->received_ns);

	if (is_to_be_told(s) && (silent < left || caller_is_patient(s)))
		waiting_start_timer(s, silent);
	else if (!caller_is_patient(s))
		waiting_start_timer(s, left);
}

void waiting_for_store(struct session *s)
{
	struct member *m = waiter_member(&s->waiter);
	char why[WIRE_REASON_BYTES];

	member_want(m);
	if (store_is_up(m->store) && !m->deadline.expired)
		return; /* a beat is under way; deadline_renewed() serves */
	if (caller_is_nonblocking(s)) {
		if (!m->tried)
			return; /* the keeper has only just started; on_up() or on_down() serves */
		deadline_trouble(m, why, sizeof(why));
		caller_refuse_for_now(s, REFUSAL_STORE, "%s", why);
		return;
	}
	if (s->away_ns)
		return;
	s->away_ns = clock_now_ns();
	start_away_timer(s);
}

void waiting_store_is_back(struct session *s)
{
	if (!s->away_ns)
		return;
	uv_timer_stop(&s->timer);
	s->away_ns = 0;
}

/* --- the timer --- */

/* The hosts that may be named dead: those that were asked and have been silent for dead_ms. Hosts that only wait are
 * left out: they were not asked, they may live, and they may have other leases under this name. Their requests are
 * granted or passed. */
static size_t find_silent(const struct lease *lease, int64_t dead_ms, struct store_blocker silent[STORE_MAX_BLOCKERS])
{
	size_t count = 0;

	for (size_t i = 0; i < lease->asking.blocker_count && count < STORE_MAX_BLOCKERS; i++) {
		if (lease->asking.blockers[i].age_ms < dead_ms)
			return 0; /* this host lives, so the lock stays taken, even if the others are dead */
		if (!lease->asking.blockers[i].waiter)
			silent[count++] = lease->asking.blockers[i];
	}
	return count;
}

/* probe_ms are over, and not every holder has answered that it uses the lock, or given it back. If one has answered, it
 * lives, and the caller cannot have the lock. One that is to be called dead is asked twice: a message may be lost. */
static void question_timeout(struct session *s)
{
	struct lease *lease = s->waiter.lease;
	struct store_blocker silent[STORE_MAX_BLOCKERS];
	size_t count;

	if (!lease)
		return;
	if (!lease->asking.queued) { /* the store itself has not answered: connect_ms bounds that */
		waiting_start_timer(s, s->keeper->config->lease.probe_ms);
		return;
	}
	count = answers_first(lease) ? 0 : find_silent(lease, s->keeper->config->lease.dead_ms, silent);
	if (!count || s->named_dead) {
		caller_would_block(s);
		return;
	}
	if (!s->asked_twice) {
		s->asked_twice = true;
		waiting_start_timer(s, s->keeper->config->lease.probe_ms);
		lease_acquire(lease, NULL, 0);
		return;
	}
	s->named_dead = true;
	log_about(LINE_HOST_DEAD, &(struct log_about){.lock = s->waiter.lock->file->name, .pid = s->peer.pid},
		  "%s: %s has been silent for more than dead_ms and does not answer: it counts as dead",
		  s->waiter.lock->file->name, silent[0].host);
	waiting_start_timer(s, s->keeper->config->lease.probe_ms);
	lease_acquire(lease, silent, count);
}

/* Tells the caller that it waits, for what `why` says and not for another host. */
static void tell_why(struct session *s, const char *why)
{
	char line[WIRE_REASON_BYTES];

	snprintf(line, sizeof(line), "%.512s: waiting: %.480s", s->waiter.lock->file->path, why);
	s->told_away = true;
	session_reply(s, WIRE_WAITING, line, -1);
}

static void tell_away(struct session *s)
{
	const struct member *m = waiter_member(&s->waiter);
	char why[WIRE_REASON_BYTES];

	if (store_is_up(m->store) && store_in_grace(m->store))
		snprintf(why, sizeof(why), "the store is in grace: see `dflock status`");
	else if (s->away_ns)
		deadline_trouble(m, why, sizeof(why));
	else
		snprintf(why, sizeof(why), "store %s is not reachable: no answer for %d ms; see `dflock doctor`",
			 store_server(m->store), AWAY_MS);
	tell_why(s, why);
}

static void room_timeout(struct session *s)
{
	char why[WIRE_REASON_BYTES];

	room_why(&s->waiter, why, sizeof(why));
	if (!caller_is_patient(s))
		caller_refuse_for_now(s, REFUSAL_ROOM, "%s", why);
	else if (!s->told_away)
		tell_why(s, why);
}

/* A blocking caller has waited for AWAY_MS, or for store_wait_ms, and the store is why. */
static void wait_timeout(struct session *s)
{
	int64_t wait_ms = s->keeper->config->lease.store_wait_ms;
	bool unanswered = s->waiter.lease && !s->waiter.lease->asking.queued;
	char why[WIRE_REASON_BYTES];

	if (s->away_ns && since_ms(s->away_ns) >= wait_ms && !caller_is_patient(s)) {
		deadline_trouble(waiter_member(&s->waiter), why, sizeof(why));
		caller_refuse_for_now(s, REFUSAL_STORE, "%s (waited %lld ms)", why, (long long)wait_ms);
		return;
	}
	if (is_to_be_told(s) && (s->away_ns || unanswered))
		tell_away(s);
	if (s->away_ns)
		start_away_timer(s);
}

static void waiting_timeout(struct session *s)
{
	struct waiter *w = &s->waiter;

	if (s->state == SESSION_PINNED) {
		int64_t left = w->pin_until_ns - clock_now_ns();

		if (left > 0) /* the loop counts from when it last looked at the clock */
			waiting_start_timer(s, left / NS_PER_MS + 1);
		else if (w->lock)
			waiters_unpinned(w->lock);
		return;
	}
	if (s->held_back) {
		s->held_back = s->called_back = false;
		queue_tell(w, WAITER_SERVE);
		return;
	}
	if (w->roomless && !s->away_ns) {
		room_timeout(s);
		return;
	}
	if (caller_is_nonblocking(s))
		question_timeout(s);
	else
		wait_timeout(s);
}
