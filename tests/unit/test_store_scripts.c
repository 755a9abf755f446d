/* The store's scripts, called one by one on a real server: who gets what in which state, and what is published. */
#include <inttypes.h>
#include <stdarg.h>

#include "store/reply.h"
#include "store/scripts.h"
#include "tests/unit/redis_server.h"

#define NAME             "/var/lock/a b.lock"
#define NAME_OF_ONE_WORD "word" /* for command() */

static struct redis_server server;
static redisContext *redis, *listener;
static char incarnation[STORE_INC_BYTES];
static bool with_flags = true; /* as for Redis 7; without: as for 6.2 */

/* ---- asking ---- */

/* The answer as words, lists flattened. Static. */
static const char *words(const redisReply *reply)
{
	static char text[65536];
	static size_t used;
	static int depth;

	if (depth == 0)
		memset(text, used = 0, 2);
	if (reply->type == REDIS_REPLY_ARRAY) {
		depth++;
		for (size_t i = 0; i < reply->elements; i++)
			words(reply->element[i]);
		depth--;
	} else if (reply->type == REDIS_REPLY_INTEGER) {
		used += (size_t)snprintf(text + used, sizeof(text) - used, " %lld", reply->integer);
	} else {
		used += (size_t)snprintf(text + used, sizeof(text) - used, " %s", reply->str ? reply->str : "(nil)");
	}
	ck_assert_uint_lt(used, sizeof(text));
	return text + 1;
}

static const char *run(redisContext *c, int argc, const char **argv)
{
	redisReply *reply = redisCommandArgv(c, argc, argv, NULL);

	ck_assert_msg(reply != NULL, "%s", c->errstr);
	const char *text = words(reply);
	freeReplyObject(reply);
	return text;
}

__attribute__((format(printf, 1, 2))) static const char *command(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	redisReply *reply = redisvCommand(redis, format, args);
	va_end(args);
	ck_assert_msg(reply != NULL, "%s", redis->errstr);
	const char *text = words(reply);
	freeReplyObject(reply);
	return text;
}

/* Runs a script on lock `name` (NULL: it takes none); the arguments end with NULL. */
static const char *call_on(enum script_id id, const char *name, const char *first, va_list more)
{
	const char *argv[64];
	char key[1200], keys[2];
	int argc = 0;
	char *text = script_text(id, with_flags);

	snprintf(key, sizeof(key), "dflock:{0}:lock:%s", name ? name : "");
	snprintf(keys, sizeof(keys), "%d", script_keys(id));
	argv[argc++] = "EVAL";
	argv[argc++] = text;
	argv[argc++] = keys;
	argv[argc++] = "dflock:{0}:store";
	argv[argc++] = "dflock:{0}:hosts";
	if (name)
		argv[argc++] = key;
	argv[argc++] = incarnation;
	for (const char *arg = first; arg; arg = va_arg(more, const char *))
		argv[argc++] = arg;
	const char *answer = run(redis, argc, argv);
	free(text);
	return answer;
}

static const char *call(enum script_id id, const char *first, ...)
{
	va_list more;

	va_start(more, first);
	const char *answer = call_on(id, script_keys(id) == 3 ? NAME : NULL, first, more);
	va_end(more);
	return answer;
}

static const char *call_name(enum script_id id, const char *name, const char *first, ...)
{
	va_list more;

	va_start(more, first);
	const char *answer = call_on(id, name, first, more);
	va_end(more);
	return answer;
}

static const char *token(char letter)
{
	static char tokens[8][33];
	static unsigned next;
	char *t = tokens[next++ % 8];

	memset(t, letter, 32);
	return t;
}

struct want {
	const char *host;
	char token;
	char mode; /* 's', 'x' */
	const char *from, *to;
	char space; /* 'r'; else flock */
	const char *file;
	const char *ask, *pass, *grow;
	const char *dead_host, *dead_beat;
	const char *name; /* NULL: NAME */
};

