/* The store's scripts: the store's record, a memory that is not the expected one, other errors. */
#include "tests/unit/script_calls.h"

/* ---- the record ---- */

static void all_hear_of_it(const char *fence)
{
	assert_says(acquire("A", 'a', 'x'), "INC");
	assert_says(release('a'), "INC"); /* it would have handed over */
	assert_says(call(SCRIPT_SHRINK, token('a'), NULL), "INC");
	assert_says(call(SCRIPT_CONFIRM, "A", token('a'), fence, NULL), "INC");
	assert_says(call(SCRIPT_BEAT, "A", NULL), "INC");
	assert_says(call(SCRIPT_STORE, "open", "3000", NULL), "INC");
}

TEST(another_incarnation)
{
	const char *before = keep(incarnation), *fence = fence_text(acquire("A", 'a', 'x'));

	acquire("B", 'b', 'x');
	command("FLUSHALL");
	all_hear_of_it(fence);
	assert_says(command("DBSIZE"), "0");
	begin("begin");
	assert_says(acquire("A", 'a', 'x'), "GRACE");
	assert_says(command("HGET dflock:{0}:store open"), "0");
	opens();
	assert_granted(acquire("A", 'a', 'x'));
	begin("begin"); /* of the same incarnation: still open */
	assert_granted(acquire("A", 'a', 'x'));
	ck_assert_str_ne(before, incarnation); /* the same server, but hosts that ask later must hear of it too */
	strcpy(incarnation, before);
	assert_says(call(SCRIPT_BEAT, "B", NULL), "INC");
}

/* The keeper and the record agree, but this is another server: an old snapshot, a replica that was promoted. */
TEST(a_record_of_another_server)
{
	const char *fence = fence_text(acquire("A", 'a', 'x'));

	acquire("B", 'b', 'x');
	command("HSET dflock:{0}:store inc 0123-4567 fence 9000000000000000");
	strcpy(incarnation, "0123-4567");
	all_hear_of_it(fence);
	begin("begin");
	/* Above the old, and above what a replica may not have heard of. */
	assert_says(command("HGET dflock:{0}:store fence"), "9000004294967296");
	assert_says(acquire("C", 'c', 'x'), "GRACE");
	hush();
	assert_says(release('a'), "OK");
	assert_heard(NULL); /* in grace nothing is handed over */
	opens();
	ck_assert_uint_eq(fence_of(acquire("B", 'b', 'x')), 9000004294967297);
}

/* What all hosts must have in common is one text, for shards with their number. */
TEST(a_record_of_a_shard)
{
	assert_starts(call(SCRIPT_STORE, "begin", "3000/8", NULL), "TTL 3000 "); /* the store had none */
	acquire("A", 'a', 'x');
	assert_says(call(SCRIPT_STORE, "init", "3000/8", NULL), "TTL 3000 A"); /* which has a lease */
	command("DEL dflock:{0}:hosts");
	assert_starts(call(SCRIPT_STORE, "init", "3000/8", NULL), "OK ");
	assert_says(acquire("A", 'b', 'x'), "INC"); /* so that hosts with the old number find out */
	assert_starts(call(SCRIPT_STORE, "begin", "3000", NULL), "TTL 3000/8 ");
	assert_starts(call(SCRIPT_STORE, "begin", "3000/16", NULL), "TTL 3000/8 ");
	assert_starts(call(SCRIPT_STORE, "begin", "6000/8", NULL), "TTL 3000/8 ");
	assert_starts(call(SCRIPT_STORE, "begin", "3000/8", NULL), "OK ");
	assert_starts(call(SCRIPT_STORE, "init", "3000/16", NULL), "OK ");
	assert_starts(call(SCRIPT_STORE, "init", "3000/8", NULL), "TTL 3000/16 "); /* fewer */
	assert_starts(call(SCRIPT_STORE, "init", "3000", NULL), "TTL 3000/16 ");
	command("HSET dflock:{0}:store open 0"); /* no lock was granted there */
	assert_starts(call(SCRIPT_STORE, "init", "3000/8", NULL), "OK ");
	assert_starts(call(SCRIPT_STORE, "init", "3000/16", NULL), "OK ");
	command("HSET dflock:{0}:hosts A %lld", 9000000000000000LL);
	assert_says(call(SCRIPT_STORE, "init", "3000/32", NULL), "TTL 3000/16 A");
}

