/*
 * store/postgresql/: what engine_calls.h compares (make calls-postgresql). The server's clock is told: load() is made anew for that.
 */
#include "tests/unit/random_calls.h"
/* Not in front of it: it has other things by these names. */
#include "tests/unit/postgresql_server.h"

#include "tests/unit/engine_calls.h"

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

static char channels[HOSTS][128]; /* their names are secret */

/* Hears what every host is told. */
static void engine_begin(void)
{
	char nothing[128], text[700];

	PQclear(pg_ask(&pg, "delete from dflock.cell"));
	ears = PQconnectdb(pg.admin);
	mouth = PQconnectdb(pg.admin);
	for (int i = 0; i < HOSTS; i++) {
		told(channels[i],
		     "select dflock.channel(secret, encode('dflock:{0}:host:%s', 'hex')) from dflock.about",
		     random_hosts[i]);
		snprintf(text, sizeof(text), "listen %s", channels[i]);
		PQclear(tell(ears, text));
	}
	PQclear(tell(ears, "listen marker"));
	told(nothing, "create table if not exists told (us bigint); truncate told; insert into told values (0); "
		      "grant select on told to dflock");
	told(nothing,
	     "do $$ begin execute replace(pg_get_functiondef('dflock.load'::regproc), "
	     "'(extract(epoch from clock_timestamp()) * 1000000)::bigint', '(select us from public.told)'); end $$");
}

static void engine_end(void)
{
	PQfinish(ears);
	PQfinish(mouth);
}

static void engine_listen(char *text)
{
	PGnotify *n;
	bool ends = false;

	for (PQclear(tell(ears, "notify marker")); !ends;) {
		PQconsumeInput(ears);
		while (!ends && (n = PQnotifies(ears))) {
			char host = '?', words_of[2048] = "";

			ends = strcmp(n->relname, "marker") == 0;
			for (int i = 0; i < HOSTS; i++)
				if (strcmp(n->relname, channels[i]) == 0)
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

static void engine_tell_time(void)
{
	char none[128];

	told(none, "update told set us = %lld", (long long)told_us);
}

/* What Redis' would be is never larger. */
static int64_t engine_fence(const char *name)
{
	char text[128];

	told(text, "select last_value from dflock.fence");
	redisReply *reply = redisCommand(redis, "HGET dflock:{0}:store fence");
	ck_assert_int_ge(strtoll(text, NULL, 10), reply->str ? strtoll(reply->str, NULL, 10) : 0);
	freeReplyObject(reply);
	return strtoll(text, NULL, 10);
}

/* PostgreSQL sends what a transaction says twice once: messages only wake up. */
static void hears_elsewhere(char *text)
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

/* What the engine says of itself: cluster, timeline, and memory. */
static void engine_identity(char identity[sizeof(told_identity)])
{
	told(identity,
	     "select (dflock.hello('x')).system || (dflock.hello('x')).timeline || left((dflock.hello('x')).memory, 32)");
}

static void engine_forget(void)
{
	char none[128];

	told(none, "select dflock.forget()");
}
