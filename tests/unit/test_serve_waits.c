/* keeper/callers/waiting.c, serve.c: callers that wait for a store that is away, or for the answers of other hosts. */
#include "tests/unit/serve_fixture.h"

/* --- no store --- */

TEST(store_away)
{
	up = false;
	ask_all(&one, WIRE_F_NONBLOCK);
	check_refused(&one, "/srv/x: store S: down");
	k.members[0].tried = false; /* the keeper has only just started */
	ask_all(&one, WIRE_F_NONBLOCK);
	check_waits(&one, 0);
	k.members[0].tried = true;
	serve_again();
	check_refused(&one, "/srv/x: store S: down");
	ck_assert_uint_eq(sessions.counts.refused[REFUSAL_STORE], 2);
	check_said("");
}

/* A lease that is sure needs no store. */
TEST(store_away_and_a_lease)
{
	uint64_t waits = 0;

	up = false;
	all_of(LEASE_OPEN);
	ask_all(&one, 0);
	check_pinned(&one);
	for (size_t i = 0; i <= HISTOGRAM_BUCKETS; i++)
		waits += sessions.counts.waited[WIRE_FLOCK].counts[i];
	ck_assert_uint_eq(waits, 1);
	ck_assert_uint_eq(sessions.waiting[WIRE_FLOCK], 0);
}

TEST(waits_for_the_store)
{
	up = false;
	ask_all(&one, 0);
	ck_assert_int_eq(verdict(&one), 0);
	ck_assert_int_gt((int64_t)uv_timer_get_due_in(&one.s.timer), 900);
	one.s.received_ns -= 1000 * NS_PER_MS;
	one.s.away_ns -= 1000 * NS_PER_MS;
	ring(&one);
	ck_assert_int_eq(verdict(&one), WIRE_WAITING);
	ck_assert_str_eq(one.reply.reason, "/srv/x: waiting: store S: down");
	ck_assert_int_gt((int64_t)uv_timer_get_due_in(&one.s.timer), STORE_WAIT_MS - 1100);
	one.s.away_ns -= STORE_WAIT_MS * NS_PER_MS;
	ring(&one);
	check_refused(&one, "/srv/x: store S: down (waited 9000 ms)");
}

TEST(store_comes_back)
{
	up = false;
	ask_all(&one, 0);
	ck_assert_int_ne(one.s.away_ns, 0);
	up = true;
	serve_again();
	check_said("begin, acquire");
	ck_assert_int_eq(one.s.away_ns, 0);
	check_waits(&one, 1000);
}

/* --- answers of other hosts --- */

TEST(in_use)
{
	ask_all(&one, WIRE_F_NONBLOCK);
	ask_all(&two, 0);
	told(&two, WAITER_IN_USE);
	check_waits(&two, 1000);
	ck_assert_uint_eq(sessions.waiting[WIRE_FLOCK], 2);
	told(&one, WAITER_IN_USE);
	ck_assert_int_eq(verdict(&one), WIRE_WOULD_BLOCK);
	ck_assert_uint_eq(sessions.waiting[WIRE_FLOCK], 1);
	ck_assert_uint_eq(sessions.counts.busy[WIRE_FLOCK], 1);
	ck_assert_uint_eq(sessions.counts.abandoned, 0);
}

/* A test of records wants the first lock in the way, of all hosts. */
TEST(test_waits_for_all_answers)
{
	lock = &file->locks[WIRE_RECORD];
	ask(&one, WIRE_TEST, WIRE_EXCLUSIVE, WIRE_F_NONBLOCK, 0, 10);
	told(&one, WAITER_IN_USE);
	check_waits(&one, PROBE_MS);
	complete = true;
	in_the_way = &(struct store_range){WIRE_RECORD, WIRE_SHARED, 3, 5};
	told(&one, WAITER_IN_USE);
	ck_assert_int_eq(verdict(&one), WIRE_WOULD_BLOCK);
	ck_assert(one.reply.mode == WIRE_SHARED && one.reply.from == 3 && one.reply.to == 5);
	ck_assert_uint_eq(sessions.counts.busy[WIRE_RECORD], 0); /* a test is no lock call */
}

static void put_blockers(struct lease *of, int64_t age_ms, int64_t other_age_ms, bool other_waits)
{
	of->asking.blockers = calloc(2, sizeof(*of->asking.blockers));
	of->asking.blocker_count = 2;
	of->asking.blockers[0] = (struct store_blocker){.host = "a", .age_ms = age_ms};
	of->asking.blockers[1] = (struct store_blocker){.host = "b", .age_ms = other_age_ms, .waiter = other_waits};
	of->asking.queued = true;
}

TEST(no_answer)
{
	ask_all(&one, WIRE_F_NONBLOCK);
	ring(&one); /* the store itself has not answered */
	check_waits(&one, PROBE_MS);
	put_blockers(one.s.waiter.lease, DEAD_MS, DEAD_MS - 1, false);
	ring(&one); /* b lives, and has it */
	ck_assert_int_eq(verdict(&one), WIRE_WOULD_BLOCK);
}

TEST_EACH(silent_host, 2)
{
	ask_all(&one, WIRE_F_NONBLOCK);
	said[0] = '\0';
	put_blockers(one.s.waiter.lease, DEAD_MS, DEAD_MS, _i);
	ring(&one); /* asks again: a message may be lost */
	check_said("acquire");
	ck_assert_uint_eq(named_dead, 0);
	check_waits(&one, PROBE_MS);
	said[0] = '\0';
	ring(&one);
	check_said("acquire");
	ck_assert_uint_eq(named_dead, _i ? 1 : 2); /* one that waits was not asked */
	ck_assert_str_eq(dead_host, "a");
	check_waits(&one, PROBE_MS);
	ring(&one); /* once */
	ck_assert_int_eq(verdict(&one), WIRE_WOULD_BLOCK);
}

/* It has said what is in the way: so it lives. */
TEST(silent_host_that_answered)
{
	ask_all(&one, WIRE_F_NONBLOCK);
	said[0] = '\0';
	put_blockers(one.s.waiter.lease, DEAD_MS, DEAD_MS, false);
	in_the_way = &(struct store_range){WIRE_FLOCK, WIRE_EXCLUSIVE, 0, WIRE_EOF};
	ring(&one);
	check_said("unwanted");
	ck_assert_int_eq(verdict(&one), WIRE_WOULD_BLOCK);
}