#define begin_telling(fence) call(SCRIPT_STORE, "begin", "3000", "", fence, NULL)

/* The store is empty and its clock is behind: the numbers of before are told by the hosts that come back, in any order. */
TEST(hosts_tell_the_largest_fence)
{
	command("FLUSHALL");
	begin_telling("3000000000000000");
	const char *now = keep(command("HGET dflock:{0}:store inc"));
	assert_says(command("HGET dflock:{0}:store fence"), "3000004294967296");
	begin_telling("2999999999999999");
	begin_telling("0");
	call(SCRIPT_STORE, "begin", "3000", NULL); /* of a host of an earlier version */
	begin_telling("4503599627370496");         /* made up: near the numbers that a double cannot hold */
	begin_telling("18446744073709551615");
	begin_telling("nan");
	begin_telling("-inf");
	assert_says(command("HGET dflock:{0}:store fence"), "3000004294967296");
	assert_says(command("HGET dflock:{0}:store inc"), now);
	strcpy(incarnation, "");
	begin_telling("3100000000000000");
	assert_says(command("HGET dflock:{0}:store fence"), "3100004294967296");
	/* It has told, and learnt this one: a host that connects often does not use the room up. */
	strcpy(incarnation, now);
	assert_has(begin_telling("3100004294967296"), " 3100004294967296");
	assert_says(reclaim("A", 'z', "4503599627370497", "exclusive"), "OK 4503599627370497 exclusive");
	assert_says(release('z'), "OK");
	opens();
	ck_assert_uint_eq(fence_of(acquire("A", 'a', 'x')), 3100004294967297);
}

/* Its clock is right: the numbers do not run ahead of it, so those of the next memory are larger though no host that knows these comes back. */
TEST(fences_do_not_run_ahead_of_the_clock)
{
	uint64_t one = fence_of(acquire("A", 'a', 'x')), two, three;

	usleep(2000);
	command("FLUSHALL");
	begin_telling(number_text(one));
	begin("init");
	two = fence_of(acquire("A", 'b', 'x'));
	usleep(2000);
	command("FLUSHALL");
	begin("init");
	three = fence_of(acquire("A", 'c', 'x'));
	ck_assert_uint_gt(two, one);
	ck_assert_uint_gt(three, two);
}

/* The address leads to another server, which is open, and then back to the first, which still has its memory. */
TEST(another_past)
{
	const char *here = keep(incarnation), *there;

	assert_says(command("HGET dflock:{0}:store open"), "1");
	strcpy(incarnation, "elsewhere-1-2");
	assert_ends_with_grace(call(SCRIPT_STORE, "begin", "3000", NULL));
	assert_says(acquire("B", 'b', 'x'), "INC");
	there = keep(command("HGET dflock:{0}:store inc"));
	ck_assert_str_ne(there, here);
	/* A host that was here all the time, or also comes from there, has nothing new to tell. */
	const char *const known[] = {here, "elsewhere-1-2", ""};
	for (int i = 0; i < ROWS(known); i++) {
		strcpy(incarnation, known[i]);
		assert_has(call(SCRIPT_STORE, "begin", "3000", NULL), there);
	}
	for (int i = 0; i < 40; i++) {
		snprintf(incarnation, sizeof(incarnation), "elsewhere-3-%d", i);
		assert_ends_with_grace(call(SCRIPT_STORE, "begin", "3000", NULL));
	}
	ck_assert_uint_lt(strlen(command("HGET dflock:{0}:store earlier")), 16 * 70);
}

