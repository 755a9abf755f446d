/* The store's scripts: which host gets what in which state, and what is published. */
#include "tests/unit/script_calls.h"

#define REST_FROM_BEFORE "8000000000000000 9000000000000000 1"

/* ---- grants and conflicts ---- */

TEST(grant_again_and_conflict)
{
	uint64_t fence = fence_of(acquire("A", 'a', 'x'));

	ck_assert_uint_gt(fence, 1000000000000000); /* time in its high part */
	ck_assert_uint_eq(fence_of(acquire("A", 'a', 'x')), fence);
	assert_starts(acquire("B", 'b', 'x'), "WAIT A ");
	assert_says(heard(),
		    "A: recall aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa B bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb flock exclusive "
		    "0000000000000000000 9223372036854775807 0 " NAME);
	assert_says(heard(), "");
	assert_starts(acquire("B", 'b', 'x'), "WAIT A "); /* asks again: one entry, told again */
	assert_starts(heard(), "A: recall ");
	assert_says(release('a'), "OK");
	assert_starts(heard(), "B: granted bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb ");
	ck_assert_uint_eq(fence_of(acquire("B", 'b', 'x')), fence + 1);
	assert_says(release('b'), "OK");
	assert_says(command("KEYS dflock:*lock*"), "");
	ck_assert_uint_eq(fence_of(acquire("A", 'c', 'x')), fence + 2);
}

TEST(what_does_not_conflict)
{
	assert_granted(acquire("A", 'a', 's', RECORD("10", "20")));
	assert_granted(acquire("B", 'b', 's', RECORD("10", "20")));
	assert_granted(acquire("B", 'c', 'x', RECORD("20", "30")));
	assert_granted(acquire("B", 'd', 'x', RECORD("0", "10")));
	assert_granted(acquire("A", 'e', 'x'));                                 /* the other space */
	assert_granted(acquire("A", 'f', 'x', RANGE("0", "5"), .file = "1:1")); /* the same owner */
	assert_starts(acquire("B", '1', 'x', RECORD("19", "20")), "WAIT A ");
	assert_starts(acquire("A", '2', 's', RECORD("0", "11")), "WAIT B ");
}

#define ALL "0000000000000000000 9223372036854775807"

TEST(a_lone_host_gets_the_whole_range)
{
	char answer[128];

	snprintf(answer, sizeof(answer), "%s", acquire("A", 'a', 's', RECORD("10", "20"), .grow = "1"));
	ck_assert_msg(strstr(answer, " shared " ALL), "%s", answer);
	assert_says(acquire("A", 'a', 's', RECORD("10", "20"), .grow = "1"), answer); /* the first answer was lost */
	ck_assert_ptr_nonnull(strstr(acquire("A", 'b', 'x', RECORD("10", "20"), .grow = "1"), " exclusive " ALL));
	assert_starts(acquire("B", 'c', 's', RECORD("30", "40"), .grow = "1"), "WAIT A ");
	/* Not while another one waits, nor by hand-over, nor while another one has something. */
	ck_assert_ptr_null(strstr(acquire("A", 'd', 'x', RECORD("5", "6"), .grow = "1"), ALL));
	release('a');
	release('b');
	while (*heard())
		;
	ck_assert_ptr_null(strstr(acquire("B", 'c', 's', RECORD("30", "40"), .grow = "1"), ALL));
	ck_assert_ptr_null(strstr(acquire("A", 'e', 'x', RECORD("7", "8"), .grow = "1"), ALL));
	release('c');
	/* The other space does not count; another file of the same host does. */
	assert_granted(acquire("B", 'f', 'x'));
	ck_assert_ptr_nonnull(strstr(acquire("A", '1', 'x', RECORD("1", "2"), .grow = "1"), ALL));
	release('1');
	assert_granted(acquire("A", '2', 'x', RECORD("1", "2"), .file = "1:2"));
	ck_assert_ptr_null(strstr(acquire("A", '3', 'x', RECORD("2", "3"), .grow = "1"), ALL));
}