/* "WAIT 17 A ..." as "WAIT A ...": who waits is numbered; the number is a test's of its own. */
static const char *without_arrival(const char *answer)
{
	static char rest[4096];
	char verdict[8];
	int skip;

	skip = 0;
	if (sscanf(answer, "%7[A-Z] %*[0-9]%n", verdict, &skip) != 1 || !skip || strcmp(verdict, "OK") == 0)
		return answer;
	snprintf(rest, sizeof(rest), "%s%s", verdict, answer + skip);
	return rest;
}

static const char *acquire_want(const struct want *w)
{
	char from[24], to[24];
	const char *range[2] = {w->from ? w->from : "0", w->to ? w->to : "9223372036854775807"};

	snprintf(from, sizeof(from), REPLY_OFFSET, (int64_t)strtoll(range[0], NULL, 10));
	snprintf(to, sizeof(to), REPLY_OFFSET, (int64_t)strtoll(range[1], NULL, 10));
	return without_arrival(call_name(SCRIPT_ACQUIRE, w->name ? w->name : NAME, w->host, w->file ? w->file : "1:1",
					 token(w->token), w->space == 'r' ? "record" : "flock",
					 w->mode == 's' ? "shared" : "exclusive", from, to, w->ask ? w->ask : "0",
					 w->pass ? w->pass : "0", "1", w->grow ? w->grow : "0", w->dead_host,
					 w->dead_beat, NULL));
}
/* acquire("A", 'a', 'x', .pass = "1"): host, token, mode, and what is not usual. */
#define acquire(h, t, m, ...) acquire_want(&(struct want){.host = h, .token = t, .mode = m, ##__VA_ARGS__})
#define RANGE(a, b)           .from = a, .to = b
#define RECORD(a, b)          .space = 'r', .from = a, .to = b
#define release(letter)       call(SCRIPT_RELEASE, token(letter), NULL)

/* Of the whole of NAME. */
static const char *reclaim(const char *host, char letter, const char *fence, const char *mode)
{
	return call(SCRIPT_RECLAIM, host, token(letter), fence, "1:1", "flock", mode, "0000000000000000000",
		    "9223372036854775807", NULL);
}

/* "OK FENCE MODE": the fence, 0 if it is no such answer. */
static uint64_t fence_of(const char *answer)
{
	uint64_t fence = 0;
	char mode[16] = "";

	if (sscanf(answer, "OK %" SCNu64 " %15s", &fence, mode) != 2)
		return 0;
	return fence;
}

static const char *beat_of(const char *host)
{
	static char beats[4][32];
	static unsigned next;
	char *beat = beats[next++ % 4];

	snprintf(beat, 32, "%s", command("HGET dflock:{0}:hosts %s", host));
	return beat;
}

/* The next published message as "HOST: TEXT", "" if there is none. A marker shows where the messages so far end. */
static const char *heard(void)
{
	static char queue[64][512], text[512];
	static unsigned first, count;
	bool marker = false;

	for (command("PUBLISH dflock:{0}:host:end end"); !marker;) {
		redisReply *reply;
		ck_assert_int_eq(redisGetReply(listener, (void **)&reply), REDIS_OK);
		marker = strcmp(reply->element[3]->str, "end") == 0;
		if (!marker)
			snprintf(queue[(first + count++) % 64], 512, "%s: %s", strrchr(reply->element[2]->str, ':') + 1,
				 reply->element[3]->str);
		ck_assert_uint_le(count, 64);
		freeReplyObject(reply);
	}
	if (count == 0)
		return "";
	strcpy(text, queue[first]);
	first = (first + 1) % 64;
	count--;
	return text;
}

/* ---- the server and a fresh store ---- */

static void start_server(void)
{
	redis_server_prepare(&server);
	redis_server_start(&server);
}

static void stop_server(void)
{
	redis_server_remove(&server);
}

static void begin(const char *what)
{
	char answer[512];

	strcpy(incarnation, "");
	snprintf(answer, sizeof(answer), "%s", call(SCRIPT_STORE, what, "3000", NULL));
	ck_assert_int_eq(sscanf(answer, "OK %127s", incarnation), 1);
}

static void connect_and_init(void)
{
	redis = redis_server_connect(&server);
	listener = redis_server_connect(&server);
	command("FLUSHALL");
	freeReplyObject(redisCommand(listener, "PSUBSCRIBE dflock:{0}:host:*"));
	begin("init");
}

