/* keeper/leases/act.c: what is done when something happens to a lease, and in which order. */
#include "tests/unit/act_fixture.h"

/* --- the order in which things are done --- */

TEST(page_before_probe)
{
	struct lease *lease = lease_in(LEASE_OPEN, 0, 10);

	recall(lease, WIRE_EXCLUSIVE, false);
	check_said("page: closed, probe");
	ck_assert_int_eq(lease->state, LEASE_PROBING);
}

TEST(pins_before_probe)
{
	struct lease *lease = lease_in(LEASE_OPEN, 0, 10);
	struct waiter pinned = {.range = {WIRE_RECORD, WIRE_EXCLUSIVE, 9, 12}};

	waiters_add(&pinned, lock);
	pinned.pin_until_ns = clock_now_ns() + LONG_NS;
	recall(lease, WIRE_EXCLUSIVE, false);
	check_said("page: closed");
	ck_assert_int_eq(lease->state, LEASE_DRAINING);
	waiters_remove(&pinned);
	queue_settle(&k);
	check_said("probe");
}

TEST(table_before_release)
{
	struct lease *lease = lease_in(LEASE_PROBING, 0, 10);

	lease->recalled.level = RECALL_WAIT;
	happens(lease, LEASE_CUE_FREE);
	check_said("table: returned, release");
	ck_assert_int_eq(lease->state, LEASE_RELEASING);
}

/* The probe's thread has given the lease back, and the loop hears of something else first. */
TEST_EACH(given_back_by_the_probe, 7)
{
	static const enum lease_cue events[] = {LEASE_CUE_FREE,   LEASE_CUE_STOPPED,    LEASE_CUE_NEEDED,
						LEASE_CUE_SHARED, LEASE_CUE_SUPERSEDED, LEASE_CUE_BREAK,
						LEASE_CUE_EXPIRED};
	struct lease *lease = lease_in(LEASE_WAITING, 0, 10);

	lease->probed.probe = a_probe;
	lease->recalled.level = RECALL_WAIT;
	early = EARLY_SENT;
	happens(lease, events[_i]);
	check_said("table: returned");
	ck_assert_int_eq(lease->state, LEASE_RELEASING);
	happens(lease, LEASE_CUE_UP); /* the connection broke: it is sent again, as every release */
	check_said("table: returned, release");
}

TEST(given_back_and_forgotten)
{
	struct lease *lease = lease_in(LEASE_WAITING, 0, 10);

	lease->probed.probe = a_probe;
	early = EARLY_SENT;
	happens(lease, LEASE_CUE_FORGOTTEN);
	check_said("table: returned, table: free");
	ck_assert_int_eq(lease->state, LEASE_ENDED);
}

TEST(returned_but_not_sent)
{
	struct lease *lease = lease_in(LEASE_WAITING, 0, 10);

	lease->probed.probe = a_probe;
	early = EARLY_RETURNED;
	happens(lease, LEASE_CUE_EXPIRED);
	check_said("table: returned, release");
	ck_assert_int_eq(lease->state, LEASE_RELEASING);
}

/* Nothing leads out of WAITING: the probe stays armed. */
TEST(still_armed)
{
	struct lease *lease = lease_in(LEASE_WAITING, 0, 10);

	lease->probed.probe = a_probe;
	lease->recalled.level = RECALL_WAIT;
	early = EARLY_SENT;
	recall(lease, WIRE_EXCLUSIVE, false);
	happens(lease, LEASE_CUE_ASKED);
	ck_assert_int_eq(lease->state, LEASE_WAITING);
	ck_assert_int_eq(early, EARLY_SENT);
	early = EARLY_NOT;
}

TEST(table_before_shrink)
{
	struct lease *lease = lease_in(LEASE_PROBING, 0, 10);

	happens(lease, LEASE_CUE_SHARED);
	check_said("table: held, table: shared, shrink");
	ck_assert_int_eq(lease->range.mode, WIRE_SHARED);
}

TEST(page_and_table_before_the_store_is_asked)
{
	struct lease *lease = lease_in(LEASE_OPEN, 0, 10);

	happens(lease, LEASE_CUE_EXPIRED);
	check_said("page: closed, table: unsure, confirm");
}

