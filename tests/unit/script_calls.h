/*
 * The store's scripts, called one by one: on a real server, and in this process as other engines run them (store/replay/), over cells in
 * memory. A file whose tests are about Redis defines SCRIPTS_OF_REDIS; a single such test begins with OF_REDIS.
 */
#ifndef DFLOCK_TESTS_UNIT_SCRIPT_CALLS_H
#define DFLOCK_TESTS_UNIT_SCRIPT_CALLS_H

#include <fnmatch.h>
#include <inttypes.h>
#include <stdarg.h>

#include "store/reply.h"
#include "store/scripts.h"
#include "store/words.h"
#include "tests/unit/redis_server.h"
#include "tests/unit/replay_memory.h"

#define NAME             "/var/lock/a b.lock"
#define NAME_OF_ONE_WORD "word" /* for command() */

static struct redis_server server;
static redisContext *redis, *listener;
static char incarnation[STORE_INC_BYTES];
static bool with_flags = true; /* as for Redis 7; without: as for 6.2 */
static struct replay *replay;  /* not NULL: the scripts run here */
static struct memory memory;
static char queue[64][512]; /* what was published */
static unsigned queue_first, queued;

#define OF_REDIS                                                                                                       \
	if (replay)                                                                                                    \
	return

/* ---- asking ---- */

/* The answer as words, lists flattened. Static. */
static inline const char *words(const redisReply *reply)
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

static inline const char *run(redisContext *c, int argc, const char **argv)
{
	redisReply *reply = redisCommandArgv(c, argc, argv, NULL);

	ck_assert_msg(reply != NULL, "%s", c->errstr);
	const char *text = words(reply);
	freeReplyObject(reply);
	return text;
}

static inline void keep_message(const char *channel, const char *text)
{
	snprintf(queue[(queue_first + queued++) % 64], 512, "%s: %s", strrchr(channel, ':') + 1, text);
	ck_assert_uint_le(queued, 64);
}

/* script -1: a single command. */
static inline const char *run_here(int script, int keys, int argc, const char **argv)
{
	struct replay_run *run = replay_begin(replay, script, keys, argc, (char *const *)argv);
	struct timespec t;

	ck_assert_ptr_nonnull(run);
	clock_gettime(CLOCK_REALTIME, &t);
	memory.now_us = run->now_us = t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
	while (replay_step(run) == REPLAY_LOAD)
		memory_load(&memory, run);
	ck_assert(memory_commit(&memory, run));
	for (const struct replay_message *m = run->messages; m; m = m->next)
		keep_message(m->channel, m->text);
	const char *text = words(run->answer);
	replay_end(run);
	return text;
}

/* What has a key that fits: its cells go, or it is counted (a key of n fields n times). */
static inline int keys_here(const char *pattern, bool go)
{
	struct memory_cell *cell, *next;
	int found = 0;

	HASH_ITER (hh, memory.cells, cell, next) {
		if (!cell->value || fnmatch(pattern, cell->key, 0) != 0)
			continue;
		found++;
		if (go)
			memory_set(&memory, cell->key, cell->name, NULL, 0);
	}
	return found;
}

/* The words of what hiredis has made of a command; `bytes` gets NULs. */
static inline const char *command_here(char *bytes)
{
	const char *argv[64];
	int argc = (int)strtol(bytes + 1, &bytes, 10);

	ck_assert_int_le(argc, 64);
	for (int i = 0; i < argc; i++) {
		long len = strtol(bytes + 3, &bytes, 10); /* "\r\n$" */

		argv[i] = bytes + 2;
		bytes += 2 + len;
	}
	for (int i = 0; i < argc; i++)
		((char *)argv[i])[strcspn(argv[i], "\r")] = '\0';
	if (strcmp(argv[0], "FLUSHALL") == 0 || strcmp(argv[0], "DEL") == 0)
		return keys_here(argc > 1 ? argv[1] : "*", true) ? "1" : "0";
	if (strcmp(argv[0], "KEYS") == 0 || strcmp(argv[0], "DBSIZE") == 0)
		return keys_here(argc > 1 ? argv[1] : "*", false) ? "some" : argc > 1 ? "" : "0";
	return run_here(-1, 0, argc, argv);
}