/* Evicted, or deleted by hand: then nothing that the store says can be relied on. */
TEST(a_lock_that_vanished)
{
	assert_granted(acquire("A", 'a', 'x'));
	assert_says(release('a'), "OK"); /* gone, and nothing lost */
	const char *fence = fence_text(acquire("A", 'b', 'x'));
	command("DEL dflock:{0}:lock:" NAME_OF_ONE_WORD);
	assert_granted(acquire("C", 'd', 's', .name = NAME_OF_ONE_WORD));
	command("DEL dflock:{0}:lock:" NAME_OF_ONE_WORD);
	assert_says(acquire("B", 'c', 'x', .name = NAME_OF_ONE_WORD), "INC");
	assert_says(acquire("B", 'c', 'x'), "INC"); /* every host that asks hears of it */
	assert_says(call(SCRIPT_BEAT, "B", NULL), "INC");
	begin("begin");
	assert_says(acquire("B", 'c', 'x', .name = NAME_OF_ONE_WORD), "GRACE");
	assert_starts(reclaim("A", 'b', fence, "exclusive"), "OK ");
	opens();
	assert_granted(acquire("B", 'c', 'x', .name = NAME_OF_ONE_WORD));
	assert_starts(acquire("B", 'e', 'x'), "WAIT A ");
}

#define sit(seat, next)   call(SCRIPT_BEAT, "A", "0", "0", seat, next, NULL)
#define enter(seat, next) call(SCRIPT_STORE, "begin", "3000", "", "0", "A", seat, next, NULL)

/* One host, two keepers: the second one of a seat is refused, whichever it is, and raises no beat. */
TEST(one_seat)
{
	assert_starts(enter("0", "1"), "OK ");
	assert_starts(enter("0", "1"), "OK "); /* the answer was lost */
	assert_says(sit("0", "1"), "OK");
	assert_says(sit("1", "2"), "OK");
	const char *beat = beat_of("A");
	assert_says(enter("1", "3"), "TWICE"); /* a copy that was made before */
	assert_says(sit("1", "3"), "TWICE");
	assert_says(beat_of("A"), beat);
	assert_says(sit("2", "4"), "OK");
	assert_starts(enter("4", "5"), "OK "); /* a copy is faster */
	assert_says(sit("4", "6"), "TWICE");
	assert_says(call(SCRIPT_BEAT, "A", "0", "0", NULL), "OK"); /* of an earlier version */
	assert_says(call(SCRIPT_LEAVE, "A", "", NULL), "OK");
	assert_says(sit("7", "8"), "OK");
	command("HDEL dflock:{0}:store inc");
	begin("begin"); /* a lost memory: seats of before are void, since a replica may have older ones */
	assert_starts(enter("1", "3"), "OK "); /* a late one gives none: the host has moved on */
	assert_says(sit("9", "10"), "OK");
	assert_says(enter("1", "3"), "TWICE");
	assert_says(sit("8", "11"), "TWICE");
}

/* What all hosts have in common is changed in three steps. */
TEST(another_number_of_shards)
{
	static const char *const steps[] = {"may", "take", "init"};

	begin("begin");
	opens();
	assert_says(call(SCRIPT_STORE, "may", "3000", NULL), "MAY");
	assert_granted(acquire("A", 'a', 'x'));
	assert_says(call(SCRIPT_BEAT, "A", NULL), "OK");
	for (int i = 0; i < 3; i++)
		assert_says(call(SCRIPT_STORE, steps[i], "3000/2", "", "0", NULL), "TTL 3000 A");
	assert_says(call(SCRIPT_LEAVE, "A", "", NULL), "OK");
	assert_says(call(SCRIPT_STORE, "may", "3000/2", "", "0", NULL), "MAY");
	assert_says(command("HGET dflock:{0}:store ttl_ms"), "3000");
	assert_starts(call(SCRIPT_STORE, "take", "3000/2", "", "0", NULL), "OK ");
	assert_says(command("HMGET dflock:{0}:store ttl_ms open"), "3000/2 0");
	assert_says(acquire("A", 'a', 'x'), "INC");
	assert_starts(call(SCRIPT_STORE, "init", "3000/2", "", "0", NULL), "OK ");
	assert_says(command("HMGET dflock:{0}:store ttl_ms open"), "3000/2 1");
}

