/* store/rules: rests, in which nothing of a name and space is granted to any host. */
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
	ck_assert_ptr_nonnull(strstr(command("HGET " REST), value));
	ck_assert_uint_eq(fence_of(rested("A", 'a', 'x', .rest = HOUR)), fence); /* asks again: it has it */
	assert_starts(resting(rested("B", 'b', 'x', .rest = HOUR, .ask = "1")), "REST");
	assert_starts(resting(rested("A", 'c', 'x', .rest = HOUR, .ask = "1")), "REST"); /* its own host */
	assert_starts(resting(rested("C", 'd', 's', .ask = "1")), "REST");               /* a host without the rule */
	assert_starts(resting(rested("C", 'd', 'x', RANGE("5", "6"), .ask = "2")), "REST");
	assert_says(heard(), ""); /* nobody is asked */
	assert_says(give_back('a', "0"), "OK");
	assert_starts(resting(rested("A", 'e', 'x', .rest = HOUR, .ask = "1")), "REST");
	assert_says(command("KEYS dflock:{0}:lock:*"), ""); /* one that only asks is not queued */
	assert_granted(rested("A", 'f', 'x', RECORD("0", NULL)));
	command("HDEL " REST);
	assert_granted(rested("B", 'b', 'x', .rest = HOUR));
	ck_assert_ptr_nonnull(strstr(command("HGET " REST), HOUR));
}

TEST(who_waits_for_a_rest_keeps_its_place)
{
	assert_granted(rested("A", 'a', 'x', .rest = HOUR));
	assert_starts(resting(rested("B", 'b', 'x', .rest = HOUR)), "REST A ");
	ck_assert_ptr_nonnull(strstr(resting(rested("A", 'c', 'x', .rest = HOUR)), " waits"));
	ck_assert_ptr_nonnull(strstr(resting(rested("D", 'd', 's')), " waits"));
	assert_says(give_back('a', "0"), "OK");
	assert_says(heard(), ""); /* not handed over */
	assert_starts(resting(rested("A", 'c', 'x', .rest = HOUR)), "REST B ");
	command("HDEL " REST);
	/* The second one asks first: the first one is granted, which begins the next rest. */
	assert_starts(rested("A", 'c', 'x', .rest = HOUR), "WAIT B ");
	assert_starts(heard(), "B: granted bbbb");
	assert_starts(resting(rested("A", 'c', 'x', .rest = HOUR)), "REST B ");
	command("HDEL " REST);
	while (*heard())
		;
	assert_says(give_back('b', "0"), "OK"); /* nothing rests: handed over, and no further than to the next */
	assert_starts(heard(), "A: granted cccc");
	ck_assert_ptr_nonnull(strstr(command("HGET " REST), HOUR));
	assert_starts(heard(), "A: recall cccccccccccccccccccccccccccccccc D dddd");
	assert_says(heard(), "");
}

/* Each is for one lock of one caller: the store keeps apart what a host has and what it asks for. */
TEST(leases_of_one_host_that_rest_exclude_each_other)
{
	assert_granted(rested("A", 'a', 'x'));
	assert_starts(rested("A", 'b', 'x', .rest = HOUR), "WAIT A ");
	assert_starts(heard(), "A: recall aaaa");
	assert_says(give_back('a', "0"), "OK");
	assert_starts(heard(), "A: granted bbbb");
	command("HDEL " REST);
	assert_starts(rested("A", 'c', 'x', .rest = HOUR, .ask = "1"), "WAIT A ");
	assert_starts(heard(), "A: recall bbbb");
	assert_starts(rested("A", 'd', 's'), "WAIT A "); /* a test, or a caller of before the rule */
	assert_says(give_back('b', "0"), "OK");
	assert_starts(heard(), "A: recall bbbb");
	assert_starts(heard(), "A: granted cccc");
	ck_assert_ptr_nonnull(strstr(command("HGET " REST), HOUR));
}

TEST(a_lease_that_nobody_was_told_of_takes_its_rest_along)
{
	assert_granted(rested("A", 'a', 'x', .rest = HOUR));
	assert_starts(resting(rested("B", 'b', 'x', .rest = HOUR)), "REST A ");
	assert_says(give_back('a', "1"), "OK");
	assert_starts(heard(), "B: granted bbbb");
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
	char limit[32], earlier[32];

	snprintf(limit, sizeof(limit), "%" PRIu64, fence);
	snprintf(earlier, sizeof(earlier), "%" PRIu64, fence - 1);
	assert_says(give_back('a', "0"), "OK");
	assert_starts(resting(rested("B", 'b', 'x', .rest = HOUR)), "REST");
	while (*heard())
		;
	assert_says(call_name(SCRIPT_REST, NAME_OF_ONE_WORD, "flock", earlier, NULL),
		    "GONE"); /* a younger one began it */
	assert_says(call_name(SCRIPT_REST, NAME_OF_ONE_WORD, "record", limit, NULL), "GONE");
	assert_says(call_name(SCRIPT_REST, NAME_OF_ONE_WORD, "flock", limit, NULL), "OK");
	assert_starts(heard(), "B: granted bbbb"); /* no timer has to come first */
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

TEST(a_dead_host_leaves_its_rest)
{
	assert_granted(rested("A", 'a', 'x', .rest = HOUR));
	assert_starts(resting(rested("B", 'b', 'x', .rest = HOUR, .dead_host = "A", .dead_beat = beat_of("A"))),
		      "REST");
	assert_says(heard(), "");
	command("HDEL " REST);
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
