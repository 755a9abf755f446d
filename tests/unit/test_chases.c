/* Each chase is followed once in a given time, and not too many of them. */
#include "keeper/rules/chases.h"

#include <check.h>
#include <stdlib.h>

#include "tests/unit/suite.h"

#define FOR 1000

static const struct store_chase one = {.host = "a-1",
				       .token = "0123",
				       .pid = 7,
				       .youngest = 5,
				       .range = {.mode = WIRE_EXCLUSIVE, .from = 10, .to = 20}};
static struct chases chases;

static void setup(void)
{
	chases = (struct chases){0};
}

static bool follow(const struct store_chase *chase, int64_t now)
{
	return chases_follow(&chases, chase, 1, 2, now, FOR);
}

START_TEST(once)
{
	ck_assert(follow(&one, 100));
	ck_assert(!follow(&one, 100));
	ck_assert(!follow(&one, 100 + FOR - 1));
	ck_assert(follow(&one, 100 + FOR));
	ck_assert(!follow(&one, 100 + FOR));
}
END_TEST

/* What it finds depends on these, and not on how many hops it took. */
START_TEST(others)
{
	struct store_chase other = one;

	ck_assert(follow(&one, 1));
	other.hops = 9;
	ck_assert(!follow(&other, 1));
	other.youngest++;
	ck_assert(follow(&other, 1));
	other = one;
	other.pid++;
	ck_assert(follow(&other, 1));
	other = one;
	other.host[0]++;
	ck_assert(follow(&other, 1));
	other = one;
	other.token[0]++;
	ck_assert(follow(&other, 1));
	other = one;
	other.range.from++;
	ck_assert(follow(&other, 1));
	other = one;
	other.range.to++;
	ck_assert(follow(&other, 1));
	other = one;
	other.range.mode = WIRE_SHARED;
	ck_assert(follow(&other, 1));
	ck_assert(chases_follow(&chases, &one, 2, 2, 1, FOR));
	ck_assert(chases_follow(&chases, &one, 1, 3, 1, FOR));
}
END_TEST

START_TEST(a_storm)
{
	struct store_chase chase = one;
	int followed = 0;

	for (int i = 0; i < 100000; i++) {
		chase.pid = i;
		followed += follow(&chase, 1);
	}
	ck_assert_int_eq(followed, CHASES_SEEN);
	ck_assert(follow(&one, 1 + FOR));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("chases");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, once);
	tcase_add_test(tc, others);
	tcase_add_test(tc, a_storm);
	return suite_run_case("chases", tc);
}
