/* store/discover.c: which sentinel is asked, and when its answer counts. */
#include <check.h>
#include <stdlib.h>

#include "store/internal.h"
#include "tests/unit/suite.h"

START_TEST(each_round_begins_with_the_next_one)
{
	struct round round = {.count = 3};

	round_begin(&round);
	ck_assert_uint_eq(round_next(&round), 0);
	ck_assert(round_was_first(&round));
	ck_assert_int_eq(round_found(&round, true), ROUND_BELIEVE);
	round_begin(&round);
	ck_assert_uint_eq(round_next(&round), 1);
	ck_assert(!round_was_first(&round));
	ck_assert_uint_eq(round_next(&round), 2);
	ck_assert_uint_eq(round_next(&round), 0);
	ck_assert(round_was_first(&round));
}
END_TEST

START_TEST(down_until_one_names_a_master)
{
	struct round round = {.count = 3};

	round_begin(&round);
	for (int i = 0; i < 2; i++) {
		round_next(&round);
		ck_assert_int_eq(round_found(&round, false), ROUND_ASK);
	}
	round_next(&round);
	ck_assert_int_eq(round_found(&round, false), ROUND_OVER);
}
END_TEST

START_TEST(a_single_one)
{
	struct round round = {.count = 1};

	round_begin(&round);
	ck_assert_uint_eq(round_next(&round), 0);
	ck_assert(round_was_first(&round));
	ck_assert_int_eq(round_found(&round, false), ROUND_OVER);
	round_begin(&round);
	ck_assert_uint_eq(round_next(&round), 0);
	ck_assert_int_eq(round_checked(&round, true, false), ROUND_BELIEVE);
}
END_TEST

/* What each sentinel says while the store is up: h: the master is here, e: elsewhere, n: nothing; and what follows. */
static const struct {
	size_t count;
	const char *answers;
	enum round_verdict last;
} checks[] = {
	{3, "h", ROUND_OVER},    {3, "n", ROUND_OVER}, /* no doubt, no further question */
	{3, "eh", ROUND_OVER},   {3, "ee", ROUND_BELIEVE},    {3, "ene", ROUND_BELIEVE},
	{3, "enn", ROUND_OVER},  {4, "eee", ROUND_BELIEVE}, /* two of four are not most */
	{4, "eenn", ROUND_OVER}, {5, "enene", ROUND_BELIEVE},
};

START_TEST(up_until_most_name_another)
{
	struct round round = {.count = checks[_i].count};
	enum round_verdict verdict = ROUND_ASK;

	round_begin(&round);
	for (const char *c = checks[_i].answers; *c; c++) {
		ck_assert_int_eq(verdict, ROUND_ASK);
		round_next(&round);
		verdict = round_checked(&round, *c != 'n', *c == 'h');
	}
	ck_assert_int_eq(verdict, checks[_i].last);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("round");

	tcase_add_test(t, each_round_begins_with_the_next_one);
	tcase_add_test(t, down_until_one_names_a_master);
	tcase_add_test(t, a_single_one);
	tcase_add_loop_test(t, up_until_most_name_another, 0, sizeof(checks) / sizeof(*checks));
	return suite_run_case("round", t);
}
