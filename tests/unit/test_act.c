/*
 * keeper/leases/act.c, recall.c: what is done when something happens to a lease, and in which order; leases that another host wants, and
 * leases that no process uses.
 */
#define SPACE WIRE_RECORD
#include "tests/unit/lease_fixture.h"

/* --- the order in which things are done --- */

static const struct {
	enum lease_state state;
	enum lease_cue event;
	const char *said;
	enum lease_state next;
} steps[] = {
	{LEASE_OPEN, LEASE_CUE_RECALLED, "page: closed, probe", LEASE_PROBING},
	{LEASE_PROBING, LEASE_CUE_FREE, "table: returned, release", LEASE_RELEASING},
	{LEASE_PROBING, LEASE_CUE_SHARED, "table: held, table: shared, shrink", LEASE_SHRINKING},
	{LEASE_OPEN, LEASE_CUE_EXPIRED, "page: closed, table: unsure, confirm", LEASE_UNSURE},
};

TEST_EACH(steps_in_order, ROWS(steps))
{
	lease = lease_in(steps[_i].state, 0, 10);
	happens(lease, steps[_i].event);
	check_said(steps[_i].said);
	ck_assert_int_eq(lease->state, steps[_i].next);
	ck_assert_int_eq(lease->range.mode, steps[_i].event == LEASE_CUE_SHARED ? WIRE_SHARED : WIRE_EXCLUSIVE);
}

TEST(pins_before_probe)
{
	struct waiter pinned = {.range = {WIRE_RECORD, WIRE_EXCLUSIVE, 9, 12}};

	lease = lease_in(LEASE_OPEN, 0, 10);
	waiters_add(&pinned, lock);
	pinned.pin_until_ns = clock_now_ns() + HOUR_NS;
	happens(lease, LEASE_CUE_RECALLED);
	check_said("page: closed");
	ck_assert_int_eq(lease->state, LEASE_DRAINING);
	waiters_remove(&pinned);
	queue_settle(&k);
	check_said("probe");
}

static const struct {
	enum lease_cue event;
	enum early_end early;
	const char *said;
} early[] = {
	{LEASE_CUE_FREE, EARLY_SENT, "table: returned"},
	{LEASE_CUE_STOPPED, EARLY_SENT, "table: returned"},
	{LEASE_CUE_NEEDED, EARLY_SENT, "table: returned"},
	{LEASE_CUE_SHARED, EARLY_SENT, "table: returned"},
	{LEASE_CUE_SUPERSEDED, EARLY_SENT, "table: returned"},
	{LEASE_CUE_BREAK, EARLY_SENT, "table: returned"},
	{LEASE_CUE_EXPIRED, EARLY_SENT, "table: returned"},
	{LEASE_CUE_EXPIRED, EARLY_RETURNED, "table: returned, release"},
	{LEASE_CUE_FORGOTTEN, EARLY_SENT, "table: returned, table: free"},
};

/* The probe's thread has given the lease back, and the loop hears of something else first. */
TEST_EACH(given_back_by_the_probe, ROWS(early))
{
	bool ended = early[_i].event == LEASE_CUE_FORGOTTEN;

	lease = lease_in(LEASE_WAITING, 0, 10);
	lease->probed.probe = a_probe;
	lease->recalled.level = RECALL_WAIT;
	now.early = early[_i].early;
	happens(lease, early[_i].event);
	check_said(early[_i].said);
	ck_assert_int_eq(lease->state, ended ? LEASE_ENDED : LEASE_RELEASING);
	if (ended)
		return;
	happens(lease, LEASE_CUE_UP); /* the connection broke: it is sent again, as every release */
	check_said("table: returned, release");
}

/* Nothing leads out of WAITING: the probe stays armed. */
TEST(still_armed)
{
	lease = lease_in(LEASE_WAITING, 0, 10);
	lease->probed.probe = a_probe;
	lease->recalled.level = RECALL_WAIT;
	now.early = EARLY_SENT;
	happens(lease, LEASE_CUE_RECALLED);
	happens(lease, LEASE_CUE_ASKED);
	ck_assert_int_eq(lease->state, LEASE_WAITING);
	ck_assert_int_eq(now.early, EARLY_SENT);
}

