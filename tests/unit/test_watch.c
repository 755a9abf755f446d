/* keeper/rules/watch.c: which hosts may be named dead, and not a nanosecond too early. */
#include "keeper/rules/watch.h"

#include "store/store.h"
#include "tests/unit/suite.h"

#define TTL   1000
#define START 5000000000000ll

static struct watch *watch;

static void setup(void)
{
	watch = watch_new(TTL);
	ck_assert_ptr_nonnull(watch);
}

static void teardown(void) { watch_free(watch); }
FIXTURE(setup, teardown)

static void see(const char *host, uint64_t beat, int64_t now)
{
	struct store_blocker b = {.beat = beat, .age_ms = 1 << 30, .waiter = true};

	snprintf(b.host, sizeof(b.host), "%s", host);
	watch_see(watch, &b, now);
}

static size_t count_dead(void)
{
	struct store_blocker out[STORE_MAX_BLOCKERS];

	return watch_dead(watch, out, STORE_MAX_BLOCKERS);
}

TEST(exact_ttl)
{
	see("a", 7, START);
	see("zero", 0, START);
	see("most", UINT64_MAX, START);
	for (int i = 1; i < TTL; i++) /* the same beat again */
		see("a", 7, START + i);
	ck_assert_int_eq(watch_dead_at(watch, "a", 7), START + TTL);
	ck_assert(!watch_is_dead(watch, "a", 7, START + TTL - 1));
	ck_assert_uint_eq(count_dead(), 0);
	see("a", 7, START + TTL);
	ck_assert_uint_eq(count_dead(), 1);
	ck_assert(watch_is_dead(watch, "a", 7, START + TTL));
	ck_assert(watch_is_dead(watch, "zero", 0, START + TTL));
	ck_assert(watch_is_dead(watch, "most", UINT64_MAX, START + TTL));
	/* Never seen. */
	ck_assert_int_eq(watch_dead_at(watch, "b", 7), INT64_MAX);
	ck_assert_int_eq(watch_dead_at(watch, "", 7), INT64_MAX);
	ck_assert(!watch_is_dead(watch, "b", 7, START + 100 * TTL));
	ck_assert(!watch_is_dead(watch, "a", 6, START + 100 * TTL));
	ck_assert(!watch_is_dead(watch, "a", 8, START + 100 * TTL));
	ck_assert(!watch_is_dead(watch, "most", (uint32_t)UINT64_MAX, START + TTL));
}

TEST(other_beat)
{
	see("a", 7, START);
	see("a", 8, START + TTL - 1);
	ck_assert(!watch_is_dead(watch, "a", 8, START + TTL));
	ck_assert(!watch_is_dead(watch, "a", 7, START + 5 * TTL)); /* an answer of before: it has beaten since */
	ck_assert_int_eq(watch_dead_at(watch, "a", 7), INT64_MAX);
	ck_assert(watch_is_dead(watch, "a", 8, START + 2 * TTL - 1));
	/* A beat that went down counts as new: the store was another, or forgot. */
	see("a", 3, START + 2 * TTL);
	ck_assert_int_eq(watch_dead_at(watch, "a", 3), START + 3 * TTL);
	ck_assert_uint_eq(count_dead(), 0);
	/* Back to a beat that was seen long ago: counted from now. */
	see("a", 7, START + 3 * TTL);
	ck_assert_int_eq(watch_dead_at(watch, "a", 7), START + 4 * TTL);
}

TEST(dead_hosts)
{
	struct store_blocker out[3];

	see("early", 1, START);
	see("late", 2, START + 10);
	see("alive", 3, START);
	see("alive", 4, START + TTL);
	see("early", 1, START + TTL + 9);
	see("late", 2, START + TTL + 9);
	memset(out, 0xff, sizeof(out));
	ck_assert_uint_eq(watch_dead(watch, out, 3), 1);
	ck_assert_str_eq(out[0].host, "early");
	ck_assert_uint_eq(out[0].beat, 1);
	ck_assert_int_eq(out[0].age_ms, 0);
	ck_assert(!out[0].waiter);
	see("late", 2, START + TTL + 10);
	ck_assert_uint_eq(watch_dead(watch, out, 3), 2);
	ck_assert_uint_eq(watch_dead(watch, out, 1), 1);
	ck_assert_uint_eq(watch_dead(watch, out, 0), 0);
	see("alive", 4, START + 2 * TTL);
	ck_assert_uint_eq(watch_dead(watch, out, 3), 3);
}

TEST(longest_names_and_at_most_max)
{
	struct store_blocker out[STORE_MAX_BLOCKERS + 1];
	char host[STORE_HOST_BYTES];

	for (int i = 0; i < 100; i++) {
		snprintf(host, sizeof(host), "%0*d", STORE_HOST_BYTES - 1, i);
		see(host, i, START);
		see(host, i, START + TTL);
	}
	memset(&out[STORE_MAX_BLOCKERS], 0x5a, sizeof(*out));
	ck_assert_uint_eq(watch_dead(watch, out, STORE_MAX_BLOCKERS), STORE_MAX_BLOCKERS);
	ck_assert_int_eq(out[STORE_MAX_BLOCKERS].host[0], 0x5a);
	for (size_t i = 0; i < STORE_MAX_BLOCKERS; i++) {
		snprintf(host, sizeof(host), "%0*d", STORE_HOST_BYTES - 1, (int)out[i].beat);
		ck_assert_str_eq(out[i].host, host);
	}
}

/* It may live: nobody has looked since. Each request that names a host takes the server longer. */
TEST(not_looked_at_since)
{
	see("a", 7, START);
	see("a", 7, START + TTL - 1);
	ck_assert_uint_eq(count_dead(), 0);
	see("a", 7, START + 100 * TTL);
	ck_assert_uint_eq(count_dead(), 1);
	see("a", 8, START + 101 * TTL);
	ck_assert_uint_eq(count_dead(), 0);
}

TEST(forget)
{
	see("old", 1, START);
	see("edge", 1, START + 10);
	see("new", 1, START);
	see("new", 1, START + 11);
	watch_forget(watch, START + 10);
	ck_assert_int_eq(watch_dead_at(watch, "old", 1), INT64_MAX);
	ck_assert_int_eq(watch_dead_at(watch, "edge", 1), START + 10 + TTL);
	ck_assert_int_eq(watch_dead_at(watch, "new", 1), START + TTL); /* last seen counts, not first */
	see("old", 1, START + 20);
	ck_assert_int_eq(watch_dead_at(watch, "old", 1), START + 20 + TTL);
	for (int i = 0; i < 2; i++)
		watch_clear(watch);
	ck_assert_uint_eq(count_dead(), 0);
	ck_assert_int_eq(watch_dead_at(watch, "new", 1), INT64_MAX);
	see("new", 1, START + TTL);
	ck_assert_int_eq(watch_dead_at(watch, "new", 1), START + 2 * TTL);
	watch_free(NULL);
}
