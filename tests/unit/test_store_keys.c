/* store/rules: leases that are also the lock of a key (redis_key), beside clients that take the key as their libraries do. */
#define SCRIPTS_OF_REDIS /* keys of clients */
#include "tests/unit/script_calls.h"

#define KEY      "jobs:nightly"
#define STRING   "string " KEY
#define REDISSON "redisson " KEY
#define A_TOKEN  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B_TOKEN  "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define HELD     "dflock:{0}:keys:A"

/* acquire() of a name without blanks, with a key. */
#define keyed(h, t, ...)          acquire(h, t, 'x', .name = NAME_OF_ONE_WORD, .key = STRING, ##__VA_ARGS__)
#define keyed_redisson(h, t, ...) acquire(h, t, 'x', .name = NAME_OF_ONE_WORD, .key = REDISSON, ##__VA_ARGS__)

/* The ttl_ms of connect_and_init(). */
#define TTL 3000

static const char *give_back(char letter)
{
	return call_name(SCRIPT_RELEASE, NAME_OF_ONE_WORD, token(letter), "0", "A", NULL);
}

static const char *beat(const char *known) { return call(SCRIPT_BEAT, "A", "0", known, NULL); }
static long long left_of_key(void) { return atoll(command("PTTL " KEY)); }

/* A client with the libraries' recipe. */
static const char *client_takes(const char *value) { return command("SET " KEY " %s NX PX 60000", value); }

/* "TAKEN 17 59990 other" as "TAKEN other". */
static const char *taken(const char *answer)
{
	static char text[64];
	long long left = 0;
	char who[32] = "";

	if (sscanf(answer, "TAKEN %lld %31s", &left, who) < 1 || left > 60000)
		return answer;
	snprintf(text, sizeof(text), "TAKEN%s%s%s", left < 0 ? " for ever" : "", *who ? " " : "", who);
	return text;
}

TEST(the_grant_takes_the_key)
{
	uint64_t fence = fence_of(keyed("A", 'a'));

	ck_assert_uint_gt(fence, 0);
	assert_says(command("GET " KEY), A_TOKEN);
	ck_assert_int_gt(left_of_key(), TTL - 1000);
	ck_assert_int_le(left_of_key(), TTL);
	assert_says(client_takes("other"), "(nil)");
	ck_assert_uint_eq(fence_of(keyed("A", 'a')), fence);
	assert_says(give_back('a'), "OK");
	assert_says(command("EXISTS " KEY " " HELD), "0");
	assert_says(client_takes("other"), "OK");
}

TEST(a_clients_key_is_respected)
{
	client_takes("other");
	assert_says(taken(keyed("A", 'a', .ask = "1")), "TAKEN other");
	assert_says(command("KEYS dflock:{0}:lock:*"), ""); /* one that only asks is not queued */
	assert_says(taken(keyed("A", 'a')), "TAKEN other");
	assert_says(taken(keyed("A", 'a')), "TAKEN other"); /* asks again */
	command("PERSIST " KEY);
	assert_says(taken(keyed("A", 'a')), "TAKEN for ever other");
	command("SET " KEY " %s", "\x01 secret-of-a-client");
	assert_says(taken(keyed("A", 'a')), "TAKEN for ever ??secret");
	command("DEL " KEY);
	assert_granted(keyed("A", 'a'));
	assert_says(command("GET " KEY), A_TOKEN);
}

/* There is no moment in which the key is free: the script sets it as it hands over. */
TEST(the_key_is_handed_over)
{
	assert_granted(keyed("A", 'a'));
	assert_starts(keyed("B", 'b'), "WAIT A ");
	assert_heard("A: recall aaaa", NULL);
	assert_says(give_back('a'), "OK");
	assert_heard("B: granted bbbb", NULL);
	assert_says(command("GET " KEY), B_TOKEN);
	assert_says(command("HGET dflock:{0}:keys:B " NAME_OF_ONE_WORD), B_TOKEN " " STRING);
	assert_says(command("EXISTS " HELD), "0");
	assert_granted(keyed("B", 'b'));
}