TEST(two_files_of_one_host_are_two_owners)
{
	assert_granted(acquire("A", 'a', 'x', .file = "1:1"));
	assert_starts(acquire("A", 'b', 'x', .file = "1:2"), "WAIT A ");
	assert_starts(heard(), "A: recall aaaa");
	assert_starts(acquire("A", 'b', 'x', .file = "1:2", .dead_host = "A", .dead_beat = beat_of("A")), "WAIT A ");
}

TEST(big_offsets_are_exact)
{
	/* 2^53 + 1 is no double, nor is 2^63 - 1. */
	assert_granted(acquire("A", 'a', 'x', RECORD("9007199254740992", "9007199254740993")));
	assert_granted(acquire("B", 'b', 'x', RECORD("9007199254740993", "9007199254740994")));
	assert_granted(acquire("A", 'c', 'x', RECORD("9223372036854775806", NULL)));
	assert_granted(acquire("B", 'd', 'x', RECORD("9223372036854775805", "9223372036854775806")));
	assert_starts(acquire("B", 'e', 'x', RECORD("9223372036854775806", NULL)), "WAIT A ");
	assert_granted(acquire("B", 'f', 'x', RECORD("9", "10")));
	assert_granted(acquire("A", '0', 'x', RECORD("10", "11"))); /* as texts, "9" would be behind "10" */
	ck_assert_ptr_nonnull(strstr(call(SCRIPT_DUMP, NULL), "0009007199254740993 0009007199254740994"));
}

/* ---- order ---- */

TEST(order_of_arrival)
{
	assert_granted(acquire("A", 'a', 'x'));
	assert_starts(acquire("B", 'b', 'x'), "WAIT A ");
	assert_starts(acquire("C", 'c', 'x'), "WAIT A ");
	assert_starts(acquire("B", 'b', 'x'), "WAIT A "); /* keeps its place */
	while (*heard())
		;
	release('a');
	assert_starts(heard(), "B: granted");
	assert_starts(heard(), "B: recall bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb C cccc"); /* C goes on waiting, now for B */
	assert_says(heard(), "");
	release('b');
	assert_starts(heard(), "C: granted");
	assert_says(heard(), "");
}

/* give.lua must leave alone what it may not hand over. */
TEST(the_only_waiter)
{
	uint64_t fence = fence_of(acquire("A", 'a', 'x')), next;
	char was[128];

	assert_starts(acquire("B", 'b', 'x', .ask = "1"), "WAIT A ");
	command("HSET dflock:{0}:store open 0"); /* grace */
	while (*heard())
		;
	assert_says(release('a'), "OK");
	assert_says(heard(), "");
	command("HSET dflock:{0}:store open 1");
	next = fence_of(acquire("B", 'b', 'x'));
	ck_assert_uint_gt(next, fence);

	assert_starts(acquire("A", 'c', 'x'), "WAIT B ");
	while (*heard())
		;
	command("HSET dflock:{0}:rests dflock:{0}:rest:flock:%s %s", NAME, REST_FROM_BEFORE);
	assert_says(release('b'), "OK");
	assert_says(heard(), "");
	command("HDEL dflock:{0}:rests dflock:{0}:rest:flock:%s", NAME);
	ck_assert_uint_gt(fence_of(acquire("A", 'c', 'x')), next);

	assert_starts(acquire("B", 'd', 'x'), "WAIT A ");
	while (*heard())
		;
	strcpy(was, incarnation);
	memset(incarnation, 'f', 40); /* the same record came to another server */
	command("HSET dflock:{0}:store inc %s dflock:{0}:lock:%s %s", incarnation, NAME, incarnation);
	assert_says(release('c'), "INC");
	assert_says(heard(), "");
	strcpy(incarnation, was);
}

