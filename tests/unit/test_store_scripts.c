/*
 * The store's scripts: which host gets what in which state, and what is published. Order, waiters that give up or pass, shrinking, the dead and
 * rests: random requests in model/test_scripts.py.
 */
#include "tests/unit/script_calls.h"

#define REST_FROM_BEFORE "8000000000000000 9000000000000000 1"

/* ---- grants and conflicts ---- */

TEST(grant_again_and_conflict)
{
	uint64_t fence = fence_of(acquire("A", 'a', 'x'));

	ck_assert_uint_gt(fence, 1000000000000000); /* time in its high part */
	ck_assert_uint_eq(fence_of(acquire("A", 'a', 'x')), fence);
	assert_starts(acquire("B", 'b', 'x'), "WAIT A ");
	assert_heard("A: recall aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa B bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb flock exclusive "
		     "0000000000000000000 9223372036854775807 0 " NAME,
		     NULL);
	assert_starts(acquire("B", 'b', 'x'), "WAIT A "); /* asks again: one entry, told again */
	assert_heard("A: recall ", NULL);
	assert_says(release('a'), "OK");
	assert_heard("B: granted bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb ", NULL);
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
	/* Another file of the host is another owner, which names its own host dead. */
	assert_starts(acquire("A", '3', 'x', .file = "1:2", .dead_host = "A", .dead_beat = beat_of("A")), "WAIT A ");
}

#define ALL "0000000000000000000 9223372036854775807"

TEST(a_lone_host_gets_the_whole_range)
{
	char answer[128];

	snprintf(answer, sizeof(answer), "%s", acquire("A", 'a', 's', RECORD("10", "20"), .grow = "1"));
	ck_assert_msg(strstr(answer, " shared " ALL), "%s", answer);
	assert_says(acquire("A", 'a', 's', RECORD("10", "20"), .grow = "1"), answer); /* the first answer was lost */
	assert_has(acquire("A", 'b', 'x', RECORD("10", "20"), .grow = "1"), " exclusive " ALL);
	assert_starts(acquire("B", 'c', 's', RECORD("30", "40"), .grow = "1"), "WAIT A ");
	/* Not while another one waits, nor by hand-over, nor while another one has something. */
	ck_assert_ptr_null(strstr(acquire("A", 'd', 'x', RECORD("5", "6"), .grow = "1"), ALL));
	release('a');
	release('b');
	hush();
	ck_assert_ptr_null(strstr(acquire("B", 'c', 's', RECORD("30", "40"), .grow = "1"), ALL));
	ck_assert_ptr_null(strstr(acquire("A", 'e', 'x', RECORD("7", "8"), .grow = "1"), ALL));
	release('c');
	/* The other space does not count; another file of the same host does. */
	assert_granted(acquire("B", 'f', 'x'));
	assert_has(acquire("A", '1', 'x', RECORD("1", "2"), .grow = "1"), ALL);
	release('1');
	assert_granted(acquire("A", '2', 'x', RECORD("1", "2"), .file = "1:2"));
	ck_assert_ptr_null(strstr(acquire("A", '3', 'x', RECORD("2", "3"), .grow = "1"), ALL));
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
	assert_has(call(SCRIPT_DUMP, NULL), "0009007199254740993 0009007199254740994");
}

/* ---- order ---- */

/* The same record. */
static void come_to_another_server(void)
{
	memset(incarnation, 'f', 40);
	command("HSET dflock:{0}:store inc %s dflock:{0}:lock:%s %s", incarnation, NAME, incarnation);
}

/* give.lua must leave alone what it may not hand over. */
TEST(the_only_waiter)
{
	uint64_t fence = fence_of(acquire("A", 'a', 'x')), next;

	assert_starts(acquire("B", 'b', 'x', .ask = "1"), "WAIT A ");
	command("HSET dflock:{0}:store open 0"); /* grace */
	hush();
	assert_says(release('a'), "OK");
	assert_heard(NULL);
	command("HSET dflock:{0}:store open 1");
	next = fence_of(acquire("B", 'b', 'x'));
	ck_assert_uint_gt(next, fence);

	assert_starts(acquire("A", 'c', 'x'), "WAIT B ");
	hush();
	command("HSET dflock:{0}:rests dflock:{0}:rest:flock:%s %s", NAME, REST_FROM_BEFORE);
	assert_says(release('b'), "OK");
	assert_heard(NULL);
	command("HDEL dflock:{0}:rests dflock:{0}:rest:flock:%s", NAME);
	ck_assert_uint_gt(fence_of(acquire("A", 'c', 'x')), next);

	assert_starts(acquire("B", 'd', 'x'), "WAIT A ");
	hush();
	come_to_another_server();
	assert_says(release('c'), "INC");
	assert_heard(NULL);
}

