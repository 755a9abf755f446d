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
static void check_deadline(struct member *m)
{
	int64_t now = clock_now_ns();

	if (m->deadline.expired || now < m->deadline.at_ns) /* mutant: deadline-passed */
		return;
	m->deadline.expired = true;
	if (member_has_leases(m))
		log_event(LINE_LEASES_UNSURE,
			  "no beat was answered for %lld ms: leases are unsure until the store confirms them",
			  (long long)((now - m->deadline.at_ns + deadline_ttl_ns(m->keeper) * 9 / 10) / NS_PER_MS));
	queue_raise_all(m, LEASE_CUE_EXPIRED);
}

void deadline_notice(struct keeper *k)
{
	for (unsigned i = 0; i < k->member_count; i++)
		check_deadline(&k->members[i]);
	queue_settle(k);
}

int64_t deadline_sure_until(struct member *m)
{
	check_deadline(m);
	return m->deadline.expired ? 0 : m->deadline.freeze_at_ns;
}

static bool has_leases_in(const struct member *m, enum lease_state state)
{
	return m->states.count[WIRE_FLOCK][state] || m->states.count[WIRE_RECORD][state];
}

/* A host that was given up: the parent may be late, and would take the next answer for time to go on, though most leases are unsure. */
static void deadline_tell(struct member *m)
{
	if (m->deadline.given_up && has_leases_in(m, LEASE_UNSURE)) /* mutant: given-up-late */
		return;
	m->deadline.given_up = false;
	table_renewed(m->keeper->table, member_number(m), m->deadline.freeze_at_ns, m->deadline.at_ns);
}

void deadline_confirmed(struct member *m, enum store_status status)
{
	if (!m->deadline.given_up)
		return;
	if (status != STORE_OK && status != STORE_GONE && status != STORE_GIVEN_UP) /* mutant: given-up-refused */
		m->deadline.given_up = false;
	deadline_tell(m);
}

void deadline_set(struct member *m, int64_t deadline_ns)
{
	m->deadline.at_ns = deadline_ns;
	m->deadline.freeze_at_ns = deadline_ns - m->keeper->config->lease.freeze_margin_ms * NS_PER_MS;
	deadline_tell(m);
}

static bool holds_something(const struct member *m)
{
	const struct lease *lease, *next;

	HASH_ITER (hh, m->keeper->leases, lease, next)
		if (lease_member(lease) == m && lease_is_ours(lease->state))
			return true;
	return false;
}

static void on_deadline(uv_timer_t *timer)
{
	struct member *m = timer->data;
	int64_t now = clock_now_ns();
	int64_t next = now < m->deadline.freeze_at_ns ? m->deadline.freeze_at_ns : m->deadline.at_ns;
	char why[512];

	if (now >= m->deadline.at_ns) {
		check_deadline(m);
		waiters_serve_all(m->keeper);
		queue_settle(m->keeper);
		return;
	}
	if (now >= m->deadline.freeze_at_ns && holds_something(m)) {
		deadline_trouble(m, why, sizeof(why));
		log_event(LINE_LEASES_RUN_OUT, "leases cannot be renewed and run out in %lld ms: %s",
			  (long long)((m->deadline.at_ns - now) / NS_PER_MS), why);
	}
	/* The loop's clock is not the keeper's: the timer may be early. */
	uv_timer_start(timer, on_deadline, (next - now) / NS_PER_MS + 1, 0);
}

void deadline_renewed(struct member *m, int64_t sent_ns)
{
	int64_t deadline = sent_ns + deadline_ttl_ns(m->keeper) * 9 / 10; /* mutant: deadline */
	int64_t now = clock_now_ns();
	bool was_sure = deadline_sure_until(m) - now > DEADLINE_LEAST_NS; /* first the old deadline, then the new */

	if (deadline <= m->deadline.at_ns || deadline <= now || has_leases_in(m, LEASE_FORGOTTEN))
		return;
	deadline_set(m, deadline);
	m->deadline.expired = false;
	leasepage_refresh(m->keeper);
	uv_timer_start(&m->deadline.passing, on_deadline,
		       m->deadline.freeze_at_ns > now ? (m->deadline.freeze_at_ns - now) / NS_PER_MS + 1 : 1, 0);
	if (!was_sure)
		waiters_serve_all(m->keeper);
}

/* --- beats --- */

/* Another host may have the leases by now. As if the deadline had passed: the parent stops the holders at once, and each
 * lease must be confirmed. */
static void give_up_time(struct member *m, uint64_t mark)
{
	int64_t now = clock_now_ns();

	log_event(
		LINE_LEASES_UNSURE,
		"this host was given up by `dflock break --host`: its leases are unsure until the store confirms them");
	m->deadline.mark = mark;
	m->deadline.expired = true;
	m->deadline.given_up = false;
	deadline_set(m, now); /* mutant: given-up */
	m->deadline.given_up = true;
	leasepage_refresh(m->keeper);
	table_notify(m->keeper->table);
	queue_raise_all(m, LEASE_CUE_EXPIRED);
}