/* The first waiter is granted when the client is done, whichever host asks. */
TEST(waiters_for_a_client_keep_their_order)
{
	client_takes("other");
	assert_says(taken(keyed("A", 'a')), "TAKEN other");
	assert_starts(keyed("B", 'b'), "WAIT A ");
	command("DEL " KEY);
	assert_starts(keyed("B", 'b'), "WAIT A ");
	assert_heard("A: granted aaaa", "A: recall aaaa", "A: recall aaaa", NULL);
	assert_says(command("GET " KEY), A_TOKEN);
}

TEST(two_leases_of_one_host_exclude_each_other)
{
	assert_granted(keyed("A", 'a'));
	assert_starts(keyed("A", 'b'), "WAIT A "); /* the older one goes back first, so that clients get their turn */
	assert_heard("A: recall aaaa", NULL);
	give_back('a');
	assert_says(command("GET " KEY), B_TOKEN);
}

TEST(the_two_spaces_of_a_file_have_one_key)
{
	assert_granted(keyed("A", 'a'));
	assert_granted(keyed("A", 'b', .space = 'r'));
	assert_says(command("GET " KEY), A_TOKEN);
	assert_says(give_back('a'), "OK"); /* the other lease has it now */
	assert_says(command("GET " KEY), B_TOKEN);
	assert_says(beat("1"), "OK");
	assert_says(taken(keyed("B", 'c', .ask = "1")), "TAKEN bbbbbbbb");
	assert_says(give_back('b'), "OK");
	assert_says(command("EXISTS " KEY " " HELD), "0");
}

TEST(a_beat_renews_the_key)
{
	assert_granted(keyed("A", 'a'));
	command("PEXPIRE " KEY " 1000");
	assert_says(beat("1"), "OK");
	ck_assert_int_gt(left_of_key(), 1000);
	command("PEXPIRE " KEY " 1000");
	command("HINCRBY " HELD " %s -1000", "");              /* as if that were a second ago */
	ck_assert_int_ne(fence_of(acquire("A", 'c', 'x')), 0); /* counts as a beat, too */
	ck_assert_int_gt(left_of_key(), 1000);
}

TEST(a_beat_finds_another_token)
{
	assert_granted(keyed("A", 'a'));
	command("SET " KEY " other PX 60000");
	assert_says(beat("1"), "KEYS theirs " A_TOKEN " " NAME_OF_ONE_WORD);
	command("DEL " KEY);
	assert_says(beat("1"), "KEYS lost " A_TOKEN " " NAME_OF_ONE_WORD); /* it stays lost */
	assert_says(command("EXISTS " KEY), "0");
	command("SET " KEY " other PX 60000");
	assert_says(give_back('a'), "OK"); /* and the client keeps its key */
	assert_says(command("GET " KEY), "other");
	assert_says(beat("0"), "OK");
}

TEST(a_beat_finds_something_else)
{
	assert_granted(keyed("A", 'a'));
	command("DEL " KEY);
	command("RPUSH " KEY " x");
	assert_says(beat("1"), "KEYS other " A_TOKEN " " NAME_OF_ONE_WORD);
	give_back('a');
	assert_says(command("TYPE " KEY), "list");
	assert_says(keyed("A", 'b', .ask = "1"), "KEYTYPE the key " KEY " is a list");
	assert_says(keyed("A", 'b'), "KEYTYPE the key " KEY " is a list");
	assert_says(command("KEYS dflock:{0}:lock:*"), "");
}

TEST(a_key_that_was_deleted_is_put_back)
{
	assert_granted(keyed("A", 'a'));
	command("DEL " KEY);
	assert_says(beat("1"), "KEYS back " A_TOKEN " " NAME_OF_ONE_WORD);
	assert_says(command("GET " KEY), A_TOKEN);
	ck_assert_int_gt(left_of_key(), TTL - 1000);
	assert_says(beat("1"), "OK");
}

