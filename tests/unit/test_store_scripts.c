/* The store's scripts, called one by one on a real server: who gets what in which state, and what is published. */
#include <inttypes.h>
#include <stdarg.h>

#include "store/reply.h"
#include "store/scripts.h"
#include "tests/unit/redis_server.h"

#define NAME "/var/lock/a b.lock"
#define WHOLE "0", "9223372036854775807"

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
		used = 0;
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
	const char *ask, *pass;
	const char *dead_host, *dead_beat;
};

static const char *acquire_want(const struct want *w)
{
	char from[24], to[24];
	const char *range[2] = {w->from ? w->from : "0", w->to ? w->to : "9223372036854775807"};

	snprintf(from, sizeof(from), REPLY_OFFSET, (int64_t)strtoll(range[0], NULL, 10));
	snprintf(to, sizeof(to), REPLY_OFFSET, (int64_t)strtoll(range[1], NULL, 10));
	return call(SCRIPT_ACQUIRE, w->host, w->file ? w->file : "1:1", token(w->token), w->space == 'r' ? "record" : "flock",
		    w->mode == 's' ? "shared" : "exclusive", from, to, w->ask ? w->ask : "0", w->pass ? w->pass : "0",
		    w->dead_host, w->dead_beat, NULL);
}
#define acquire(...) acquire_want(&(struct want){__VA_ARGS__})
#define release(letter) call(SCRIPT_RELEASE, token(letter), NULL)

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

/* The next published message as "HOST: TEXT"; "" if there is none: a marker was published after all that could be. */
static const char *heard(void)
{
	static char text[1500];
	redisReply *reply;

	command("PUBLISH dflock:{0}:host:end end");
	ck_assert_int_eq(redisGetReply(listener, (void **)&reply), REDIS_OK);
	snprintf(text, sizeof(text), "%s: %s", strrchr(reply->element[2]->str, ':') + 1, reply->element[3]->str);
	freeReplyObject(reply);
	if (strcmp(text, "end: end") == 0)
		return "";
	while (true) { /* take the marker out */
		ck_assert_int_eq(redisGetReply(listener, (void **)&reply), REDIS_OK);
		bool marker = strcmp(reply->element[3]->str, "end") == 0;
		if (!marker) {
			/* More was published: keep it for the next call by publishing the rest again, in order. */
			freeReplyObject(command_raw("PUBLISH", reply));
			continue;
		}
		freeReplyObject(reply);
		return text;
	}
}