/* Answers to questions that were sent before that beat say the same mark once more. */
void deadline_given_up(struct member *m, uint64_t mark)
{
	if (mark != m->deadline.mark)
		give_up_time(m, mark);
	deadline_beat(m);
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
	struct member *m = arg;

	m->deadline.beat_under_way = false;
	m->deadline.beats[beat_became(reply->status)]++;
	m->deadline.keys_named = reply->key_count > 0;
	deadline_notice(m->keeper);
	keys_heard(m, reply); /* first: holders of a lost lease must not go on because the deadline has moved */
	if (reply->status == STORE_OK)
		deadline_renewed(m, m->deadline.beat_sent_ns);
	else if (reply->status == STORE_GIVEN_UP)
		deadline_given_up(m, reply->arrival);
	else if (reply->status == STORE_ERROR)
		log_event(LINE_STORE_REFUSED,
			  "the store refused a beat: %s; leases run out unless it takes one, see `dflock doctor`",
			  reply->error);
	queue_settle(m->keeper);
}

void deadline_beat(struct member *m)
{
	if (m->deadline.beat_under_way || !store_is_up(m->store))
		return;
	m->deadline.beat_under_way = true;
	m->deadline.beat_sent_ns = clock_now_ns();
	store_beat(m->store, m->deadline.mark, keys_count(m), on_beat, m);
}

static void on_beat_timer(uv_timer_t *timer)
{
	struct member *m = timer->data;

	/* The store still has a lease that an operator takes away, also if the keeper that knew it has died. */
	if (!member_has_leases(m) && !m->deadline.keys_named && !m->keeper->lost.losing) { /* mutant: beat-losing */
		uv_timer_stop(timer);                                                      /* nothing to renew */
		return;
	}
	deadline_beat(m);
}

static void start_beats(struct member *m)
{
	int64_t third = m->keeper->config->lease.ttl_ms / 3;

	uv_timer_start(&m->deadline.beat, on_beat_timer, third, third);
}

bool deadline_beats(struct member *m)
{
	bool recent = m->deadline.at_ns - clock_now_ns() > deadline_ttl_ns(m->keeper) / 2;

	if (uv_is_active((uv_handle_t *)&m->deadline.beat))
		return recent;
	start_beats(m);
	/* mutant: beat-after-pause */
	return false; /* the last beat may be long ago, and the next is due only in a third of ttl_ms */
}

static bool owes_answer(const struct member *m)
{
	const struct lease *lease, *next;

	HASH_ITER (hh, m->keeper->leases, lease, next)
		if (lease_member(lease) == m && lease_is_ours(lease->state) && utarray_len(&lease->recalled.askers))
			return true;
	return m->keeper->inquiries.all != NULL;
}

static void on_asked_timer(uv_timer_t *timer)
{
	struct member *m = timer->data;

	if (owes_answer(m))
		deadline_beat(m);
}

void deadline_asked(struct member *m)
{
	if (!uv_is_active((uv_handle_t *)&m->deadline.asked))
		uv_timer_start(&m->deadline.asked, on_asked_timer, m->keeper->config->lease.probe_ms / 3, 0);
}

/* --- for others --- */

void deadline_trouble(const struct member *m, char *out, size_t size)
{
	const char *why;

	if (!m->reached)
		m = m->first; /* which its shards wait for */
	why = store_last_error(m->store);

	snprintf(out, size, "store %s %s: %s; see `dflock doctor`", store_server(m->store), store_trouble(m->store),
		 store_is_up(m->store) ? "no beat was answered in time"
		 : *why                ? why
				       : "connecting");
}

int64_t deadline_reask_ms(const struct keeper *k)
{
	int64_t ms = k->config->lease.ttl_ms / 10;

	return ms < 50 ? 50 : ms > 3000 ? 3000 : ms;
}

void deadline_start(struct member *m)
{
	uv_timer_init(m->keeper->loop, &m->deadline.beat);
	uv_timer_init(m->keeper->loop, &m->deadline.passing);
	uv_timer_init(m->keeper->loop, &m->deadline.asked);
	m->deadline.beat.data = m->deadline.passing.data = m->deadline.asked.data = m;
	m->deadline.expired = m->deadline.at_ns <= clock_now_ns();
	if (m->deadline.expired)
		queue_raise_all(m, LEASE_CUE_EXPIRED);
	if (m->keeper->lost.losing)
		start_beats(m);
}

void deadline_stop(struct member *m)
{
	uv_close((uv_handle_t *)&m->deadline.beat, NULL);
	uv_close((uv_handle_t *)&m->deadline.passing, NULL);
	uv_close((uv_handle_t *)&m->deadline.asked, NULL);
}