/* take.lua must leave alone what does not simply wait. */
TEST(the_only_lease)
{
	assert_granted(acquire("A", 'a', 'x'));
	command("HDEL dflock:{0}:hosts B");
	assert_starts(acquire("B", 'b', 'x', .ask = "1", .pass = "1", .job = "1 2 b"), "WAIT A ");
	assert_heard("A: recall ", NULL);
	ck_assert_str_ne(beat_of("B"), "(nil)"); /* the request counts as a beat */
	assert_starts(acquire("C", 'c', 'x', .pass = "1"),
		      "WAIT A "); /* it has all that acquire.lua wants of the first */
	assert_has(call(SCRIPT_DUMP, NULL), "1 2 b");
	assert_says(release('b'), "OK");
	assert_says(release('c'), "OK");
	hush();
	assert_granted(acquire("A", 'd', 'x', RECORD("1", "2"))); /* now there are two */
	assert_says(release('d'), "OK");

	command("HSET dflock:{0}:rests dflock:{0}:rest:flock:%s %s", NAME, REST_FROM_BEFORE);
	assert_starts(acquire("B", 'b', 'x', .ask = "1"), "REST ");
	assert_heard(NULL);
	command("HDEL dflock:{0}:rests dflock:{0}:rest:flock:%s", NAME);

	assert_granted(acquire("B", 'b', 'x', .dead_host = "A", .dead_beat = beat_of("A")));
	come_to_another_server();
	assert_says(acquire("A", 'e', 'x'), "INC");
	assert_heard(NULL);
}

TEST(shared_waiters_are_granted_together)
{
	assert_granted(acquire("A", 'a', 'x'));
	acquire("B", 'b', 's');
	acquire("C", 'c', 's');
	acquire("D", 'd', 'x');
	acquire("E", 'e', 's');
	hush();
	release('a');
	assert_heard("B: granted", "C: granted", "B: recall bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb D dddd",
		     "C: recall cccccccccccccccccccccccccccccccc D dddd", NULL); /* E came after D */
	release('b');
	assert_heard(NULL);
	release('c');
	assert_heard("D: granted", "D: recall dddddddddddddddddddddddddddddddd E eeee", NULL);
	release('d');
	assert_heard("E: granted", NULL);
}

/* A question may be over already, so it makes no other one fail; one that waits does. */
TEST(questions_queue_once)
{
	assert_granted(acquire("A", 'a', 'x'));
	assert_starts(acquire("B", 'b', 'x', .ask = "1"), "WAIT A ");
	assert_has(heard(), " 1 " NAME);
	assert_starts(acquire("C", 'c', 'x', .ask = "1"), "WAIT A ");
	assert_starts(acquire("B", 'b', 'x'), "WAIT A ");
	hush();
	assert_starts(acquire("C", 'c', 'x', .ask = "1"), "BUSY A ");
	assert_heard(NULL);
	/* A host that may name A dead asks it all the same. */
	assert_starts(acquire("C", 'c', 'x', .ask = "2"), "WAIT A ");
	assert_has(heard(), " 1 " NAME);
}

/* ---- confirm, shrink, duplicates, limits ---- */

TEST(a_late_duplicate_revives_nothing)
{
	const char *fence = fence_text(acquire("A", 'a', 'x')), *now;

	assert_starts(call(SCRIPT_CONFIRM, "A", token('a'), fence, NULL), "OK ");
	release('a');
	assert_says(call(SCRIPT_CONFIRM, "A", token('a'), fence, NULL), "GONE");
	now = fence_text(acquire("A", 'a', 'x'));
	ck_assert_str_ne(fence, now);
	assert_says(call(SCRIPT_CONFIRM, "A", token('a'), fence, NULL), "GONE");
	assert_says(call(SCRIPT_CONFIRM, "B", token('a'), now, NULL), "GONE");
	assert_starts(call(SCRIPT_CONFIRM, "A", token('a'), now, NULL), "OK ");
	assert_says(release('9'), "OK"); /* unknown */
}

TEST(a_waiter_that_waits_for_nobody_is_granted)
{
	assert_granted(acquire("A", 'a', 'x'));
	acquire("B", 'b', 'x');
	command("HSET dflock:{0}:store open 0"); /* in grace nothing is handed over */
	release('a');
	command("HSET dflock:{0}:store open 1");
	hush();
	assert_starts(acquire("C", 'c', 'x'), "WAIT B ");
	assert_heard("B: granted bbbb", "B: recall bbbb", "B: recall bbbb", NULL);
}

TEST(a_job_stays_with_its_entry)
{
	/* take.lua; a waiter; granted by acquire.lua; handed over. */
	assert_granted(acquire("A", 'a', 'x', .job = "11 5 one two"));
	assert_has(call(SCRIPT_DUMP, NULL), "11 5 one two");
	acquire("B", 'b', 's', .job = "12 6 b");
	assert_has(call(SCRIPT_DUMP, NULL), "12 6 b");
	assert_granted(acquire("C", 'c', 'x', RECORD("0", "1"), .job = "13 7 c"));
	release('a');
	call(SCRIPT_SHRINK, token('c'), NULL);
	const char *dump = call(SCRIPT_DUMP, NULL);
	ck_assert_ptr_null(strstr(dump, "one two"));
	assert_has(dump, "12 6 b");
	assert_has(dump, "13 7 c");
	/* One that is not told is another thing than a host that knows of no jobs. */
	assert_granted(acquire("A", 'd', 'x', RECORD("5", "6")));
	ck_assert_ptr_null(strstr(call(SCRIPT_DUMP, NULL), " -"));
}
