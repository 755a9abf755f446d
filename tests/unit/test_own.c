/* The list of a caller's earlier locks in a range, and the stretches between them. */

/* The shim is no part of the library that unit tests are linked with. */
#include "shim/intent.c"
#include "tests/unit/suite.h"

static struct own list;

static void setup(void) { own_init(&list, 100, 199); }
static void teardown(void) { own_release(&list); }
FIXTURE(setup, teardown)

struct expected {
	int64_t first, last;
	int had;
};

static void check_stretches(const struct expected *expected, size_t count)
{
	struct stretch s = {0};
	size_t i = 0;

	for (; own_next(&list, &s); i++) {
		ck_assert(i < count);
		ck_assert(s.first == expected[i].first && s.last == expected[i].last);
		ck_assert_int_eq(s.had, expected[i].had);
	}
	ck_assert_uint_eq(i, count);
}

TEST(nothing)
{
	ck_assert_int_eq(own_add(&list, 0, 200, 200), 1);
	ck_assert(!list.exclusive);
	check_stretches((struct expected[]){{100, 199, EARLIER_NONE}}, 1);
}

TEST(cut_to_the_range)
{
	ck_assert_int_eq(own_add(&list, WIRE_SHARED, 0, 110), 0);
	ck_assert_int_eq(list.next_from, 110);
	ck_assert_int_eq(own_add(&list, WIRE_EXCLUSIVE, 110, 111), 0);
	ck_assert_int_eq(own_add(&list, WIRE_SHARED, 150, WIRE_EOF), 1);
	ck_assert(list.exclusive);
	check_stretches((struct expected[]){{100, 109, WIRE_SHARED},
					    {110, 110, WIRE_EXCLUSIVE},
					    {111, 149, EARLIER_NONE},
					    {150, 199, WIRE_SHARED}},
			4);
}

TEST(beyond_the_range)
{
	ck_assert_int_eq(own_add(&list, WIRE_SHARED, 120, 130), 0);
	ck_assert_int_eq(own_add(&list, WIRE_EXCLUSIVE, 200, 300), 1);
	ck_assert(!list.exclusive);
	check_stretches(
		(struct expected[]){{100, 119, EARLIER_NONE}, {120, 129, WIRE_SHARED}, {130, 199, EARLIER_NONE}}, 3);
}

TEST(all_of_it)
{
	ck_assert_int_eq(own_add(&list, WIRE_EXCLUSIVE, 0, WIRE_EOF), 1);
	check_stretches((struct expected[]){{100, 199, WIRE_EXCLUSIVE}}, 1);
}

TEST(to_the_largest_offset)
{
	own_init(&list, 0, INT64_MAX);
	ck_assert_int_eq(own_add(&list, WIRE_SHARED, 0, 1), 0);
	ck_assert_int_eq(own_add(&list, WIRE_EXCLUSIVE, 10, WIRE_EOF), 1);
	check_stretches((struct expected[]){{0, 0, WIRE_SHARED}, {1, 9, EARLIER_NONE}, {10, INT64_MAX, WIRE_EXCLUSIVE}},
			3);
}

TEST(impossible_answers)
{
	ck_assert_int_eq(own_add(&list, WIRE_MODES, 100, 110), -EPROTO);
	ck_assert_int_eq(own_add(&list, 0, -1, 110), -EPROTO);
	ck_assert_int_eq(own_add(&list, 0, 110, 109), -EPROTO);
	/* Ends before the place that was asked from. */
	ck_assert_int_eq(own_add(&list, 0, 50, 100), -EPROTO);
	ck_assert_int_eq(own_add(&list, 0, 50, 120), 0);
	ck_assert_int_eq(own_add(&list, 0, 100, 120), -EPROTO);
	/* Overlaps the one before. */
	ck_assert_int_eq(own_add(&list, 0, 119, 130), -EPROTO);
	ck_assert_uint_eq(list.count, 1);
}

TEST(many)
{
	struct stretch s = {0};
	int64_t at = 0;

	own_init(&list, 0, INT64_MAX);
	for (; at < EARLIER_MAX; at++)
		ck_assert_int_eq(own_add(&list, at % 2, at * 2, at * 2 + 1), 0);
	ck_assert_int_eq(own_add(&list, 0, at * 2, at * 2 + 1), -E2BIG);
	for (at = 0; at < EARLIER_MAX * 2; at++) {
		ck_assert(own_next(&list, &s));
		ck_assert(s.first == at);
		ck_assert_int_eq(s.had, at % 2 ? EARLIER_NONE : at / 2 % 2);
	}
	ck_assert(!own_next(&list, &s));
	own_release(&list);
	ck_assert(list.count == 0 && !list.many && !list.exclusive);
	check_stretches((struct expected[]){{0, INT64_MAX, EARLIER_NONE}}, 1);
}
