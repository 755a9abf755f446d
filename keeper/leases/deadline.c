/* See deadline.h. */
#include "keeper/leases/deadline.h"

#include <stdio.h>
#include <string.h>

#include "keeper/leases/keeper.h"
#include "keeper/clock.h"
#include "keeper/guard/table.h"
#include "keeper/leases/keys.h"
#include "keeper/leases/pagefile.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/waiters.h"
#include "keeper/log.h"

/* --- the deadline --- */

int64_t deadline_ttl_ns(const struct keeper *k)
{
	return k->config->lease.ttl_ms * NS_PER_MS;
}

/* Past the deadline no lease is sure, whatever the store says next: each must be confirmed. */
static void check_deadline(struct keeper *k)
{
	int64_t now = clock_now_ns();

	if (k->deadline.expired || now < k->deadline.at_ns) /* mutant: deadline-passed */
		return;
	k->deadline.expired = true;
	if (HASH_COUNT(k->leases))
		log_event(LINE_LEASES_UNSURE,
			  "no beat was answered for %lld ms: leases are unsure until the store confirms them",
			  (long long)((now - k->deadline.at_ns + deadline_ttl_ns(k) * 9 / 10) / NS_PER_MS));
	queue_raise_all(k, LEASE_CUE_EXPIRED);
}

void deadline_notice(struct keeper *k)
{
	check_deadline(k);
	queue_settle(k);
}

int64_t deadline_sure_until(struct keeper *k)
{
	check_deadline(k);
	return k->deadline.expired ? 0 : k->deadline.freeze_at_ns;
}

void deadline_set(struct keeper *k, int64_t deadline_ns)
{
	k->deadline.at_ns = deadline_ns;
	k->deadline.freeze_at_ns = deadline_ns - k->config->lease.freeze_margin_ms * NS_PER_MS;
	table_renewed(k->table, k->deadline.freeze_at_ns, deadline_ns);
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
	int64_t next = now < k->deadline.freeze_at_ns ? k->deadline.freeze_at_ns : k->deadline.at_ns;
	char why[512];

	if (now >= k->deadline.at_ns) {
		check_deadline(k);
		waiters_serve_all(k);
		queue_settle(k);
		return;
	}
	if (now >= k->deadline.freeze_at_ns && holds_something(k)) {
		deadline_trouble(k, why, sizeof(why));
		log_event(LINE_LEASES_RUN_OUT, "leases cannot be renewed and run out in %lld ms: %s",
			  (long long)((k->deadline.at_ns - now) / NS_PER_MS), why);
	}
	/* The loop's clock is not the keeper's: the timer may be early. */
	uv_timer_start(timer, on_deadline, (next - now) / NS_PER_MS + 1, 0);
}

static bool is_forgotten(const struct keeper *k)
{
	const struct lease_states *states = &k->lease_states;

	return states->count[WIRE_FLOCK][LEASE_FORGOTTEN] || states->count[WIRE_RECORD][LEASE_FORGOTTEN];
}

void deadline_renewed(struct keeper *k, int64_t sent_ns)
{
	int64_t deadline = sent_ns + deadline_ttl_ns(k) * 9 / 10; /* mutant: deadline */
	int64_t now = clock_now_ns();
	bool was_sure = deadline_sure_until(k) - now > DEADLINE_LEAST_NS; /* first the old deadline, then the new */

	if (deadline <= k->deadline.at_ns || deadline <= now || is_forgotten(k))
		return;
	deadline_set(k, deadline);
	k->deadline.expired = false;
	leasepage_refresh(k, deadline_sure_until(k));
	uv_timer_start(&k->deadline.passing, on_deadline,
		       k->deadline.freeze_at_ns > now ? (k->deadline.freeze_at_ns - now) / NS_PER_MS + 1 : 1, 0);
	if (!was_sure)
		waiters_serve_all(k);
}

/* --- beats --- */

/* Another host may have the leases by now. As if the deadline had passed: the parent stops the holders at once, and each
 * lease must be confirmed. */
static void give_up_time(struct keeper *k, uint64_t mark)
{
	int64_t now = clock_now_ns();

	log_event(
		LINE_LEASES_UNSURE,
		"this host was given up by `dflock break --host`: its leases are unsure until the store confirms them");
	k->deadline.mark = mark;
	k->deadline.expired = true;
	deadline_set(k, now); /* mutant: given-up */
	leasepage_refresh(k, 0);
	table_notify(k->table);
	queue_raise_all(k, LEASE_CUE_EXPIRED);
}

/* Answers to questions that were sent before that beat say the same mark once more. */
void deadline_given_up(struct keeper *k, uint64_t mark)
{
	if (mark != k->deadline.mark)
		give_up_time(k, mark);
	deadline_beat(k);
}

