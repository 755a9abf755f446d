/* keeper/guard/supervise.c: which signals reach the keeper, how often, and what they mean. */
#include <poll.h>

#include "tests/unit/supervise_fixture.h"

static int end_on_term(const struct supervised *keeper, int number)
{
	shared->go = true;
	await_term();
	return keeper->table->head->ending == 1 ? KEEPER_EXIT_IDLE : WRONG;
}

FIXTURE(begin, end)

TEST(term_is_passed_on)
{
	start(end_on_term);
	wait_until(shared->go);
	kill(parent, SIGTERM);
	ck_assert_int_eq(wait_for_end(), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->terms, 1);
}

/* It waits for locks to end, and dies: after the first signal another one is started, after the second none is. */
static int die_after_term(const struct supervised *keeper, int number)
{
	shared->go = true;
	await_term();
	raise(SIGKILL);
	return WRONG;
}

TEST(dies_while_it_ends)
{
	start(die_after_term);
	wait_until(shared->go);
	kill(parent, SIGTERM);
	wait_until(shared->runs == 2);
	poll(NULL, 0, KEEPER_AGAIN_MS + 100); /* else it is the same signal */
	kill(parent, SIGTERM);
	ck_assert_int_eq(wait_for_end(), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 2);
}

/* A program that signals both parent and keeper means it once. */
static int die_after_two_terms(const struct supervised *keeper, int number)
{
	if (number > 0)
		return KEEPER_EXIT_IDLE;
	shared->go = true;
	await_term();
	shared->go = false;
	await_term();
	raise(SIGKILL);
	return WRONG;
}

TEST(two_signals_at_once_are_one)
{
	int64_t first_ns;
	bool at_once;

	start(die_after_two_terms);
	wait_until(shared->go);
	first_ns = clock_now_ns();
	kill(parent, SIGTERM);
	wait_until(!shared->go);
	kill(parent, SIGTERM);
	wait_until(shared->terms == 2);
	at_once = clock_now_ns() - first_ns < KEEPER_AGAIN_MS * NS_PER_MS; /* not on a machine that is very busy */
	ck_assert_int_eq(wait_for_end(), KEEPER_EXIT_IDLE);
	if (at_once)
		ck_assert_int_eq(shared->runs, 2);
}

static int make_way(const struct supervised *keeper, int number)
{
	shared->go = true;
	await_term();
	return keeper->table->head->ending == TABLE_TOLD_TO_MAKE_WAY ? KEEPER_EXIT_IDLE : WRONG;
}

TEST(quit_means_to_make_way)
{
	start(make_way);
	wait_until(shared->go);
	kill(parent, SIGQUIT);
	ck_assert_int_eq(wait_for_end(), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 1);
}

/* Also while it waits for locks to end. */
static int make_way_after_term(const struct supervised *keeper, int number)
{
	shared->go = true;
	await_term();
	shared->go = false;
	await_term();
	return keeper->table->head->ending == TABLE_TOLD_TO_MAKE_WAY ? KEEPER_EXIT_IDLE : WRONG;
}

TEST(quit_after_term)
{
	start(make_way_after_term);
	wait_until(shared->go);
	kill(parent, SIGTERM);
	wait_until(!shared->go);
	kill(parent, SIGQUIT);
	ck_assert_int_eq(wait_for_end(), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 1);
}

/* The parent waits for 1.5 s before it starts the sixth keeper. */
static int die_five_times(const struct supervised *keeper, int number)
{
	if (number == 5)
		return keeper->table->head->ending == TABLE_TOLD_TO_END ? KEEPER_EXIT_IDLE : WRONG;
	raise(SIGKILL);
	return WRONG;
}

static int64_t start_in_a_pause(void)
{
	start(die_five_times);
	wait_until(shared->runs == 5 && shared->pids[4] && kill(shared->pids[4], 0) != 0);
	return clock_now_ns();
}

TEST(term_between_two_keepers)
{
	int64_t from_ns = start_in_a_pause();

	kill(parent, SIGTERM);
	ck_assert_int_eq(wait_for_end(), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 6);
	ck_assert_int_lt(clock_now_ns() - from_ns, 1000 * NS_PER_MS);
}

TEST(quit_between_two_keepers)
{
	start_in_a_pause();
	kill(parent, SIGQUIT);
	ck_assert_int_eq(wait_for_end(), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 5);
}