static void disconnect(void)
{
	redisFree(redis);
	redisFree(listener);
}

#define assert_says(answer, text) ck_assert_str_eq(answer, text)
#define assert_starts(answer, text)                                                                                    \
	do {                                                                                                           \
		const char *a = answer;                                                                                \
		ck_assert_msg(strncmp(a, text, strlen(text)) == 0, "\"%s\" does not start with \"%s\"", a, text);      \
	} while (0)
#define assert_granted(answer)                                                                                         \
	do {                                                                                                           \
		const char *a = answer;                                                                                \
		ck_assert_msg(fence_of(a) > 0, "not granted: %s", a);                                                  \
	} while (0)

#define assert_ends_with_grace(answer)                                                                                 \
	do {                                                                                                           \
		const char *a = answer;                                                                                \
		ck_assert_msg(strncmp(a, "OK ", 3) == 0 && strcmp(a + strlen(a) - 2, " 0") == 0, "%s", a);             \
	} while (0)

/* ---- grants and conflicts ---- */

START_TEST(grant_again_and_conflict)
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
}
END_TEST

START_TEST(what_does_not_conflict)
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
END_TEST

#define ALL "0000000000000000000 9223372036854775807"

START_TEST(who_is_alone_gets_the_whole_range)
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
END_TEST

START_TEST(two_files_of_one_host_are_two_owners)
{
	assert_granted(acquire("A", 'a', 'x', .file = "1:1"));
	assert_starts(acquire("A", 'b', 'x', .file = "1:2"), "WAIT A ");
	assert_starts(heard(), "A: recall aaaa");
	assert_starts(acquire("A", 'b', 'x', .file = "1:2", .dead_host = "A", .dead_beat = beat_of("A")), "WAIT A ");
}
END_TEST

START_TEST(big_offsets_are_exact)
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
END_TEST

/* ---- order ---- */

START_TEST(order_of_arrival)
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
END_TEST

START_TEST(shared_waiters_are_granted_together)
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
END_TEST

START_TEST(cancelling_a_waiter_frees_those_behind_it)
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
END_TEST

START_TEST(pass_passes_waiters_but_not_holders)
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
END_TEST

START_TEST(questions_queue_once)
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
	release('a');
	assert_starts(heard(), "B: granted");
	/* One that waits and then only asks is taken out of the queue, and was all that D waited for. */
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
END_TEST

/* ---- the dead ---- */

START_TEST(the_dead_are_dropped_if_their_beat_is_the_same)
{
	assert_granted(acquire("A", 'a', 'x'));
	const char *seen = beat_of("A");
	ck_assert_ptr_nonnull(strstr(acquire("B", 'b', 'x'), seen));
	assert_says(call(SCRIPT_BEAT, "A", NULL), "OK");
	assert_starts(acquire("B", 'b', 'x', .dead_host = "A", .dead_beat = seen), "WAIT A ");
	assert_granted(acquire("B", 'b', 'x', .dead_host = "A", .dead_beat = beat_of("A")));
	assert_says(call(SCRIPT_CONFIRM, "A", token('a'), "1", NULL), "GONE");
}
END_TEST

START_TEST(a_host_without_a_beat_has_beat_zero)
{
	assert_granted(acquire("A", 'a', 'x'));
	assert_says(call(SCRIPT_LEAVE, "A", "", NULL), "OK");
	assert_starts(acquire("B", 'b', 'x'), "WAIT A 0 ");
	assert_granted(acquire("B", 'b', 'x', .dead_host = "A", .dead_beat = "0"));
}
END_TEST

START_TEST(dropping_the_dead_hands_over_in_order)
{
	assert_granted(acquire("A", 'a', 'x'));
	acquire("B", 'b', 'x');
	acquire("C", 'c', 'x');
	while (*heard())
		;
	assert_starts(acquire("C", 'c', 'x', .dead_host = "A", .dead_beat = beat_of("A")), "WAIT B ");
	assert_starts(heard(), "B: granted");
	assert_starts(heard(), "B: recall bbbb");
	/* A dead waiter in front goes too. */
	acquire("D", 'd', 'x');
	release('b');
	assert_granted(acquire("C", 'c', 'x'));
	acquire("E", 'e', 'x');
	release('c');
	assert_granted(acquire("D", 'd', 'x'));
	acquire("F", 'f', 'x');
	assert_starts(acquire("F", 'f', 'x', .dead_host = "E", .dead_beat = beat_of("E")), "WAIT D ");
	release('d');
	assert_granted(acquire("F", 'f', 'x'));
}
END_TEST