__attribute__((format(printf, 1, 2))) static const char *command(const char *format, ...)
{
	char *bytes;
	va_list args;
	const char *text;

	va_start(args, format);
	int len = redisvFormatCommand(&bytes, format, args);
	va_end(args);
	ck_assert_int_gt(len, 0);
	if (replay) {
		text = command_here(bytes);
	} else {
		redisReply *reply;

		redisAppendFormattedCommand(redis, bytes, (size_t)len);
		ck_assert_msg(redisGetReply(redis, (void **)&reply) == REDIS_OK, "%s", redis->errstr);
		text = words(reply);
		freeReplyObject(reply);
	}
	redisFreeCommand(bytes);
	return text;
}

/* Runs a script on lock `name` (NULL: it takes none); the arguments end with NULL. */
static inline const char *call_name(enum script_id id, const char *name, const char *first, ...)
{
	va_list more;
	const char *argv[64];
	char key[1200], rest[2][1200], keys[2];
	int argc = 0;
	char *text = script_text(id, with_flags);

	snprintf(key, sizeof(key), "dflock:{0}:lock:%s", name ? name : "");
	for (int space = 0; space < WIRE_SPACES; space++)
		snprintf(rest[space], sizeof(rest[space]), "dflock:{0}:rest:%s:%s", word_space[space],
			 name ? name : "");
	snprintf(keys, sizeof(keys), "%d", scripts[id].lock ? 5 : 2);
	argv[argc++] = "EVAL";
	argv[argc++] = text;
	argv[argc++] = keys;
	argv[argc++] = "dflock:{0}:store";
	argv[argc++] = "dflock:{0}:hosts";
	if (name) {
		argv[argc++] = key;
		argv[argc++] = rest[0];
		argv[argc++] = rest[1];
	}
	argv[argc++] = incarnation;
	va_start(more, first);
	for (const char *arg = first; arg; arg = va_arg(more, const char *))
		argv[argc++] = arg;
	va_end(more);
	const char *answer = replay ? run_here((int)id, atoi(keys), argc - 3, argv + 3) : run(redis, argc, argv);
	free(text);
	return answer;
}

#define call(id, ...) call_name(id, scripts[id].lock ? NAME : NULL, __VA_ARGS__)

static inline const char *token(char letter)
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
	const char *ask, *pass, *grow, *rest, *job, *key;
	const char *dead_host, *dead_beat;
	const char *name; /* NULL: NAME */
};

/* "WAIT 17 A ..." as "WAIT A ...": leaves out the waiter's number, which has a test of its own. */
static inline const char *without_arrival(const char *answer)
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

static inline const char *acquire_want(const struct want *w)
{
	char from[24], to[24];
	const char *range[2] = {w->from ? w->from : "0", w->to ? w->to : "9223372036854775807"};

	snprintf(from, sizeof(from), WORD_OFFSET, (int64_t)strtoll(range[0], NULL, 10));
	snprintf(to, sizeof(to), WORD_OFFSET, (int64_t)strtoll(range[1], NULL, 10));
	return without_arrival(call_name(SCRIPT_ACQUIRE, w->name ? w->name : NAME, w->host, w->file ? w->file : "1:1",
					 token(w->token), w->space == 'r' ? "record" : "flock",
					 w->mode == 's' ? "shared" : "exclusive", from, to, w->ask ? w->ask : "0",
					 w->pass ? w->pass : "0", "1", w->grow ? w->grow : "0", w->rest ? w->rest : "0",
					 w->job ? w->job : "", w->key ? w->key : "", w->dead_host, w->dead_beat, NULL));
}
/* acquire("A", 'a', 'x', .pass = "1"): host, token, mode, and unusual arguments by name. */
#define acquire(h, t, m, ...) acquire_want(&(struct want){.host = h, .token = t, .mode = m, ##__VA_ARGS__})
#define RANGE(a, b)           .from = a, .to = b
#define RECORD(a, b)          .space = 'r', .from = a, .to = b
#define release(letter)       call(SCRIPT_RELEASE, token(letter), "0", "A", NULL)

/* Of the whole of NAME. */
static inline const char *reclaim(const char *host, char letter, const char *fence, const char *mode)
{
	return call(SCRIPT_RECLAIM, host, token(letter), fence, "1:1", "flock", mode, "0000000000000000000",
		    "9223372036854775807", NULL);
}

/* "OK FENCE MODE": the fence, 0 if it is no such answer. */
static inline uint64_t fence_of(const char *answer)
{
	uint64_t fence = 0;
	char mode[16] = "";

	if (sscanf(answer, "OK %" SCNu64 " %15s", &fence, mode) != 2)
		return 0;
	return fence;
}

