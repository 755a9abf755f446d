/*
 * The same random calls through an engine of the store as in a Redis server: the same answers, and the same messages. Fences and arrivals
 * of Redis go on from the numbers that the engine's are at. RANDOM_CALLS in the environment: how many. Whoever includes this says what is
 * the server's own:
 */
#ifndef DFLOCK_TESTS_UNIT_ENGINE_CALLS_H
#define DFLOCK_TESTS_UNIT_ENGINE_CALLS_H

#include "tests/unit/random_calls.h"
/* Not in front of it: it has other things by these names. */
#include "tests/unit/store_hosts.h"

/* Nothing is there any more, the server's clock is `told_us`, and all messages are listened to; and the end of that. */
static void engine_begin(void);
static void engine_end(void);
/* The clock is told anew. */
static void engine_tell_time(void);
/* The server is another memory from now on. */
static void engine_forget(void);
/* What the engine says of its memory. */
static void engine_identity(char identity[sizeof(told_identity)]);
/* The number ("fence", "arrivals") before the one that the next rule gives for this name of a lock (NULL: none). */
static int64_t engine_number(const char *number, const char *name);
/* All messages since the last call, as words: " ( CHANNEL TEXT )". */
static void engine_listen(char *text);
/* Redis' messages, as this server passes them on. */
static void engine_hears(char *text);

static char engine_text[TEXT_BYTES];
static int granted, messages;
static bool engine_done;

static void on_engine(struct query *q, const redisReply *reply, enum store_status status, const char *error)
{
	engine_done = true;
	engine_text[0] = '\0';
	if (reply)
		say(engine_text, reply);
	else
		strcpy(engine_text, " an error");
	ck_assert_msg(reply || status == STORE_ERROR, "%s", error);
}

static void by_engine(const struct call *c)
{
	struct query *q = calloc(1, a.store->engine->query_bytes);

	engine_tell_time();
	*q = (struct query){.store = a.store, .script = c->script, .keys = c->keys};
	for (int i = 0; i < c->argc; i++)
		query_word(q, c->argv[i]);
	engine_done = false;
	query_send_early(q, on_engine);
	wait_until(engine_done);
	strcat(engine_text, " |");
	engine_listen(engine_text);
}

static void set_number(const char *number, const struct call *c)
{
	const char *name = scripts[c->script].lock ? c->argv[2] + strlen("dflock:{0}:lock:") : NULL;

	freeReplyObject(
		redisCommand(redis, "HSET dflock:{0}:store %s %lld", number, (long long)engine_number(number, name)));
}

static void compare(const struct call *c)
{
	static char theirs[TEXT_BYTES];

	engine_tell_time();
	set_number("fence", c);
	set_number("arrivals", c);
	by_engine(c);
	in_server(c, theirs);
	learn(c, theirs);
	engine_hears(theirs);
	granted += c->script == SCRIPT_ACQUIRE && strncmp(theirs, " ( OK", 5) == 0;
	messages += strstr(theirs, "| (") != NULL;
	compare_texts(c, engine_text, theirs);
}

static void open_store(void)
{
	struct call c;

	make(&c, SCRIPT_STORE, NULL);
	add(&c, "init");
	add(&c, "30000");
	add(&c, "");
	add(&c, "0");
	compare(&c);
	forget(&c);
}

static void pass_time(void)
{
	told_us += below(20) ? below(100000) : below(6000000);
	if (below(400) == 0) {
		engine_forget();
		engine_identity(told_identity);
	}
}

FIXTURE_ONCE(calls_prepare, calls_remove)
FIXTURE(calls_begin, calls_end)

TEST(random_calls_are_answered_as_by_redis)
{
	const char *wish = getenv("RANDOM_CALLS");
	int count = wish ? atoi(wish) : suite_rounds(3000);
	struct call c;

	start(&a, "host-a");
	wait_until(a.ups == 1);
	engine_begin();
	engine_identity(told_identity);
	seed = wish ? (unsigned)atoi(wish) : 7;
	open_store();
	for (int i = 0; i < count; i++) {
		pass_time();
		make_any(&c);
		compare(&c);
		forget(&c);
		if (incarnation[0] == '\0' || below(150) == 0)
			open_store();
	}
	ck_assert_int_gt(granted, count / 100);
	ck_assert_int_gt(messages, count / 100);
	engine_end();
}

#endif
