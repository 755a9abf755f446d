/*
 * The same random calls through an engine of the store as in a Redis server: the same answers, and the same messages. Fences
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
/* The last fence of the lock with this name, of the store if name is NULL: the next rule gives the one behind it. */
static int64_t engine_fence(const char *name);
/* All messages since the last call, as words: " ( CHANNEL TEXT )". */
static void engine_listen(char *text);

static char *engine_text; /* of the call that is under way */
static int granted, messages;
static bool engine_done;

static void on_engine(struct query *q, const redisReply *reply, enum store_status status, const char *error)
{
	engine_done = true;
	if (reply)
		say(engine_text, reply);
	else
		strcpy(engine_text, " an error");
	ck_assert_msg(reply || status == STORE_ERROR, "%s", error);
}

static void set_fence(const struct call *c)
{
	const char *name = scripts[c->script].lock ? c->argv[2] + strlen("dflock:{0}:lock:") : NULL;

	freeReplyObject(redisCommand(redis, "HSET dflock:{0}:store fence %lld", (long long)engine_fence(name)));
}

static void elsewhere(const struct call *c, char *text)
{
	struct query *q = calloc(1, a.store->engine->query_bytes);

	engine_tell_time();
	set_fence(c);
	*q = (struct query){.store = a.store, .script = c->script, .keys = c->keys};
	for (int i = 0; i < c->argc; i++)
		query_word(q, c->argv[i]);
	engine_done = false;
	engine_text = text;
	*text = '\0';
	query_send_early(q, on_engine);
	wait_until(engine_done);
	strcat(text, " |");
	engine_listen(text);
	granted += c->script == SCRIPT_ACQUIRE && strncmp(text, " ( OK", 5) == 0;
	messages += strstr(text, "| (") != NULL;
}

static void forget_elsewhere(void)
{
	engine_forget();
	engine_identity(told_identity);
}

FIXTURE_ONCE(calls_prepare, calls_remove)
FIXTURE(calls_begin, calls_end)

TEST(random_calls_are_answered_as_by_redis)
{
	const char *wish = getenv("RANDOM_CALLS");
	int count = wish ? atoi(wish) : suite_rounds(3000);

	start(&a, "host-a");
	wait_until(a.ups == 1);
	engine_begin();
	engine_identity(told_identity);
	compare_random(wish ? (unsigned)atoi(wish) : 7, count);
	ck_assert_int_gt(granted, count / 100);
	ck_assert_int_gt(messages, count / 100);
	engine_end();
}

#endif