/* take.lua must leave alone what does not simply wait. */
TEST(the_only_lease)
{
	char beat[32], was[128];

	assert_granted(acquire("A", 'a', 'x'));
	command("HDEL dflock:{0}:hosts B");
	assert_starts(acquire("B", 'b', 'x', .ask = "1", .pass = "1", .job = "1 2 b"), "WAIT A ");
	assert_starts(heard(), "A: recall ");
	snprintf(beat, sizeof(beat), "%s", beat_of("B"));
	ck_assert_str_ne(beat, "(nil)"); /* the request counts as a beat */
	assert_starts(acquire("C", 'c', 'x', .pass = "1"),
		      "WAIT A "); /* it has all that acquire.lua wants of the first */
	ck_assert_ptr_nonnull(strstr(call(SCRIPT_DUMP, NULL), "1 2 b"));
	assert_says(release('b'), "OK");
	assert_says(release('c'), "OK");
	while (*heard())
		;
	assert_granted(acquire("A", 'd', 'x', RECORD("1", "2"))); /* now there are two */
	assert_says(release('d'), "OK");

	command("HSET dflock:{0}:rests dflock:{0}:rest:flock:%s %s", NAME, REST_FROM_BEFORE);
	assert_starts(acquire("B", 'b', 'x', .ask = "1"), "REST ");
	assert_says(heard(), "");
	command("HDEL dflock:{0}:rests dflock:{0}:rest:flock:%s", NAME);

	assert_granted(acquire("B", 'b', 'x', .dead_host = "A", .dead_beat = beat_of("A")));
	strcpy(was, incarnation);
	memset(incarnation, 'f', 40); /* the same record came to another server */
	command("HSET dflock:{0}:store inc %s dflock:{0}:lock:%s %s", incarnation, NAME, incarnation);
	assert_says(acquire("A", 'e', 'x'), "INC");
	assert_says(heard(), "");
	strcpy(incarnation, was);
}

TEST(shared_waiters_are_granted_together)
{
	assert_granted(acquire("A", 'a', 'x'));
	acquire("B", 'b', 's');
	acquire("C", 'c', 's');
	acquire("D", 'd', 'x');
	acquire("E", 'e', 's');
	while (*heard())
		;
	release('a');
	assert_starts(heard(), "B: granted");
	assert_starts(heard(), "C: granted");
	assert_starts(heard(), "B: recall bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb D dddd");
	assert_starts(heard(), "C: recall cccccccccccccccccccccccccccccccc D dddd");
	assert_says(heard(), ""); /* E came after D */
	release('b');
	assert_says(heard(), "");
	release('c');
	assert_starts(heard(), "D: granted");
	assert_starts(heard(), "D: recall dddddddddddddddddddddddddddddddd E eeee");
	assert_says(heard(), "");
	release('d');
	assert_starts(heard(), "E: granted");
}

TEST(cancelling_a_waiter_frees_those_behind_it)
{
	assert_granted(acquire("A", 'a', 's'));
	acquire("B", 'b', 'x');
	assert_starts(acquire("C", 'c', 's'), "WAIT B "); /* behind the waiter only */
	while (*heard())
		;
	assert_says(release('b'), "OK");
	assert_starts(heard(), "C: granted");
	assert_says(heard(), "");
}

TEST(pass_passes_waiters_but_not_holders)
{
	assert_granted(acquire("A", 'a', 's'));
	acquire("B", 'b', 'x');
	ck_assert_ptr_nonnull(strstr(acquire("C", 'c', 's'), " waits"));
	assert_granted(acquire("C", 'c', 's', .pass = "1"));
	assert_granted(acquire("D", 'd', 's', .pass = "1")); /* was not queued before */
	assert_starts(acquire("E", 'e', 'x', .pass = "1"), "WAIT A ");
	assert_starts(acquire("F", 'f', 'x', .pass = "1", .ask = "1"), "BUSY A "); /* a question does not queue up */
	release('a'), release('c'), release('d');
	assert_granted(acquire("B", 'b', 'x'));
}