/* The host was silent for longer than ttl_ms: a client may have had the key, though it is free again. */
TEST(a_key_that_expired_is_lost)
{
	const char *fence = fence_text(keyed("A", 'a'));

	command("DEL " KEY);
	command("HINCRBY " HELD " %s -3001", "");
	/* What is no beat can tell nobody, and changes nothing; but a lease without its key is not confirmed. */
	ck_assert_int_ne(fence_of(acquire("A", 'c', 'x')), 0);
	assert_says(call_name(SCRIPT_CONFIRM, NAME_OF_ONE_WORD, "A", token('a'), fence, NULL), "GONE");
	assert_says(beat("1"), "KEYS free " A_TOKEN " " NAME_OF_ONE_WORD);
	assert_says(command("EXISTS " KEY), "0");
	assert_says(beat("1"), "KEYS lost " A_TOKEN " " NAME_OF_ONE_WORD);
}

TEST(a_lease_that_its_host_does_not_know)
{
	assert_granted(keyed("A", 'a'));
	assert_says(beat("0"), "KEYS extra " A_TOKEN " " NAME_OF_ONE_WORD);
	command("DEL dflock:{0}:lock:" NAME_OF_ONE_WORD);
	command("HDEL dflock:{0}:store dflock:{0}:lock:" NAME_OF_ONE_WORD);
	assert_says(give_back('a'), "OK"); /* the lock knows no such token, and the key goes all the same */
	assert_says(command("EXISTS " KEY " " HELD), "0");
}

TEST(a_dead_host_has_no_key)
{
	assert_granted(keyed("A", 'a'));
	assert_granted(keyed("B", 'b', .dead_host = "A", .dead_beat = beat_of("A")));
	assert_says(command("GET " KEY), B_TOKEN);
	assert_says(command("EXISTS " HELD), "0");
	command("SET " KEY " other");
	assert_says(taken(keyed("C", 'c', .dead_host = "B", .dead_beat = beat_of("B"))), "TAKEN for ever other");
	assert_says(command("GET " KEY), "other");
}

/* Waiting leases that have followed each other for a second leave the key free for a moment. */
TEST(clients_get_their_turn)
{
	assert_granted(keyed("A", 'a'));
	assert_starts(keyed("B", 'b'), "WAIT A ");
	give_back('a');
	assert_says(command("GET " KEY), B_TOKEN); /* at once: it is not a second */
	assert_starts(keyed("A", 'c'), "WAIT B ");
	/* Now it is. */
	command("SET dflock:{0}:turn:" NAME_OF_ONE_WORD " 1 PX 60000");
	command("EVAL %s 1 dflock:{0}:lock:" NAME_OF_ONE_WORD,
		"local l = cmsgpack.unpack(redis.call('GET', KEYS[1])) l.l[1].run = 1 "
		"redis.call('SET', KEYS[1], cmsgpack.pack(l))");
	assert_heard("A: recall aaaa", "B: granted bbbb", "B: recall bbbb", NULL);
	give_back('b');
	assert_says(command("EXISTS " KEY), "0");
	assert_heard("A: again cccc", NULL); /* else it asks when it thinks that the host before it may be dead */
	assert_says(taken(keyed("A", 'c')), "TAKEN"); /* it asks again when that is over */
	assert_says(client_takes("other"), "OK");
	assert_says(taken(keyed("A", 'c')), "TAKEN other");
	command("DEL " KEY);
	assert_granted(keyed("C", 'd', .ask = "1", .pass = "1")); /* must not be told that somebody has it */
}