/* Its requests of long ago are executed late, and its keeper has moved on to 5. */
TEST(a_host_that_was_given_up_has_no_seat)
{
	char mark[64];

	assert_starts(enter("0", "1"), "OK ");
	assert_says(sit("1", "5"), "OK");
	const char *beat = beat_of("A");
	assert_says(call(SCRIPT_GIVE_UP, "A", beat, NULL), "OK");
	assert_starts(enter("5", "6"), "OK "); /* before the host's locks are swept */
	assert_says(call(SCRIPT_LEAVE, "A", beat, NULL), "OK");
	assert_starts(enter("1", "2"), "OK ");
	assert_starts(sit("2", "3"), "GIVENUP ");
	assert_starts(enter("6", "7"), "OK ");
	ck_assert_int_eq(sscanf(sit("7", "8"), "GIVENUP %63s", mark), 1);
	assert_says(call(SCRIPT_BEAT, "A", mark, "0", "7", "8", NULL), "OK");
	assert_says(sit("6", "9"), "TWICE");
}

TEST(hosts_that_vanished)
{
	assert_granted(acquire("A", 'a', 'x'));
	command("DEL dflock:{0}:hosts");
	assert_says(acquire("B", 'b', 'x'), "WAIT A 0 0 holds"); /* not: silent since 1970 */
	assert_says(call(SCRIPT_BEAT, "A", NULL), "OK");
	assert_starts(acquire("B", 'b', 'x', .dead_host = "A", .dead_beat = "0"), "WAIT A ");
}

/* A was never told of its lease, and called dead. B had the lock and gave it back; then an old snapshot brought A's lease back. */
TEST(what_a_snapshot_brings_back_gets_a_new_fence)
{
	uint64_t of_a = fence_of(acquire("A", 'a', 's')), again;
	const char *of_b = number_text(of_a + 5), *of_c = fence_text(acquire("C", 'c', 's'));

	command("HSET dflock:{0}:store inc 0123-4567");
	begin_telling(of_b);
	strcpy(incarnation, command("HGET dflock:{0}:store inc"));
	/* C was told, and relies on it: it keeps its number. */
	ck_assert_uint_eq(fence_of(reclaim("C", 'c', of_c, "shared")), strtoull(of_c, NULL, 10));
	opens();
	hush();
	again = fence_of(acquire("A", 'a', 's'));
	ck_assert_uint_gt(again, strtoull(of_b, NULL, 10));
	ck_assert_uint_eq(fence_of(acquire("A", 'a', 's')), again);
	assert_heard(NULL);
	assert_has(call(SCRIPT_CONFIRM, "A", token('a'), number_text(again), NULL), "OK ");
	assert_has(call(SCRIPT_CONFIRM, "C", token('c'), of_c, NULL), "OK ");
}

/* An old snapshot has A's exclusive lease, which A has shrunk since, so that B has a shared one. */
TEST(what_was_shrunk_is_put_back_as_shared)
{
	uint64_t fence = fence_of(acquire("A", 'a', 'x'));
	const char *of_a = number_text(fence), *of_b = number_text(fence + 1);

	command("HDEL dflock:{0}:store inc");
	begin("begin");
	assert_has(reclaim("A", 'a', of_a, "shared"), " shared");
	assert_has(reclaim("B", 'b', of_b, "shared"), " shared");
	opens();
	assert_has(call(SCRIPT_CONFIRM, "A", token('a'), of_a, NULL), " shared");
	assert_has(call(SCRIPT_CONFIRM, "B", token('b'), of_b, NULL), " shared");
}

/* B had the lock after A, so A has lost its lease, which an old snapshot may have brought back. */
TEST(an_older_lease_is_not_put_back_over_a_younger_one)
{
	command("FLUSHALL");
	begin("begin");
	assert_starts(reclaim("A", 'a', "7", "exclusive"), "OK 7");
	assert_starts(reclaim("B", 'b', "9", "exclusive"), "OK 9");
	assert_says(reclaim("A", 'a', "7", "exclusive"), "GONE");
}