static enum deadline_beat beat_became(enum store_status status)
{
	switch (status) {
	case STORE_OK:
		return DEADLINE_BEAT_COUNTED;
	case STORE_GIVEN_UP:
		return DEADLINE_BEAT_GIVEN_UP;
	case STORE_UNREACHABLE:
		return DEADLINE_BEAT_UNANSWERED;
	default:
		return DEADLINE_BEAT_REFUSED;
	}
}

static void on_beat(void *arg, const struct store_reply *reply)
{
	struct keeper *k = arg;

	k->deadline.beat_under_way = false;
	k->deadline.beats[beat_became(reply->status)]++;
	k->deadline.keys_named = reply->key_count > 0;
	deadline_notice(k);
	keys_heard(k, reply); /* first: holders of a lost lease must not go on because the deadline has moved */
	if (reply->status == STORE_OK)
		deadline_renewed(k, k->deadline.beat_sent_ns);
	else if (reply->status == STORE_GIVEN_UP)
		deadline_given_up(k, reply->arrival);
	else if (reply->status == STORE_ERROR)
		log_event(LINE_STORE_REFUSED,
			  "the store refused a beat: %s; leases run out unless it takes one, see `dflock doctor`",
			  reply->error);
	queue_settle(k);
}

void deadline_beat(struct keeper *k)
{
	if (k->deadline.beat_under_way || !store_is_up(k->store))
		return;
	k->deadline.beat_under_way = true;
	k->deadline.beat_sent_ns = clock_now_ns();
	store_beat(k->store, k->deadline.mark, keys_count(k), on_beat, k);
}

static void on_beat_timer(uv_timer_t *timer)
{
	struct keeper *k = timer->data;

	/* The store still has a lease that an operator takes away, also if the keeper that knew it has died. */
	if (!k->leases && !k->deadline.keys_named && !k->lost.losing) { /* mutant: beat-losing */
		uv_timer_stop(timer);                                   /* nothing to renew */
		return;
	}
	deadline_beat(k);
}

static void start_beats(struct keeper *k)
{
	int64_t third = k->config->lease.ttl_ms / 3;

	uv_timer_start(&k->deadline.beat, on_beat_timer, third, third);
}

bool deadline_beats(struct keeper *k)
{
	bool recent = k->deadline.at_ns - clock_now_ns() > deadline_ttl_ns(k) / 2;

	if (uv_is_active((uv_handle_t *)&k->deadline.beat))
		return recent;
	start_beats(k);
	/* mutant: beat-after-pause */
	return false; /* the last beat may be long ago, and the next is due only in a third of ttl_ms */
}

static bool owes_answer(const struct keeper *k)
{
	const struct lease *lease, *next;

	HASH_ITER (hh, k->leases, lease, next)
		if (lease_is_ours(lease->state) && lease->recalled.asker_count)
			return true;
	return k->inquiries.all != NULL;
}

static void on_asked_timer(uv_timer_t *timer)
{
	struct keeper *k = timer->data;

	if (owes_answer(k))
		deadline_beat(k);
}

void deadline_asked(struct keeper *k)
{
	if (!uv_is_active((uv_handle_t *)&k->deadline.asked))
		uv_timer_start(&k->deadline.asked, on_asked_timer, k->config->lease.probe_ms / 3, 0);
}

/* --- for others --- */

void deadline_trouble(const struct keeper *k, char *out, size_t size)
{
	const char *why = store_last_error(k->store);

	snprintf(out, size, "store %s %s: %s; see `dflock doctor`", store_server(k->store), store_trouble(k->store),
		 store_is_up(k->store) ? "no beat was answered in time"
		 : *why                ? why
				       : "connecting");
}

int64_t deadline_reask_ms(const struct keeper *k)
{
	int64_t ms = k->config->lease.ttl_ms / 10;

	return ms < 50 ? 50 : ms > 3000 ? 3000 : ms;
}

void deadline_start(struct keeper *k)
{
	uv_timer_init(k->loop, &k->deadline.beat);
	uv_timer_init(k->loop, &k->deadline.passing);
	uv_timer_init(k->loop, &k->deadline.asked);
	k->deadline.beat.data = k->deadline.passing.data = k->deadline.asked.data = k;
	k->deadline.expired = k->deadline.at_ns <= clock_now_ns();
	if (k->deadline.expired)
		queue_raise_all(k, LEASE_CUE_EXPIRED);
	if (k->lost.losing)
		start_beats(k);
}

void deadline_stop(struct keeper *k)
{
	uv_close((uv_handle_t *)&k->deadline.beat, NULL);
	uv_close((uv_handle_t *)&k->deadline.passing, NULL);
	uv_close((uv_handle_t *)&k->deadline.asked, NULL);
}
