/* store/rules: rests, in which nothing of a name and space is granted to any host. What they do to waiters: model/test_scripts.py. */
#include "tests/unit/script_calls.h"

#define HOUR "3600000"
#define REST "dflock:{0}:rests dflock:{0}:rest:flock:" NAME_OF_ONE_WORD /* key and field */

/* It lasts until then, of an hour, and began with that fence. */
static void set_rest(int64_t left_ms, uint64_t fence)
{
	int64_t sec, usec;

	ck_assert_int_eq(sscanf(command("TIME"), "%" SCNd64 " %" SCNd64, &sec, &usec), 2);
	char value[80];

	snprintf(value, sizeof(value), "%" PRId64 " " HOUR " %" PRIu64, sec * 1000 + usec / 1000 + left_ms, fence);
	command("HSET " REST " %s", value);
}

/* acquire() of a name without blanks, for command(). */
#define rested(h, t, m, ...) acquire(h, t, m, .name = NAME_OF_ONE_WORD, ##__VA_ARGS__)

static const char *give_back(char letter, const char *unused)
{
	return call_name(SCRIPT_RELEASE, NAME_OF_ONE_WORD, token(letter), unused, "A", NULL);
}

/* "REST 3599990 A ..." as "REST A ..."; how much is left is the server's business. */
static const char *resting(const char *answer)
{
	static char text[4096];
	long long left = 0;
	int skip = 0;

	if (sscanf(answer, "REST %lld%n", &left, &skip) != 1 || left <= 0 || left > 3600000)
		return answer;
	snprintf(text, sizeof(text), "REST%s", answer + skip);
	return text;
}

TEST(a_rest_outlives_its_lock)
{
	uint64_t fence = fence_of(rested("A", 'a', 'x', .rest = HOUR));
	char value[64];

	snprintf(value, sizeof(value), " " HOUR " %" PRIu64, fence);
	assert_has(command("HGET " REST), value);
	ck_assert_uint_eq(fence_of(rested("A", 'a', 'x', .rest = HOUR)), fence); /* asks again: it has it */
	assert_starts(resting(rested("B", 'b', 'x', .rest = HOUR, .ask = "1")), "REST");
	assert_starts(resting(rested("A", 'c', 'x', .rest = HOUR, .ask = "1")), "REST"); /* its own host */
	assert_starts(resting(rested("C", 'd', 's', .ask = "1")), "REST");               /* a host without the rule */
	assert_starts(resting(rested("C", 'd', 'x', RANGE("5", "6"), .ask = "2")), "REST");
	assert_heard(NULL); /* nobody is asked */
	assert_says(give_back('a', "0"), "OK");
	assert_starts(resting(rested("A", 'e', 'x', .rest = HOUR, .ask = "1")), "REST");
	assert_says(command("KEYS dflock:{0}:lock:*"), ""); /* one that only asks is not queued */
	assert_granted(rested("A", 'f', 'x', RECORD("0", NULL)));
	command("HDEL " REST);
	assert_granted(rested("B", 'b', 'x', .rest = HOUR));
	assert_has(command("HGET " REST), HOUR);
}

TEST(a_lease_that_nobody_was_told_of_takes_its_rest_along)
{
	assert_granted(rested("A", 'a', 'x', .rest = HOUR));
	assert_starts(resting(rested("B", 'b', 'x', .rest = HOUR)), "REST A ");
	assert_says(give_back('a', "1"), "OK");
	assert_heard("B: granted bbbb", NULL);
	assert_says(give_back('a', "1"), "OK"); /* once more */
	assert_says(give_back('b', "0"), "OK");
	assert_granted(rested("C", 'c', 'x', RECORD("0", NULL), .rest = HOUR));
	assert_says(give_back('c', "1"), "OK"); /* the other space */
	assert_starts(resting(rested("C", 'd', 'x', .rest = HOUR, .ask = "1")), "REST");
	/* A request that is given up began no rest. */
	assert_starts(resting(rested("C", 'e', 'x', .rest = HOUR)), "REST");
	assert_says(give_back('e', "1"), "OK");
	assert_starts(resting(rested("C", 'd', 'x', .rest = HOUR, .ask = "1")), "REST");
	/* Nor does it end another one's. */
	command("HDEL " REST);
	assert_granted(rested("A", 'f', 'x', .rest = HOUR));
	set_rest(3600000, 1);
	assert_says(give_back('f', "1"), "OK");
	assert_starts(resting(rested("C", 'd', 'x', .rest = HOUR, .ask = "1")), "REST");
}

TEST(an_operator_ends_a_rest)
{
	uint64_t fence = fence_of(rested("A", 'a', 'x', .rest = HOUR));
	const char *limit = number_text(fence), *earlier = number_text(fence - 1);

	assert_says(give_back('a', "0"), "OK");
	assert_starts(resting(rested("B", 'b', 'x', .rest = HOUR)), "REST");
	hush();
	assert_says(call_name(SCRIPT_REST, NAME_OF_ONE_WORD, "flock", earlier, NULL),
		    "GONE"); /* a younger one began it */
	assert_says(call_name(SCRIPT_REST, NAME_OF_ONE_WORD, "record", limit, NULL), "GONE");
	assert_says(call_name(SCRIPT_REST, NAME_OF_ONE_WORD, "flock", limit, NULL), "OK");
	assert_heard("B: granted bbbb", NULL); /* no timer has to come first */
	assert_says(call_name(SCRIPT_REST, NAME_OF_ONE_WORD, "flock", limit, NULL), "GONE"); /* B's own */
}

TEST(a_clock_that_was_set_back_makes_no_rest_longer_than_it_is)
{
	assert_granted(rested("A", 'a', 'x', .rest = HOUR));
	assert_says(give_back('a', "0"), "OK");
	set_rest(86400000, 1); /* as if it had been, by 23 hours */
	assert_starts(resting(rested("B", 'b', 'x', .rest = HOUR, .ask = "1")), "REST");
	set_rest(0, 1);
	assert_granted(rested("B", 'b', 'x', .rest = HOUR));
}

/* They are no keys that expire, since a server with a policy volatile-... drops such keys. */
TEST(those_that_are_over_are_removed)
{
	for (int i = 0; i < 100; i++)
		command("HSET dflock:{0}:rests dflock:{0}:rest:flock:%d %s", i, i % 2 ? "1000 1000 7" : "nonsense");
	set_rest(0, 1);
	assert_granted(rested("A", 'a', 'x', .ask = "1"));
	assert_says(command("HEXISTS " REST), "0"); /* of the name that is asked for, at once */
	assert_says(give_back('a', "0"), "OK");
	set_rest(3600000, 1);
	for (int i = 0; i < 200; i++) {
		char name[16];

		snprintf(name, sizeof(name), "rested%d", i);
		assert_granted(acquire("A", 'b', 'x', .name = name, .rest = "1"));
		assert_says(call_name(SCRIPT_RELEASE, name, token('b'), "0", "A", NULL), "OK");
	}
	ck_assert_int_lt(atoi(command("HLEN dflock:{0}:rests")), 50);
	assert_starts(resting(rested("B", 'b', 'x', .ask = "1")), "REST");
	assert_says(command("PTTL dflock:{0}:rests"), "-1");
}
