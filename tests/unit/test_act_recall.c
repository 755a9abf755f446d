/* keeper/leases/recall.c, act.c: leases that another host wants, and leases that nobody uses. */
#define SPACE WIRE_RECORD
#include "tests/unit/lease_fixture.h"

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
	ck_assert_uint_eq(lease->recalled.asker_count, 1);
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
	ck_assert_uint_eq(lease->recalled.asker_count, 2);
	happens(lease, LEASE_CUE_SHRUNK);
	ck_assert_uint_eq(lease->recalled.asker_count, 1);
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
	ck_assert_uint_eq(lease->recalled.asker_count, !_i);
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

/* --- unused --- */

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