TEST(questions_queue_once)
{
	assert_granted(acquire("A", 'a', 'x'));
	assert_starts(acquire("B", 'b', 'x', .ask = "1"), "WAIT A ");
	ck_assert_ptr_nonnull(strstr(heard(), " 1 " NAME));
	/* A question may be over already: it does not make another one fail. One that waits does. */
	assert_starts(acquire("C", 'c', 'x', .ask = "1"), "WAIT A ");
	ck_assert_ptr_nonnull(strstr(heard(), " 1 " NAME));
	release('c');
	assert_starts(acquire("B", 'b', 'x'), "WAIT A ");
	while (*heard())
		;
	assert_starts(acquire("C", 'c', 'x', .ask = "1"), "BUSY A ");
	assert_says(heard(), "");
	ck_assert_ptr_null(strstr(call(SCRIPT_DUMP, NULL), "cccc"));
	/* A host that may name A dead asks it all the same. */
	assert_starts(acquire("C", 'c', 'x', .ask = "2"), "WAIT A ");
	ck_assert_ptr_nonnull(strstr(heard(), " 1 " NAME));
	release('c');
	while (*heard())
		;
	release('a');
	assert_starts(heard(), "B: granted");
	/* A waiter that then only asks is taken out of the queue, and was all that D waited for. */
	assert_starts(acquire("A", '1', 's', RANGE("0", "10")), "WAIT B ");
	release('b');
	while (*heard())
		;
	assert_starts(acquire("B", '2', 'x', RANGE("0", "20")), "WAIT A ");
	assert_starts(acquire("C", '3', 'x', RANGE("5", "30")), "WAIT A ");
	assert_starts(acquire("D", '4', 'x', RANGE("20", "40")), "WAIT C ");
	while (*heard())
		;
	assert_starts(acquire("C", '3', 'x', RANGE("5", "30"), .ask = "1"), "BUSY A ");
	assert_starts(heard(), "D: granted 4444");
}

/* ---- confirm, shrink, duplicates, limits ---- */

TEST(a_late_duplicate_revives_nothing)
{
	char fence[24], now[24];

	snprintf(fence, sizeof(fence), "%" PRIu64, fence_of(acquire("A", 'a', 'x')));
	assert_starts(call(SCRIPT_CONFIRM, "A", token('a'), fence, NULL), "OK ");
	release('a');
	assert_says(call(SCRIPT_CONFIRM, "A", token('a'), fence, NULL), "GONE");
	snprintf(now, sizeof(now), "%" PRIu64, fence_of(acquire("A", 'a', 'x')));
	ck_assert_str_ne(fence, now);
	assert_says(call(SCRIPT_CONFIRM, "A", token('a'), fence, NULL), "GONE");
	assert_says(call(SCRIPT_CONFIRM, "B", token('a'), now, NULL), "GONE");
	assert_starts(call(SCRIPT_CONFIRM, "A", token('a'), now, NULL), "OK ");
	assert_says(release('9'), "OK"); /* unknown */
}

TEST(shrink_lets_readers_in)
{
	assert_granted(acquire("A", 'a', 'x'));
	acquire("B", 'b', 's');
	acquire("C", 'c', 'x');
	acquire("D", 'd', 's');
	while (*heard())
		;
	assert_says(call(SCRIPT_SHRINK, token('a'), NULL), "OK");
	assert_starts(heard(), "B: granted");
	assert_starts(heard(), "B: recall bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb C cccc");
	assert_says(heard(), "");
	assert_says(call(SCRIPT_SHRINK, token('a'), NULL), "OK");
	ck_assert_ptr_nonnull(strstr(acquire("A", 'a', 'x'), " shared"));
	assert_says(call(SCRIPT_SHRINK, token('c'), NULL), "GONE"); /* it waits */
	release('a');
	assert_says(call(SCRIPT_SHRINK, token('a'), NULL), "GONE");
}

TEST(no_more_is_put_back_than_the_host_has)
{
	char fence[24];

	snprintf(fence, sizeof(fence), "%" PRIu64, fence_of(acquire("A", 'a', 'x')));
	/* A snapshot of before it was shrunk is all that the store has. */
	assert_starts(call(SCRIPT_RECLAIM, "A", token('a'), fence, "1:1", "flock", "shared", "0000000000000000000",
			   "9223372036854775807", NULL),
		      "OK ");
	ck_assert_ptr_nonnull(strstr(acquire("A", 'a', 'x'), " shared"));
	assert_granted(acquire("B", 'b', 's'));
}