START_TEST(beats_only_grow)
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
END_TEST

/* ---- confirm, shrink, duplicates, limits ---- */

START_TEST(a_late_duplicate_revives_nothing)
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
END_TEST

START_TEST(shrink_lets_readers_in)
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
END_TEST

START_TEST(no_more_is_put_back_than_the_host_has)
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
END_TEST

START_TEST(a_waiter_that_waits_for_nobody_is_granted)
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
END_TEST

START_TEST(who_waits_asks_also_for_those_in_front)
{
	assert_granted(acquire("A", 'a', 'x'));
	acquire("A", 'b', 'x', .file = "1:2");
	while (*heard())
		;
	/* It is in nobody's way but that waiter's, whom its host may have forgotten, like the lease. */
	assert_starts(acquire("A", 'c', 'x'), "WAIT A ");
	assert_starts(heard(), "A: recall aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa A bbbb");
}
END_TEST

START_TEST(a_thousand_entries)
{
	char tokens[33], from[24], to[24];

	for (int i = 0; i < 1000; i++) {
		snprintf(tokens, sizeof(tokens), "%032d", i);
		snprintf(from, sizeof(from), REPLY_OFFSET, (int64_t)i * 10);
		snprintf(to, sizeof(to), REPLY_OFFSET, (int64_t)i * 10 + 10);
		assert_starts(call(SCRIPT_ACQUIRE, i < 500 ? "A" : "B", "1:1", tokens, "record", "exclusive", from, to,
				   "0", "0", "1", NULL),
			      "OK ");
	}
	assert_says(acquire("A", 'a', 'x', RECORD("5000", "5001")), "LIMIT");
	assert_says(acquire("A", 'a', 'x', RECORD("20000", "20001")), "LIMIT");
	const char *answer =
		acquire("A", 'a', 'x', RECORD("20000", "20001"), .dead_host = "B", .dead_beat = beat_of("B"));
	assert_granted(answer);
}
END_TEST

/* ---- the record ---- */

START_TEST(another_incarnation)
{
	char before[STORE_INC_BYTES];

	strcpy(before, incarnation);
	assert_granted(acquire("A", 'a', 'x'));
	acquire("B", 'b', 'x');
	command("FLUSHALL");
	assert_says(acquire("A", 'a', 'x'), "INC");
	assert_says(release('a'), "INC");
	assert_says(call(SCRIPT_SHRINK, token('a'), NULL), "INC");
	assert_says(call(SCRIPT_CONFIRM, "A", token('a'), "1", NULL), "INC");
	assert_says(call(SCRIPT_BEAT, "A", NULL), "INC");
	assert_says(call(SCRIPT_STORE, "open", "3000", NULL), "INC");
	assert_says(command("DBSIZE"), "0");
	begin("begin");
	assert_says(acquire("A", 'a', 'x'), "GRACE");
	assert_says(command("HGET dflock:{0}:store open"), "0");
	assert_starts(call(SCRIPT_STORE, "open", "3000", NULL), "OK ");
	assert_granted(acquire("A", 'a', 'x'));
	begin("begin"); /* of the same incarnation: still open */
	assert_granted(acquire("A", 'a', 'x'));
	ck_assert_str_ne(before, incarnation); /* the server is the same, but whoever asks later must hear of it too */
	strcpy(incarnation, before);
	assert_says(call(SCRIPT_BEAT, "B", NULL), "INC");
}
END_TEST