/* The host of the first waiter was cut off when the lease was handed over to it, for longer than the key lasts. It asks again. */
TEST(a_key_that_expired_before_its_host_knew)
{
	assert_granted(keyed("A", 'a'));
	assert_starts(keyed("B", 'b'), "WAIT A ");
	give_back('a');
	assert_says(command("GET " KEY), B_TOKEN);
	command("DEL " KEY);
	client_takes("other");
	assert_says(taken(keyed("B", 'b')), "TAKEN other");
	assert_says(taken(keyed("B", 'b')), "TAKEN other"); /* whatever it does */
	assert_says(give_back('b'), "OK");
	assert_says(command("GET " KEY), "other");
	command("DEL " KEY);
	assert_granted(keyed("B", 'c'));
}

static const char *put_back(const char *host, char letter, const char *fence)
{
	return call_name(SCRIPT_RECLAIM, NAME_OF_ONE_WORD, host, token(letter), fence, "1:1", "flock", "exclusive",
			 "0000000000000000000", "9223372036854775807", STRING, NULL);
}

/* A snapshot from before the lease was handed over: its key has the token of the lease before. */
TEST(an_old_snapshot_has_an_old_key)
{
	const char *fence = number_text(fence_of(keyed("A", 'a')) + 1);

	command("HSET dflock:{0}:store open 0");
	assert_starts(put_back("B", 'b', fence), "OK ");
	assert_says(command("GET " KEY), B_TOKEN);
	assert_says(command("EXISTS " HELD), "0");
}

TEST(grace)
{
	const char *fence = fence_text(keyed("A", 'a'));

	command("FLUSHALL");
	begin("begin");
	client_takes("other"); /* clients know no grace */
	assert_says(put_back("A", 'a', fence), "GONE");
	command("DEL " KEY);
	assert_starts(put_back("A", 'a', fence), "OK ");
	assert_says(command("GET " KEY), A_TOKEN);
	assert_starts(put_back("A", 'a', fence), "OK ");
	assert_says(beat("1"), "OK");
	ck_assert_int_gt(left_of_key(), 0);
	/* A snapshot that has the lease and not the key. */
	command("DEL " KEY);
	assert_starts(put_back("A", 'a', fence), "OK ");
	assert_says(command("GET " KEY), A_TOKEN);
	command("SET " KEY " other");
	assert_says(put_back("A", 'a', fence), "GONE");
}

TEST(redisson)
{
	redisReply *reply;

	freeReplyObject(redisCommand(listener, "SUBSCRIBE redisson_lock__channel:{" KEY "}"));
	assert_granted(keyed_redisson("A", 'a'));
	assert_says(command("HGETALL " KEY), A_TOKEN ":1 1");
	ck_assert_int_gt(left_of_key(), TTL - 1000);
	command("PEXPIRE " KEY " 1000");
	assert_says(beat("1"), "OK");
	ck_assert_int_gt(left_of_key(), 1000);
	assert_starts(keyed_redisson("B", 'b'), "WAIT A ");
	heard();
	give_back('a');
	assert_says(command("HGETALL " KEY), B_TOKEN ":1 1");
	redisGetReply(listener, (void **)&reply); /* as its unlock() says; a client that wakes finds the key taken */
	freeReplyObject(reply);
	heard();
	call_name(SCRIPT_RELEASE, NAME_OF_ONE_WORD, token('b'), "0", "B", NULL);
	redisGetReply(listener, (void **)&reply);
	assert_says(reply->element[1]->str, "redisson_lock__channel:{" KEY "}");
	assert_says(reply->element[2]->str, "0");
	freeReplyObject(reply);
	command("HSET " KEY " 8743c9c0-0795-4907-87fd-6c719a6b4586:1 2");
	command("PEXPIRE " KEY " 30000");
	assert_says(taken(keyed_redisson("A", 'a')), "TAKEN 8743c9c0");
	assert_says(taken(keyed("A", 'c', .ask = "1", .pass = "1")), "KEYTYPE the key " KEY " is a hash");
}