TEST(lost)
{
	struct waiter waits = {.range = {WIRE_RECORD, WIRE_EXCLUSIVE, 0, 10}};

	lease = lease_in(LEASE_OPEN, 0, 10);
	waiters_add(&waits, lock);
	happens(lease, LEASE_CUE_EXPIRED);
	said[0] = '\0';
	happens(lease, LEASE_CUE_GONE);
	check_said(
		"page: all of the lock closed, table: lost, holders end, reported, table: no slot, caller served, freed");
	waiters_remove(&waits);
}

/* The same lease may be granted twice, by message and by answer: the second time it means nothing. */
TEST(granted)
{
	struct waiter waits = {.range = {WIRE_RECORD, WIRE_EXCLUSIVE, 0, 10}};

	lease = lease_in(LEASE_ASKING, 0, 10);
	waiters_add(&waits, lock);
	waiters_join(&waits, lease);
	happens(lease, LEASE_CUE_GRANTED);
	check_said("take, table: held, caller served");
	ck_assert_int_eq(lease->state, LEASE_OPEN);
	ck_assert_ptr_null(waits.lease);
	ck_assert_int_eq(timer_ms(lease), LINGER_MS);
	ck_assert_int_gt(lease->held_at, 0);
	happens(lease, LEASE_CUE_GRANTED);
	check_said("");
	waiters_remove(&waits);
}

TEST(granted_and_cannot_be_taken)
{
	lease = lease_in(LEASE_ASKING, 0, 10);
	now.cannot_take = true;
	happens(lease, LEASE_CUE_GRANTED);
	check_said("take");
	ck_assert_int_eq(lease->state, LEASE_ASKING);
}

/* --- leases that another one covers --- */

TEST(superseded)
{
	struct lease *small = lease_in(LEASE_OPEN, 2, 5), *apart = lease_in(LEASE_OPEN, 20, 30),
		     *large = lease_in(LEASE_ASKING, 0, 10);
	happens(large, LEASE_CUE_GRANTED);
	check_said("take, table: held, page: closed, table: returned, release");
	ck_assert_int_eq(small->state, LEASE_RELEASING);
	ck_assert_int_eq(apart->state, LEASE_OPEN);
}

/* When its turn comes, the lease that covers it is open no more. */
TEST(superseded_no_more)
{
	struct lease *small = lease_in(LEASE_OPEN, 2, 5), *large = lease_in(LEASE_OPEN, 0, 10);
	queue_raise(large, LEASE_CUE_EXPIRED);
	queue_raise(small, LEASE_CUE_SUPERSEDED);
	queue_settle(&k);
	ck_assert_int_eq(small->state, LEASE_OPEN);
}

/* All parts must be open before the whole is given up. */
TEST(parts_are_not_superseded)
{
	struct lease *whole = lease_in(LEASE_OPEN, 0, 100), *part = lease_in(LEASE_ASKING, 0, 10);
	part->split.whole = whole;
	happens(part, LEASE_CUE_GRANTED);
	check_said("take, table: held");
	recall(part, WIRE_EXCLUSIVE);
	check_said("");
	ck_assert_int_eq(part->state, LEASE_OPEN);
	part->split.whole = NULL;
}

/* Another host asks whether all of it is in use. */
static void asked(struct lease *of, enum wire_mode mode)
{
	const struct store_message m = {.range = {lock->space, mode, of->range.from, of->range.to}, .ask = true};
	lease_recall(of, &m);
	queue_settle(&k);
}

static void ring(struct lease *of)
{
	uv_timer_stop(&of->timer);
	k.queue.work->timer(of);
	queue_settle(&k);
}

/* --- recalls --- */

TEST(recalled_while_young)
{
	lease = lease_in(LEASE_OPEN, 0, 10);
	lease->recalled.keep_until_ns = clock_now_ns() + HOUR_NS;
	recall(lease, WIRE_EXCLUSIVE);
	check_said("");
	ck_assert_int_eq(lease->state, LEASE_OPEN);
	ck_assert_int_gt(timer_ms(lease), HOUR_MS - 10000);
	lease->recalled.keep_until_ns = 0;
	ring(lease);
	check_said("page: closed, probe");
}

