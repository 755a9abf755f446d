/* store/redis/discover.c: which sentinel is asked, and when its answer counts. */
#include "store/redis/redis.h"
#include "tests/unit/suite.h"

/* What each of `count` sentinels says: h: the master is here, e: elsewhere, n: nothing; and what follows. */
static const struct {
	bool up;
	size_t count;
	const char *answers;
	enum round_verdict last;
} checks[] = {
	{false, 3, "nne", ROUND_BELIEVE}, /* the first one that names a master */
	{false, 3, "nnn", ROUND_OVER},    {false, 1, "n", ROUND_OVER},
	{true, 1, "e", ROUND_BELIEVE},    {true, 3, "h", ROUND_OVER}, /* no doubt, no further question */
	{true, 3, "n", ROUND_OVER},       {true, 3, "eh", ROUND_OVER},
	{true, 3, "ee", ROUND_BELIEVE},   {true, 3, "ene", ROUND_BELIEVE},
	{true, 3, "enn", ROUND_OVER},     {true, 4, "eee", ROUND_BELIEVE}, /* two of four are not most */
	{true, 4, "eenn", ROUND_OVER},    {true, 5, "enene", ROUND_BELIEVE},
};

TEST_EACH(until_it_is_over, ROWS(checks))
{
	struct round round = {.asked = 0};
	enum round_verdict verdict = ROUND_ASK;

	for (const char *c = checks[_i].answers; *c; c++) {
		ck_assert_int_eq(verdict, ROUND_ASK);
		round.asked++;
		verdict = round_heard(&round, checks[_i].count, checks[_i].up, *c != 'n', *c == 'h');
	}
	ck_assert_int_eq(verdict, checks[_i].last);
}