START_TEST(a_record_of_another_server)
{
	uint64_t fence = fence_of(acquire("A", 'a', 'x'));
	acquire("B", 'b', 'x');

	/* The keeper and the record agree, but this is another server: an old snapshot, a replica that was promoted. */
	command("HSET dflock:{0}:store inc 0123-4567 fence 9000000000000000");
	strcpy(incarnation, "0123-4567");
	assert_says(acquire("A", 'a', 'x'), "INC");
	assert_says(release('a'), "INC"); /* it would have handed over */
	assert_says(call(SCRIPT_BEAT, "A", NULL), "INC");
	assert_says(call(SCRIPT_SHRINK, token('a'), NULL), "INC");
	char text[24];
	snprintf(text, sizeof(text), "%" PRIu64, fence);
	assert_says(call(SCRIPT_CONFIRM, "A", token('a'), text, NULL), "INC");
	begin("begin");
	/* Above the old, and above what a replica may not have heard of. */
	assert_says(command("HGET dflock:{0}:store fence"), "9000004294967296");
	assert_says(acquire("C", 'c', 'x'), "GRACE");
	while (*heard())
		;
	assert_says(release('a'), "OK");
	assert_says(heard(), ""); /* in grace nothing is handed over */
	assert_starts(call(SCRIPT_STORE, "open", "3000", NULL), "OK ");
	ck_assert_uint_eq(fence_of(acquire("B", 'b', 'x')), 9000004294967297);
}
END_TEST

/* The address leads to another server, which is open, and then back to the first, which still has its memory. */
START_TEST(another_past)
{
	char here[STORE_INC_BYTES], there[STORE_INC_BYTES];

	strcpy(here, incarnation);
	assert_says(command("HGET dflock:{0}:store open"), "1");
	strcpy(incarnation, "elsewhere-1-2");
	assert_ends_with_grace(call(SCRIPT_STORE, "begin", "3000", NULL));
	assert_says(acquire("B", 'b', 'x'), "INC");
	snprintf(there, sizeof(there), "%s", command("HGET dflock:{0}:store inc"));
	ck_assert_str_ne(there, here);
	/* Whoever was here all the time, or comes from there as well, has nothing new to tell. */
	strcpy(incarnation, here);
	ck_assert_ptr_nonnull(strstr(call(SCRIPT_STORE, "begin", "3000", NULL), there));
	strcpy(incarnation, "elsewhere-1-2");
	ck_assert_ptr_nonnull(strstr(call(SCRIPT_STORE, "begin", "3000", NULL), there));
	strcpy(incarnation, "");
	ck_assert_ptr_nonnull(strstr(call(SCRIPT_STORE, "begin", "3000", NULL), there));
	for (int i = 0; i < 40; i++) {
		snprintf(incarnation, sizeof(incarnation), "elsewhere-3-%d", i);
		assert_ends_with_grace(call(SCRIPT_STORE, "begin", "3000", NULL));
	}
	ck_assert_int_lt(atoi(command("HSTRLEN dflock:{0}:store earlier")), 16 * 70);
}
END_TEST

/* Evicted, or deleted by hand: then nothing that the store says can be relied on. */
START_TEST(a_lock_that_vanished)
{
	char fence[24];

	assert_granted(acquire("A", 'a', 'x'));
	assert_says(release('a'), "OK"); /* gone, and nothing lost */
	snprintf(fence, sizeof(fence), "%" PRIu64, fence_of(acquire("A", 'b', 'x')));
	command("DEL dflock:{0}:lock:" NAME_OF_ONE_WORD);
	assert_granted(acquire("C", 'd', 's', .name = NAME_OF_ONE_WORD));
	command("DEL dflock:{0}:lock:" NAME_OF_ONE_WORD);
	assert_says(acquire("B", 'c', 'x', .name = NAME_OF_ONE_WORD), "INC");
	assert_says(acquire("B", 'c', 'x'), "INC"); /* whoever asks hears of it */
	assert_says(call(SCRIPT_BEAT, "B", NULL), "INC");
	begin("begin");
	assert_says(acquire("B", 'c', 'x', .name = NAME_OF_ONE_WORD), "GRACE");
	assert_starts(reclaim("A", 'b', fence, "exclusive"), "OK ");
	assert_starts(call(SCRIPT_STORE, "open", "3000", NULL), "OK ");
	assert_granted(acquire("B", 'c', 'x', .name = NAME_OF_ONE_WORD));
	assert_starts(acquire("B", 'e', 'x'), "WAIT A ");
}
END_TEST