/* A lease that was given back to a host that waited, and is wanted again at once: also by another struct lock, since one that nobody
 * uses is freed. */
TEST(hot_and_kept)
{
	static const struct {
		int64_t later_ms;
		enum wire_space space;
		bool kept;
	} again[] = {{0, WIRE_RECORD, true}, {49, WIRE_RECORD, true}, {50, WIRE_RECORD, false}, {0, WIRE_FLOCK, false}};
	int64_t given_back_ns;

	lease = lease_in(LEASE_OPEN, 0, 10);
	config.lease.min_hold_ms = 50;
	recall_granted(lease);
	ck_assert_int_eq(lease->recalled.keep_until_ns, 0); /* the first time it goes at once */
	lease->recalled.level = RECALL_ASK;                 /* nobody waited for it */
	recall_given_back(lease);
	recall_granted(lease);
	ck_assert_int_eq(lease->recalled.keep_until_ns, 0);
	lease->recalled.level = RECALL_NONE;
	recall(lease, WIRE_EXCLUSIVE);
	lease->probed.probe = NULL;
	happens(lease, LEASE_CUE_FREE);
	ck_assert_int_eq(lease->state, LEASE_RELEASING);
	given_back_ns = lease->since_ns;
	for (size_t i = 0; i < sizeof(again) / sizeof(again[0]); i++) {
		lock = &file->locks[again[i].space];
		lease = lease_in(LEASE_OPEN, 20, 30);
		lease->since_ns = given_back_ns + again[i].later_ms * NS_PER_MS;
		recall_granted(lease);
		ck_assert_int_eq(lease->recalled.keep_until_ns > 0, again[i].kept);
	}
}

TEST(recalled_while_asking)
{
	struct waiter waits = {.range = {WIRE_RECORD, WIRE_EXCLUSIVE, 0, 10}};
	lease = lease_in(LEASE_ASKING, 0, 10);
	waiters_add(&waits, lock);
	recall(lease, WIRE_EXCLUSIVE);
	check_said("acquire"); /* the message that it was granted may be lost */
	happens(lease, LEASE_CUE_GRANTED);
	check_said("take, table: held, caller served, page: closed, probe"); /* the caller first */
	waiters_remove(&waits);
}

TEST(recalled_for_shared)
{
	lease = lease_in(LEASE_OPEN, 0, 10);
	lease->range.mode = WIRE_SHARED;
	recall(lease, WIRE_SHARED);
	check_said(""); /* late: it is shared already */
	ck_assert_int_eq(lease->recalled.level, RECALL_NONE);
	recall(lease, WIRE_EXCLUSIVE);
	check_said("page: closed, probe");
	ck_assert(lease->recalled.exclusive && !lease->recalled.shared);
}

TEST(recalled_and_split)
{
	const struct store_message m = {.range = {WIRE_RECORD, WIRE_EXCLUSIVE, 5, 10}};

	lease = lease_in(LEASE_OPEN, 0, 10);
	now.in_use = true;
	lease_recall(lease, &m);
	queue_settle(&k);
	check_said("begin, acquire, begin, acquire");
	ck_assert(lease->split.running && lease->next->split.whole == lease);
	ck_assert_int_eq(lease->next->range.from, 5);
	ck_assert_int_eq(lease->state, LEASE_OPEN);
	ck_assert_int_eq(lease->recalled.level, RECALL_NONE);
}

TEST(asked_and_in_use)
{
	lease = lease_in(LEASE_OPEN, 0, 10);
	asked(lease, WIRE_EXCLUSIVE);
	check_said("page: closed, probe");
	ck_assert_uint_eq(utarray_len(&lease->recalled.askers), 1);
	lease->probed.probe = NULL;
	happens(lease, LEASE_CUE_KEPT);
	check_said("table: held, asker told, in use");
	ck_assert_int_eq(lease->state, LEASE_OPEN);
	ck_assert_int_eq(lease->recalled.level, RECALL_NONE); /* it is answered */
}

/* One host asks for a shared lease, and one for an exclusive one: when it is shared, the first has what it wants. It would never be told
 * that the lease is in use, and the keeper would ask the kernel for ever. */
