/*
 * store/postgresql/: the same random calls as a Redis server get the same answers, and the same messages. The server's clock is told: load() is
 * made anew for that. Fences and arrivals of Redis go on from the numbers that PostgreSQL's are at. RANDOM_CALLS in the environment: how
 * many (make calls-postgresql).
 */
#include "tests/unit/random_calls.h"
/* In front of names that it uses for other things. */
#include "tests/unit/postgresql_server.h"

static PGconn *ears, *mouth;

static PGresult *tell(PGconn *c, const char *text)
{
	PGresult *result = PQexec(c, text);

	ck_assert_msg(PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK, "%s: %s",
		      text, PQerrorMessage(c));
	return result;
}

__attribute__((format(printf, 2, 3))) static const char *told(char answer_text[128], const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	PGresult *result = tell(mouth, text);
	snprintf(answer_text, 128, "%s", PQntuples(result) ? PQgetvalue(result, 0, 0) : "");
	PQclear(result);
	return answer_text;
}

/* Hears what every host is told: the names of channels are secret. */
static void open_ears(void)
{
	char channel[128], text[256];

	ears = PQconnectdb(pg.admin);
	mouth = PQconnectdb(pg.admin);
	for (int i = 0; i < HOSTS; i++) {
		snprintf(text, sizeof(text), "listen %s",
			 told(channel,
			      "select dflock.channel(secret, encode('dflock:{0}:host:%s', 'hex')) from dflock.about",
			      random_hosts[i]));
		PQclear(tell(ears, text));
	}
	PQclear(tell(ears, "listen marker"));
	told(channel, "create table if not exists told (us bigint); truncate told; insert into told values (0); "
		      "grant select on told to dflock");
	told(channel,
	     "do $$ begin execute replace(pg_get_functiondef('dflock.load'::regproc), "
	     "'(extract(epoch from clock_timestamp()) * 1000000)::bigint', '(select us from public.told)'); end $$");
}

/* All messages so far, as words. */
static void listen_to(char *text)
{
	PGnotify *n;
	bool ends = false;

	for (PQclear(tell(ears, "notify marker")); !ends;) {
		PQconsumeInput(ears);
		while (!ends && (n = PQnotifies(ears))) {
			char host = '?', channel[128], words_of[2048] = "";

			ends = strcmp(n->relname, "marker") == 0;
			for (int i = 0; i < HOSTS && !ends; i++)
				if (strcmp(n->relname,
					   told(channel,
						"select dflock.channel(secret, encode('dflock:{0}:host:%s', 'hex')) from dflock.about",
						random_hosts[i])) == 0)
					host = *random_hosts[i];
			for (size_t i = 0; i < strlen(n->extra) / 2 && i < sizeof(words_of) - 1; i++) {
				unsigned byte = 0;
				sscanf(n->extra + 2 * i, "%2x", &byte);
				words_of[i] = (char)byte;
			}
			if (!ends)
				sprintf(text + strlen(text), " ( dflock:{0}:host:%c %s )", host, words_of);
			PQfreemem(n);
		}
	}
}

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
	char none[128];

	told(none, "update told set us = %lld", (long long)told_us);
	*q = (struct query){.store = a.store, .script = c->script, .keys = c->keys};
	for (int i = 0; i < c->argc; i++)
		query_word(q, c->argv[i]);
	engine_done = false;
	query_send_early(q, on_engine);
	wait_until(engine_done);
	strcat(engine_text, " |");
	listen_to(engine_text);
}

/* The number that the next rule of this name gives; and what Redis' would be is never larger. */
static void set_number(const char *name)
{
	char number[128];

	told(number, "select last_value from dflock.%s", name);
	redisReply *reply = redisCommand(redis, "HGET dflock:{0}:store %s", name);
	ck_assert_int_ge(strtoll(number, NULL, 10), reply->str ? strtoll(reply->str, NULL, 10) : 0);
	freeReplyObject(reply);
	freeReplyObject(redisCommand(redis, "HSET dflock:{0}:store %s %s", name, number));
}

/* PostgreSQL sends what a transaction says twice once: messages only wake up. */
static void say_once(char *text)
{
	char *at = strstr(text, " | (") ? strstr(text, " | (") + 2 : text + strlen(text), *end;

	for (char *first = at; *at; at = end) {
		char one[4096];

		end = strstr(at, " )") + 2;
		snprintf(one, sizeof(one), "%.*s", (int)(end - at), at);
		if (strstr(first, one) < at) {
			memmove(at, end, strlen(end) + 1);
			end = at;
		}
	}
}

static void compare(const struct call *c)
{
	static char theirs[TEXT_BYTES];

	set_number("fence");
	set_number("arrivals");
	by_engine(c);
	in_server(c, theirs);
	learn(c, theirs);
	say_once(theirs);
	granted += c->script == SCRIPT_ACQUIRE && strncmp(theirs, " ( OK", 5) == 0;
	messages += strstr(theirs, "| (") != NULL;
	compare_texts(c, engine_text, theirs);
}

/* What the engine says of itself: cluster, timeline, and memory. */
static void set_identity(void)
{
	told(told_identity,
	     "select (dflock.hello('x')).system || (dflock.hello('x')).timeline || memory from dflock.about");
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
	char none[128];

	told_us += below(20) ? below(100000) : below(6000000);
	if (below(400) == 0) {
		told(none, "select dflock.forget()");
		set_identity();
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
	PQclear(pg_ask(&pg, "delete from dflock.cell")); /* what this has left there */
	open_ears();
	set_identity();
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
	PQfinish(ears);
	PQfinish(mouth);
}