START_TEST(hosts_that_vanished)
{
	assert_granted(acquire("A", 'a', 'x'));
	command("DEL dflock:{0}:hosts");
	assert_says(acquire("B", 'b', 'x'), "WAIT A 0 0 holds"); /* not: silent since 1970 */
	assert_says(call(SCRIPT_BEAT, "A", NULL), "OK");
	assert_starts(acquire("B", 'b', 'x', .dead_host = "A", .dead_beat = "0"), "WAIT A ");
}
END_TEST

/* An old snapshot has A's exclusive lease, which A has shrunk since, so that B has a shared one. */
START_TEST(what_was_shrunk_is_put_back_as_shared)
{
	char of_a[24], of_b[24];

	snprintf(of_a, sizeof(of_a), "%" PRIu64, fence_of(acquire("A", 'a', 'x')));
	snprintf(of_b, sizeof(of_b), "%" PRIu64, (uint64_t)strtoull(of_a, NULL, 10) + 1);
	command("HDEL dflock:{0}:store inc");
	begin("begin");
	ck_assert_ptr_nonnull(strstr(reclaim("A", 'a', of_a, "shared"), " shared"));
	ck_assert_ptr_nonnull(strstr(reclaim("B", 'b', of_b, "shared"), " shared"));
	assert_starts(call(SCRIPT_STORE, "open", "3000", NULL), "OK ");
	ck_assert_ptr_nonnull(strstr(call(SCRIPT_CONFIRM, "A", token('a'), of_a, NULL), " shared"));
	ck_assert_ptr_nonnull(strstr(call(SCRIPT_CONFIRM, "B", token('b'), of_b, NULL), " shared"));
}
END_TEST

/* Opening a store as a new one, and putting a lease back: whichever comes first decides. */
START_TEST(new_or_put_back)
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
	assert_says(call(SCRIPT_STORE, "new", "4000", "", NULL), "TTL 3000");
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
END_TEST

START_TEST(ttl_must_be_the_same)
{
	assert_says(call(SCRIPT_STORE, "begin", "4000", NULL), "TTL 3000");
	assert_says(call(SCRIPT_STORE, "open", "4000", NULL), "TTL 3000");
	assert_starts(call(SCRIPT_STORE, "init", "4000", NULL), "OK ");
	assert_says(call(SCRIPT_STORE, "begin", "3000", NULL), "TTL 4000");
}
END_TEST

/* ---- what else ---- */

START_TEST(sweeping)
{
	assert_granted(acquire("A", 'a', 'x'));
	acquire("B", 'b', 'x');
	const char *seen = beat_of("A");
	while (*heard())
		;
	call(SCRIPT_BEAT, "A", NULL);
	assert_says(call(SCRIPT_SWEEP, "A", seen, NULL), "GONE");
	assert_says(call(SCRIPT_LEAVE, "A", seen, NULL), "GONE");
	seen = beat_of("A");
	assert_says(call(SCRIPT_SWEEP, "A", seen, NULL), "OK");
	assert_starts(heard(), "B: granted");
	assert_says(call(SCRIPT_LEAVE, "A", seen, NULL), "OK");
	assert_says(command("HEXISTS dflock:{0}:hosts A"), "0");
}
END_TEST

START_TEST(wrong_types_change_nothing)
{
	command("LPUSH dflock:{0}:lock:%s x", NAME);
	ck_assert_ptr_nonnull(strstr(acquire("A", 'a', 'x'), "WRONGTYPE"));
	ck_assert_ptr_nonnull(strstr(release('a'), "WRONGTYPE"));
	command("DEL dflock:{0}:lock:%s", NAME);
	command("SET dflock:{0}:lock:%s garbage", NAME);
	ck_assert_ptr_nonnull(strstr(acquire("A", 'a', 'x'), "something else wrote dflock:{0}:lock:" NAME));
	assert_says(command("HGETALL dflock:{0}:hosts"), "");
	command("DEL dflock:{0}:lock:%s", NAME);
	command("HSET dflock:{0}:store fence many");
	ck_assert_ptr_nonnull(strstr(acquire("A", 'a', 'x'), "ERR"));
	assert_says(command("EXISTS dflock:{0}:lock:%s", NAME), "0");
}
END_TEST

