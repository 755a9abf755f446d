/* The store's scripts: hosts that are silent, dead, or given up, and their beats. */
#include "tests/unit/script_calls.h"

/* ---- the dead ---- */

TEST(the_dead_are_dropped_if_their_beat_is_the_same)
{
	assert_granted(acquire("A", 'a', 'x'));
	const char *seen = beat_of("A");
	assert_has(acquire("B", 'b', 'x'), seen);
	assert_says(call(SCRIPT_BEAT, "A", NULL), "OK");
	assert_starts(acquire("B", 'b', 'x', .dead_host = "A", .dead_beat = seen), "WAIT A ");
	assert_granted(acquire("B", 'b', 'x', .dead_host = "A", .dead_beat = beat_of("A")));
	assert_says(call(SCRIPT_CONFIRM, "A", token('a'), "1", NULL), "GONE");
	assert_says(call(SCRIPT_LEAVE, "B", "", NULL), "OK"); /* then its beat is zero */
	assert_starts(acquire("C", 'c', 'x'), "WAIT B 0 ");
	assert_granted(acquire("C", 'c', 'x', .dead_host = "B", .dead_beat = "0"));
}

TEST(beats_only_grow)
{
	acquire("A", 'a', 'x');
	command("HSET dflock:{0}:hosts A 8000000000000000");
	assert_says(call(SCRIPT_BEAT, "A", NULL), "OK");
	assert_says(beat_of("A"), "8000000000000001");
	acquire("A", 'a', 'x');
	assert_says(beat_of("A"), "8000000000000002");
	call(SCRIPT_CONFIRM, "A", token('a'), "1", NULL);
	assert_says(beat_of("A"), "8000000000000003");
	release('a');
	assert_says(beat_of("A"), "8000000000000003");
	assert_starts(call(SCRIPT_HOSTS, NULL), "OK A 8000000000000003 -");
}

/* ---- a host that is given up ---- */

/* What a beat of host A says that knows this mark. */
#define beat_with(mark) call(SCRIPT_BEAT, "A", mark, NULL)

TEST(a_host_that_was_given_up_hears_of_it_before_it_renews)
{
	const char *beat, *mark;

	assert_granted(acquire("A", 'a', 'x'));
	assert_says(call(SCRIPT_GIVE_UP, "A", "1", NULL), "GONE"); /* it was heard of meanwhile */
	assert_says(beat_with("0"), "OK");
	beat = beat_of("A");
	assert_says(call(SCRIPT_GIVE_UP, "A", beat, NULL), "OK");
	mark = keep(beat_with("0"));
	assert_starts(mark, "GIVENUP ");
	assert_says(beat_of("A"), beat);   /* no other host takes it for alive */
	assert_says(beat_with("0"), mark); /* the answer was lost: again */
	assert_says(beat_with("77"), mark);
	mark += strlen("GIVENUP ");
	assert_says(beat_with(mark), "OK");
	assert_says(beat_with(mark), "OK");
	assert_says(beat_with("0"), "OK");
	assert_says(call(SCRIPT_BEAT, "B", "0", NULL), "OK");
	/* Given up once more: the earlier mark does not count. */
	for (int i = 0; i < 2; i++)
		assert_says(call(SCRIPT_GIVE_UP, "A", beat_of("A"), NULL), "OK");
	assert_starts(beat_with(mark), "GIVENUP ");
}

/* What renews must not go on before the host has heard of the mark: the host would count its leases from then. */
TEST(nothing_else_of_a_host_that_was_given_up_renews)
{
	const char *fence = fence_text(acquire("A", 'a', 's', .ask = "1", .pass = "1")), *beat, *mark;

	assert_granted(acquire("B", 'b', 's'));
	beat = beat_of("A");
	assert_says(call(SCRIPT_GIVE_UP, "A", beat, NULL), "OK");
	mark = keep(beat_with("0"));
	assert_starts(mark, "GIVENUP ");
	assert_says(acquire("A", 'a', 's'), "GIVENUP"); /* it asks again (without the mark: without_arrival()) */
	assert_says(acquire("A", 'c', 'x'), "GIVENUP"); /* it would wait */
	assert_says(acquire("A", 'd', 'x', .name = NAME_OF_ONE_WORD), "GIVENUP");
	assert_says(acquire("A", 'd', 'x', .name = NAME_OF_ONE_WORD, .rest = "9"), "GIVENUP");
	assert_says(call(SCRIPT_CONFIRM, "A", token('a'), fence, NULL), mark);
	assert_says(reclaim("A", 'a', fence, "shared"), mark);
	assert_says(beat_of("A"), beat);
	assert_says(call(SCRIPT_SWEEP, "A", beat, NULL), "OK"); /* so what it had can be swept */
	assert_says(command("KEYS *" NAME_OF_ONE_WORD), "");
	assert_granted(acquire("B", 'f', 'x'));
	assert_says(beat_with(mark + strlen("GIVENUP ")), "OK");
	assert_says(call(SCRIPT_CONFIRM, "A", token('a'), fence, NULL), "GONE");
	assert_starts(acquire("A", 'c', 'x'), "WAIT B ");
}

TEST(marks_of_hosts_that_never_came_back_go)
{
	assert_granted(acquire("A", 'a', 'x'));
	assert_says(call(SCRIPT_GIVE_UP, "gone", "0", NULL), "OK");
	assert_says(call(SCRIPT_GIVE_UP, "late", "0", NULL), "OK");
	command("HSET dflock:{0}:store given:gone 1000");
	assert_says(call(SCRIPT_GIVE_UP, "A", beat_of("A"), NULL), "OK");
	assert_says(command("HGET dflock:{0}:store given:gone"), "(nil)");
	assert_says(command("HGET dflock:{0}:store given"), "A late");
	assert_starts(beat_with("0"), "GIVENUP ");
	assert_says(call(SCRIPT_GIVE_UP, "late", "0", NULL), "OK");
	assert_says(command("HGET dflock:{0}:store given"), "late A");
	assert_starts(beat_with("0"), "GIVENUP ");
}