TEST(lost)
{
	struct lease *lease = lease_in(LEASE_OPEN, 0, 10);
	struct waiter waits = {.range = lease->range};

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
	struct lease *lease = lease_in(LEASE_ASKING, 0, 10);
	struct waiter waits = {.range = lease->range};

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
	struct lease *lease = lease_in(LEASE_ASKING, 0, 10);

	takes = false;
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
	recall(part, WIRE_EXCLUSIVE, false);
	check_said("");
	ck_assert_int_eq(part->state, LEASE_OPEN);
	part->split.whole = NULL;
}

/* --- the end --- */

/* A request or a probe that is under way refers to the lease. */
TEST(freed_when_nothing_refers_to_it)
{
	struct lease *lease = lease_in(LEASE_RELEASING, 0, 10);

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
	struct lease *lease = lease_in(LEASE_OPEN, 0, 10);

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
	ck_assert_uint_eq(k.act.granted[WIRE_RECORD], leases);
	ck_assert_uint_eq(k.act.handovers[WIRE_RECORD], handovers);
	ck_assert_uint_eq(observed(&k.act.held[WIRE_RECORD]), held);
	ck_assert_uint_eq(observed(&k.act.recalled[WIRE_RECORD]), recalled);
	ck_assert_uint_eq(k.act.granted[WIRE_FLOCK] + k.act.handovers[WIRE_FLOCK], 0);
}

/* Given back once because another host waits, and once because no process used it for long. */
TEST(counts_of_a_life)
{
	struct lease *lease = lease_in(LEASE_ASKING, 0, 10);

	happens(lease, LEASE_CUE_GRANTED);
	check_counts(1, 0, 0, 0);
	lease->granted_ns -= 3600 * 1000 * NS_PER_MS;
	recall(lease, WIRE_EXCLUSIVE, false);
	recall(lease, WIRE_EXCLUSIVE, false); /* the store says it again */
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

/* A shrink is a hand-over, and the lease goes on. */
TEST(counts_of_a_shrink)
{
	struct lease *lease = lease_in(LEASE_ASKING, 0, 10);

	happens(lease, LEASE_CUE_GRANTED);
	recall(lease, WIRE_SHARED, false);
	happens(lease, LEASE_CUE_SHARED);
	check_counts(1, 1, 0, 1);
	happens(lease, LEASE_CUE_SHRUNK);
	ck_assert_int_eq(lease->state, LEASE_OPEN);
	ck_assert_int_eq(lease->recalled.since_ns, 0);
	happens(lease, LEASE_CUE_EXPIRED);
	happens(lease, LEASE_CUE_GONE); /* lost */
	check_counts(1, 1, 1, 1);
}

/* What was never granted was never held. */
TEST(counts_of_one_that_is_unwanted)
{
	struct lease *lease = lease_in(LEASE_ASKING, 0, 10);

	recall(lease, WIRE_EXCLUSIVE, false);
	happens(lease, LEASE_CUE_UNWANTED);
	ck_assert_int_eq(lease->state, LEASE_RELEASING);
	check_counts(0, 0, 0, 0);
}

TEST(counts_of_states)
{
	struct lease *lease = lease_in(LEASE_ASKING, 0, 10);
	unsigned(*count)[LEASE_STATES] = k.members[0].states.count;

	ck_assert_uint_eq(count[WIRE_RECORD][LEASE_ASKING], 1);
	happens(lease, LEASE_CUE_GRANTED);
	ck_assert_uint_eq(count[WIRE_RECORD][LEASE_ASKING], 0);
	ck_assert_uint_eq(count[WIRE_RECORD][LEASE_OPEN], 1);
	happens(lease, LEASE_CUE_SUPERSEDED);
	lease_set_state(lease, LEASE_RELEASING);
	happens(lease, LEASE_CUE_RELEASED);
	for (int space = 0; space < WIRE_SPACES; space++)
		for (int i = 0; i < LEASE_STATES; i++)
			ck_assert_uint_eq(count[space][i], 0);
}