START_TEST(out_of_memory)
{
	uint64_t fence = fence_of(acquire("A", 'a', 'x'));
	char text[24];

	acquire("B", 'b', 'x');
	snprintf(text, sizeof(text), "%" PRIu64, fence);
	command("CONFIG SET maxmemory 1");
	const char *answer = acquire("C", 'c', 'x', .space = 'r');
	bool refused = strstr(answer, "OOM") != NULL;
	const char *others[] = {
		strdup(call(SCRIPT_BEAT, "A", NULL)),
		strdup(call(SCRIPT_CONFIRM, "A", token('a'), text, NULL)),
		strdup(call(SCRIPT_SHRINK, token('a'), NULL)),
		strdup(release('a')),
		strdup(call(SCRIPT_DUMP, NULL)),
	};
	command("CONFIG SET maxmemory 0");
	ck_assert_msg(refused, "%s", answer);
	for (size_t i = 0; with_flags && i < sizeof(others) / sizeof(*others); i++)
		assert_starts(others[i], "OK");
	assert_says(command("HEXISTS dflock:{0}:hosts C"), "0");
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		free((char *)others[i]);
	if (with_flags)
		assert_granted(acquire("B", 'b', 'x'));
}
END_TEST

static void use_flags(void)
{
	with_flags = true;
}

static void use_no_flags(void)
{
	with_flags = false;
}

static void add_tests(Suite *suite, const char *name, SFun choose)
{
	TCase *t = tcase_create(name);

	tcase_set_timeout(t, 60);
	tcase_add_unchecked_fixture(t, start_server, stop_server);
	tcase_add_unchecked_fixture(t, choose, NULL);
	tcase_add_checked_fixture(t, connect_and_init, disconnect);
	tcase_add_test(t, grant_again_and_conflict);
	tcase_add_test(t, what_does_not_conflict);
	tcase_add_test(t, who_is_alone_gets_the_whole_range);
	tcase_add_test(t, two_files_of_one_host_are_two_owners);
	tcase_add_test(t, big_offsets_are_exact);
	tcase_add_test(t, order_of_arrival);
	tcase_add_test(t, shared_waiters_are_granted_together);
	tcase_add_test(t, cancelling_a_waiter_frees_those_behind_it);
	tcase_add_test(t, pass_passes_waiters_but_not_holders);
	tcase_add_test(t, questions_queue_once);
	tcase_add_test(t, the_dead_are_dropped_if_their_beat_is_the_same);
	tcase_add_test(t, a_host_without_a_beat_has_beat_zero);
	tcase_add_test(t, dropping_the_dead_hands_over_in_order);
	tcase_add_test(t, beats_only_grow);
	tcase_add_test(t, a_late_duplicate_revives_nothing);
	tcase_add_test(t, shrink_lets_readers_in);
	tcase_add_test(t, no_more_is_put_back_than_the_host_has);
	tcase_add_test(t, a_waiter_that_waits_for_nobody_is_granted);
	tcase_add_test(t, who_waits_asks_also_for_those_in_front);
	tcase_add_test(t, a_thousand_entries);
	tcase_add_test(t, another_incarnation);
	tcase_add_test(t, a_record_of_another_server);
	tcase_add_test(t, another_past);
	tcase_add_test(t, a_lock_that_vanished);
	tcase_add_test(t, hosts_that_vanished);
	tcase_add_test(t, what_was_shrunk_is_put_back_as_shared);
	tcase_add_test(t, new_or_put_back);
	tcase_add_test(t, ttl_must_be_the_same);
	tcase_add_test(t, sweeping);
	tcase_add_test(t, wrong_types_change_nothing);
	tcase_add_test(t, out_of_memory);
	suite_add_tcase(suite, t);
}

int main(void)
{
	Suite *suite = suite_create("store scripts");

	add_tests(suite, "as for Redis 7", use_flags);
	add_tests(suite, "as for Redis 6.2", use_no_flags);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