/* Opening a store as a new one, and putting a lease back: the request that comes first decides. */
TEST(new_or_put_back)
{
	command("FLUSHALL");
	begin("begin");
	assert_starts(reclaim("A", 'a', "7", "exclusive"), "OK 7");
	assert_says(call(SCRIPT_STORE, "new", "3000", "", NULL),
		    "KNOWN there was an earlier memory of it, and hosts have put back leases of 1 lock (" NAME
		    " of A)");
	assert_says(acquire("B", 'b', 'x'), "GRACE");

	command("FLUSHALL");
	begin("begin");
	assert_says(call(SCRIPT_STORE, "new", "3000", "another", NULL),
		    "KNOWN there was an earlier memory of it (another)");
	assert_says(call(SCRIPT_STORE, "new", "4000", "", NULL), "TTL 3000 ");
	assert_starts(call(SCRIPT_STORE, "new", "3000", "", NULL), "OK ");
	assert_says(reclaim("A", 'a', "7", "exclusive"), "GONE");
	assert_granted(acquire("B", 'b', 'x'));
	assert_starts(call(SCRIPT_STORE, "new", "3000", "another", NULL), "OK "); /* it is open */

	/* A host comes from another incarnation: this one began after it. */
	command("FLUSHALL");
	begin("begin");
	strcpy(incarnation, "0123-1-1");
	assert_starts(call(SCRIPT_STORE, "begin", "3000", NULL), "OK ");
	assert_says(call(SCRIPT_STORE, "new", "3000", "", NULL), "INC");
	begin("begin");
	assert_starts(call(SCRIPT_STORE, "new", "3000", "", NULL), "KNOWN there was an earlier memory of it (");
}

/* A host with the old one beats too seldom for hosts with a shorter one, which would call it dead. */
TEST(ttl_must_be_the_same)
{
	assert_says(call(SCRIPT_STORE, "begin", "4000", NULL), "TTL 3000 ");
	assert_says(call(SCRIPT_STORE, "open", "4000", NULL), "TTL 3000 ");
	for (char name[] = "A"; *name <= 'D'; name[0]++) {
		assert_says(call(SCRIPT_BEAT, name, NULL), "OK");
		if (*name == 'A')
			assert_says(call(SCRIPT_STORE, "init", "100", NULL), "TTL 3000 A");
	}
	assert_has(call(SCRIPT_STORE, "init", "100", NULL), ", ...");
	assert_starts(call(SCRIPT_STORE, "init", "3000", NULL), "OK "); /* it has the same */
	command("DEL dflock:{0}:hosts");
	command("HSET dflock:{0}:hosts A 5"); /* it was silent for long */
	assert_starts(call(SCRIPT_STORE, "init", "100", NULL), "OK ");
	assert_says(call(SCRIPT_BEAT, "A", NULL), "INC"); /* it was only cut off, and must find out */
	assert_says(call(SCRIPT_STORE, "begin", "3000", NULL), "TTL 100 ");
}

/* ---- what else ---- */

TEST(wrong_types_change_nothing)
{
	OF_REDIS;
	command("LPUSH dflock:{0}:lock:%s x", NAME);
	assert_has(acquire("A", 'a', 'x'), "WRONGTYPE");
	assert_has(release('a'), "WRONGTYPE");
	command("DEL dflock:{0}:lock:%s", NAME);
	command("SET dflock:{0}:lock:%s garbage", NAME);
	assert_has(acquire("A", 'a', 'x'), "something else wrote dflock:{0}:lock:" NAME);
	assert_says(command("HGETALL dflock:{0}:hosts"), "");
	command("DEL dflock:{0}:lock:%s", NAME);
	command("HSET dflock:{0}:store fence many");
	assert_has(acquire("A", 'a', 'x'), "ERR");
	assert_says(command("EXISTS dflock:{0}:lock:%s", NAME), "0");
}

TEST(out_of_memory)
{
	const char *fence = fence_text(acquire("A", 'a', 'x'));

	OF_REDIS;
	acquire("B", 'b', 'x');
	command("CONFIG SET maxmemory 1");
	const char *said[] = {
		keep(acquire("C", 'c', 'x', .space = 'r')),
		keep(call(SCRIPT_BEAT, "A", NULL)),
		keep(call(SCRIPT_CONFIRM, "A", token('a'), fence, NULL)),
		keep(call(SCRIPT_SHRINK, token('a'), NULL)),
		keep(release('a')),
		keep(call(SCRIPT_DUMP, NULL)),
	};
	command("CONFIG SET maxmemory 0");
	assert_has(said[0], "OOM");
	for (int i = 1; i < ROWS(said); i++)
		assert_starts(said[i], "OK");
	assert_says(command("HEXISTS dflock:{0}:hosts C"), "0");
	assert_granted(acquire("B", 'b', 'x'));
}