TEST(a_waiter_that_waits_for_nobody_is_granted)
{
	assert_granted(acquire("A", 'a', 'x'));
	acquire("B", 'b', 'x');
	command("HSET dflock:{0}:store open 0"); /* in grace nothing is handed over */
	release('a');
	command("HSET dflock:{0}:store open 1");
	while (*heard())
		;
	assert_starts(acquire("C", 'c', 'x'), "WAIT B ");
	assert_starts(heard(), "B: granted bbbb");
}

TEST(a_waiter_asks_also_for_those_in_front)
{
	assert_granted(acquire("A", 'a', 'x'));
	acquire("A", 'b', 'x', .file = "1:2");
	while (*heard())
		;
	/* It is only in the way of that waiter, which its host may have forgotten, like the lease. */
	assert_starts(acquire("A", 'c', 'x'), "WAIT A ");
	assert_starts(heard(), "A: recall aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa A bbbb");
}

TEST(a_job_stays_with_its_entry)
{
	/* take.lua; a waiter; granted by acquire.lua; handed over. */
	assert_granted(acquire("A", 'a', 'x', .job = "11 5 one two"));
	ck_assert_ptr_nonnull(strstr(call(SCRIPT_DUMP, NULL), "11 5 one two"));
	acquire("B", 'b', 's', .job = "12 6 b");
	ck_assert_ptr_nonnull(strstr(call(SCRIPT_DUMP, NULL), "12 6 b"));
	assert_granted(acquire("C", 'c', 'x', RECORD("0", "1"), .job = "13 7 c"));
	release('a');
	call(SCRIPT_SHRINK, token('c'), NULL);
	const char *dump = call(SCRIPT_DUMP, NULL);
	ck_assert_ptr_null(strstr(dump, "one two"));
	ck_assert_ptr_nonnull(strstr(dump, "12 6 b"));
	ck_assert_ptr_nonnull(strstr(dump, "13 7 c"));
	/* One that is not told is another thing than a host that knows of no jobs. */
	assert_granted(acquire("A", 'd', 'x', RECORD("5", "6")));
	ck_assert_ptr_null(strstr(call(SCRIPT_DUMP, NULL), " -"));
}

TEST(a_thousand_entries)
{
	char tokens[33], from[24], to[24];

	OF_REDIS; /* elsewhere a lock is packed in another way */
	/* All but three are copies of the first two: a thousand requests would take the server ten seconds. */
	for (int i = 0; i < 1000; i += i == 1 ? 998 : 1) {
		snprintf(tokens, sizeof(tokens), "%032d", i);
		snprintf(from, sizeof(from), WORD_OFFSET, (int64_t)i * 10);
		snprintf(to, sizeof(to), WORD_OFFSET, (int64_t)i * 10 + 10);
		assert_starts(call(SCRIPT_ACQUIRE, i < 1 ? "A" : "B", "1:1", tokens, "record", "exclusive", from, to,
				   "0", "0", "1", NULL),
			      "OK ");
		if (i == 1)
			command("EVAL %s 1 dflock:{0}:lock:%s",
				"local lock = cmsgpack.unpack(redis.call('GET', KEYS[1])) "
				"for i = 2, 998 do local copy = {} "
				"for k, v in pairs(lock.l[i < 500 and 1 or 2]) do copy[k] = v end "
				"copy.token, copy.from = string.format('%032d', i), string.format('%019d', i * 10) "
				"copy.to = string.format('%019d', i * 10 + 10) table.insert(lock.l, copy) end "
				"redis.call('SET', KEYS[1], cmsgpack.pack(lock))",
				NAME);
	}
	assert_says(acquire("A", 'a', 'x', RECORD("5000", "5001")), "LIMIT");
	assert_says(acquire("A", 'a', 'x', RECORD("20000", "20001")), "LIMIT");
	const char *answer =
		acquire("A", 'a', 'x', RECORD("20000", "20001"), .dead_host = "B", .dead_beat = beat_of("B"));
	assert_granted(answer);
}