TEST(asked_by_two_and_shrunk)
{
	lease = lease_in(LEASE_OPEN, 0, 10);
	asked(lease, WIRE_SHARED);
	asked(lease, WIRE_EXCLUSIVE);
	lease->probed.probe = NULL;
	happens(lease, LEASE_CUE_SHARED);
	ck_assert_int_eq(lease->state, LEASE_SHRINKING);
	ck_assert_uint_eq(utarray_len(&lease->recalled.askers), 2);
	happens(lease, LEASE_CUE_SHRUNK);
	ck_assert_uint_eq(utarray_len(&lease->recalled.askers), 1);
	ck_assert(!lease->recalled.shared && lease->recalled.exclusive);
}

/* Another host waited, and somebody asks: the lock may have ended just before, and the probe's thread has not run since. */
TEST_EACH(asked_while_the_probe_waits, 2)
{
	lock = &file->locks[_i ? WIRE_RECORD : WIRE_FLOCK];
	lease = lease_in(LEASE_WAITING, 0, WIRE_EOF);
	lease->recalled.level = RECALL_WAIT;
	lease->probed.probe = a_probe;
	asked(lease, WIRE_EXCLUSIVE);
	check_said(_i ? "asker told, in use" : "stop probe");
	ck_assert_int_eq(lease->state, _i ? LEASE_WAITING : LEASE_STOPPING);
	ck_assert_uint_eq(utarray_len(&lease->recalled.askers), !_i);
}

/* A probe that waits for the end of exclusive locks does not do for one that wants all. */
TEST(recalled_while_the_probe_waits)
{
	lease = lease_in(LEASE_WAITING, 0, 10);
	lease->probed.probe = a_probe;
	recall(lease, WIRE_EXCLUSIVE);
	check_said("in use");
	now.needs_more = true;
	recall(lease, WIRE_EXCLUSIVE);
	check_said("stop probe");
	ck_assert_int_eq(lease->state, LEASE_STOPPING);
}

/* --- leases that no process uses --- */

TEST(lingers)
{
	lease = lease_in(LEASE_OPEN, 0, 10);
	now.in_use = true;
	for (int64_t ms = 2 * LINGER_MS; ms < 10 * TTL_MS; ms *= 2) {
		int64_t most = ms < 4 * TTL_MS ? ms : 4 * TTL_MS;

		ring(lease);
		check_said("holders looked at");
		ck_assert_int_eq(timer_ms(lease), most);
	}
	lease_used(lease);
	ck_assert_int_eq(timer_ms(lease), LINGER_MS);
	now.in_use = false;
	ring(lease);
	check_said("page: closed, probe");
	ck_assert_int_eq(lease->recalled.level, RECALL_LINGER);
}

TEST(lingers_while_pinned)
{
	struct waiter pinned = {.range = {WIRE_RECORD, WIRE_EXCLUSIVE, 0, 10}};
	lease = lease_in(LEASE_OPEN, 0, 10);
	waiters_add(&pinned, lock);
	pinned.pin_until_ns = clock_now_ns() + HOUR_NS;
	ring(lease);
	check_said("");
	ck_assert_int_eq(timer_ms(lease), LINGER_MS);
	waiters_remove(&pinned);
}

TEST(timer_asks_again)
{
	ring(lease_in(LEASE_ASKING, 0, 10));
	check_said("acquire");
	ring(lease_in(LEASE_RELEASING, 10, 20));
	check_said("table: returned, release");
}

/* --- the end --- */

/* A request or a probe that is under way refers to the lease. */
TEST(freed_when_nothing_refers_to_it)
{
	lease = lease_in(LEASE_RELEASING, 0, 10);
	lease->requests = 1;
	happens(lease, LEASE_CUE_RELEASED);
	check_said("table: free");
	ck_assert_int_eq(lease->state, LEASE_ENDED);
	ck_assert_uint_eq(lease->slot, TABLE_NO_SLOT);
	lease->requests = 0;
	lease->probed.probe = a_probe;
	queue_settle(&k);
	check_said("");
	lease->probed.probe = NULL;
	queue_settle(&k);
	check_said("freed, file freed");
	ck_assert_ptr_null(k.files);
}

