/* keeper/leases/act.c: what is done when something happens to a lease, and in which order. */
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