/* A copy that outlives the next answers. */
static inline const char *keep(const char *answer)
{
	static char kept[16][STORE_INC_BYTES];
	static unsigned next;
	char *text = kept[next++ % 16];

	snprintf(text, STORE_INC_BYTES, "%s", answer);
	return text;
}

static inline const char *number_text(uint64_t number)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, number);
	return keep(text);
}

static inline const char *fence_text(const char *answer) { return number_text(fence_of(answer)); }
static inline const char *beat_of(const char *host) { return keep(command("HGET dflock:{0}:hosts %s", host)); }

/* The next published message as "HOST: TEXT", "" if there is none. A marker shows where the messages so far end. */
static inline const char *heard(void)
{
	static char text[512];
	bool marker = replay != NULL;

	if (!marker)
		command("PUBLISH dflock:{0}:host:end end");
	while (!marker) {
		redisReply *reply;
		ck_assert_int_eq(redisGetReply(listener, (void **)&reply), REDIS_OK);
		marker = strcmp(reply->element[3]->str, "end") == 0;
		if (!marker)
			keep_message(reply->element[2]->str, reply->element[3]->str);
		freeReplyObject(reply);
	}
	if (queued == 0)
		return "";
	strcpy(text, queue[queue_first]);
	queue_first = (queue_first + 1) % 64;
	queued--;
	return text;
}

static inline void hush(void)
{
	while (*heard())
		;
}

/* ---- the server and a fresh store ---- */

static inline void start_server(void)
{
	redis_server_prepare(&server);
	redis_server_start(&server);
}

static inline void stop_server(void) { redis_server_remove(&server); }

static inline void begin(const char *what)
{
	char answer[512];

	strcpy(incarnation, "");
	snprintf(answer, sizeof(answer), "%s", call(SCRIPT_STORE, what, "3000", NULL));
	ck_assert_int_eq(sscanf(answer, "OK %127s", incarnation), 1);
}

static inline void connect_and_init(void)
{
	redis = redis_server_connect(&server);
	listener = redis_server_connect(&server);
	queued = 0; /* what an earlier test has left, if one process runs them all */
	command("FLUSHALL");
	freeReplyObject(redisCommand(listener, "PSUBSCRIBE dflock:{0}:host:*"));
	begin("init");
}

static inline void disconnect(void)
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
/* What was published begins with these texts, and nothing else was; they end with NULL. */
static inline void assert_heard(const char *first, ...)
{
	va_list more;
	const char *text = first;

	va_start(more, first);
	for (const char *said; *(said = heard()) || text; text = va_arg(more, const char *))
		ck_assert_msg(text && strncmp(said, text, strlen(text)) == 0, "\"%s\" instead of \"%s\"", said,
			      text ? text : "");
	va_end(more);
}

#define assert_has(answer, text)                                                                                       \
	do {                                                                                                           \
		const char *a = answer;                                                                                \
		ck_assert_msg(strstr(a, text) != NULL, "\"%s\" does not have \"%s\"", a, text);                        \
	} while (0)
#define assert_granted(answer)                                                                                         \
	do {                                                                                                           \
		const char *a = answer;                                                                                \
		ck_assert_msg(fence_of(a) > 0, "not granted: %s", a);                                                  \
	} while (0)

#define opens() assert_starts(call(SCRIPT_STORE, "open", "3000", NULL), "OK ")
#define assert_ends_with_grace(answer)                                                                                 \
	do {                                                                                                           \
		const char *a = answer;                                                                                \
		ck_assert_msg(strncmp(a, "OK ", 3) == 0 && strstr(a, " 0 "), "%s", a);                                 \
	} while (0)

/* The variant before this one may have run the scripts here. */
static inline void use_server(bool flags)
{
	if (replay)
		replay_free(replay);
	replay = NULL;
	with_flags = flags;
}

static inline void use_flags(void) { use_server(true); }
static inline void use_no_flags(void) { use_server(false); }
FIXTURE_ONCE(start_server, stop_server)
VARIANT(use_flags)    /* the scripts as Redis 7 gets them */
VARIANT(use_no_flags) /* as 6.2 does */
#ifndef SCRIPTS_OF_REDIS
static inline void use_replay(void)
{
	replay = replay_new();
	ck_assert_ptr_nonnull(replay);
	strcpy(memory.identity, "a1");
}
VARIANT(use_replay) /* as other engines run them */
#endif
FIXTURE(connect_and_init, disconnect)

#endif