/* The parent goes by the slots: they stay as they are. */
TEST(leaves_all)
{
	lease = lease_in(LEASE_OPEN, 0, 10);
	lease_used(lease);
	act_leave_all(&k);
	check_said("stop probe");
	ck_assert_int_eq(lease->state, LEASE_ENDED);
	ck_assert_uint_eq(lease->slot, TABLE_NO_SLOT);
	ck_assert_int_eq(timer_ms(lease), 0);
}

/* --- counts --- */

static uint64_t observed(const struct histogram *h)
{
	uint64_t all = 0;
	for (size_t i = 0; i <= HISTOGRAM_BUCKETS; i++)
		all += h->counts[i];
	return all;
}

static void check_counts(uint64_t leases, uint64_t handovers, uint64_t held, uint64_t recalled)
{
	unsigned states = 0;

	for (int i = 0; i < LEASE_STATES; i++)
		states += k.members[0].states.count[WIRE_RECORD][i];
	ck_assert_uint_eq(states, HASH_COUNT(k.leases));
	ck_assert_uint_eq(k.act.granted[WIRE_RECORD], leases);
	ck_assert_uint_eq(k.act.handovers[WIRE_RECORD], handovers);
	ck_assert_uint_eq(observed(&k.act.held[WIRE_RECORD]), held);
	ck_assert_uint_eq(observed(&k.act.recalled[WIRE_RECORD]), recalled);
	ck_assert_uint_eq(k.act.granted[WIRE_FLOCK] + k.act.handovers[WIRE_FLOCK], 0);
}

/* Given back once because another host waits, and once because no process used it for long. */
TEST(counts_of_a_life)
{
	lease = lease_in(LEASE_ASKING, 0, 10);
	happens(lease, LEASE_CUE_GRANTED);
	check_counts(1, 0, 0, 0);
	lease->granted_ns -= HOUR_NS;
	recall(lease, WIRE_EXCLUSIVE);
	recall(lease, WIRE_EXCLUSIVE); /* the store says it again */
	lease->recalled.since_ns -= 20 * 1000 * NS_PER_MS;
	happens(lease, LEASE_CUE_FREE);
	check_counts(1, 1, 1, 1);
	ck_assert_int_eq(k.act.held[WIRE_RECORD].sum_ns / 1000 / 1000 / 1000, 3600);
	ck_assert_int_eq(k.act.recalled[WIRE_RECORD].sum_ns / 1000 / 1000 / 1000, 20);
	happens(lease, LEASE_CUE_UP); /* the release is sent again */
	happens(lease, LEASE_CUE_RELEASED);
	check_counts(1, 1, 1, 1);
	lease = lease_in(LEASE_ASKING, 0, 10);
	happens(lease, LEASE_CUE_GRANTED);
	happens(lease, LEASE_CUE_LINGERED);
	happens(lease, LEASE_CUE_FREE);
	check_counts(2, 1, 2, 1);
}

/* A shrink is a hand-over, and the lease goes on. What was never granted was never held. */
TEST(counts_of_a_shrink_and_of_one_that_is_unwanted)
{
	lease = lease_in(LEASE_ASKING, 0, 10);
	recall(lease, WIRE_EXCLUSIVE);
	happens(lease, LEASE_CUE_UNWANTED);
	ck_assert_int_eq(lease->state, LEASE_RELEASING);
	check_counts(0, 0, 0, 0);
	lease = lease_in(LEASE_ASKING, 0, 10);
	happens(lease, LEASE_CUE_GRANTED);
	recall(lease, WIRE_SHARED);
	happens(lease, LEASE_CUE_SHARED);
	check_counts(1, 1, 0, 1);
	happens(lease, LEASE_CUE_SHRUNK);
	ck_assert_int_eq(lease->state, LEASE_OPEN);
	ck_assert_int_eq(lease->recalled.since_ns, 0);
	happens(lease, LEASE_CUE_EXPIRED);
	happens(lease, LEASE_CUE_GONE); /* lost */
	check_counts(1, 1, 1, 1);
}
