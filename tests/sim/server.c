/*
 * The server: a real redis-server that runs the store's own scripts. A prelude before each script answers TIME and INFO
 * for the scheduler, collects what is published; an epilogue after it shows the
 * resulting lock. The script between them is unchanged.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hiredis.h>

#include "store/internal.h"
#include "tests/sim/sim.h"

#define WALL_START  INT64_C(1750000000)
#define MAX_SCRIPTS 64
#define MAX_ARGS    80

static const char prelude[] =
	"local SIM, SIM_redis = {said = {}}, redis\n"
	"SIM.id = table.remove(ARGV)\n"
	"SIM.usec = table.remove(ARGV)\n"
	"SIM.sec = table.remove(ARGV)\n"
	"local redis = {error_reply = redis.error_reply, call = function(command, ...)\n"
	"	if command == 'TIME' then return {SIM.sec, SIM.usec} end\n"
	"	if command == 'INFO' then return 'role:master\\r\\nmaster_replid:' .. SIM.id .. '\\r\\n' end\n"
	"	if command == 'PUBLISH' then SIM.said[#SIM.said + 1] = {...} return 0 end\n"
	"	return SIM_redis.call(command, ...)\n"
	"end}\n"
	"local function SIM_body()\n";

static const char epilogue[] = "\nend\n"
			       "local answer = SIM_body()\n"
			       "local function rows(list)\n"
			       "	local out = {}\n"
			       "	for i, e in ipairs(list) do\n"
			       "		out[i] = {e.token, e.host, e.file, e.space, e.mode, e.from, e.to,\n"
			       "			e.fence and string.format('%.0f', e.fence) or '', e.pass and "
			       "'1' or '0', e.ask and '1' or '0'}\n"
			       "	end\n"
			       "	return out\n"
			       "end\n"
			       "if not KEYS[3] then return {answer, SIM.said} end\n"
			       "local packed = SIM_redis.call('GET', KEYS[3])\n"
			       "local lock = packed and cmsgpack.unpack(packed) or {l = {}, q = {}}\n"
			       "return {answer, SIM.said, rows(lock.l), rows(lock.q)}\n";

static redisContext *redis;
static struct {
	char sha[41];
	char name[16];
} known[MAX_SCRIPTS];
static unsigned known_count;
static uint64_t identity;
static int64_t wall_offset;
bool server_up = true;
int64_t server_stopped_until;

/* --- the real one --- */

__attribute__((noreturn)) static void lost(void)
{
	fprintf(stderr, "redis-server: %s\n", redis ? redis->errstr : "no memory");
	exit(3);
}

static redisReply *ask(int argc, const char **argv)
{
	redisReply *reply = redisCommandArgv(redis, argc, argv, NULL);

	if (!reply)
		lost();
	return reply;
}

static redisReply *ask_words(const char *a, const char *b, const char *c)
{
	const char *argv[] = {a, b, c};

	return ask(c ? 3 : b ? 2 : 1, argv);
}

void server_start(const char *socket)
{
	redis = redisConnectUnix(socket);
	if (!redis || redis->err)
		lost();
	freeReplyObject(ask_words("FLUSHALL", NULL, NULL));
	server_new_identity();
}

void server_new_identity(void) { identity = sim_seed * 1000003u + identity % 1000003u + 1; }

void server_set_clock(int64_t wrong_by_ns)
{
	wall_offset = wrong_by_ns;
	check_forget_rests();
}

/* --- snapshots --- */

static redisReply *snapshot;

static redisReply *eval(const char *text)
{
	redisReply *reply = ask_words("EVAL", text, "0");

	if (reply->type == REDIS_REPLY_ERROR)
		sim_fail("EVAL: %s", reply->str);
	return reply;
}

void server_flush(void)
{
	freeReplyObject(ask_words("FLUSHALL", NULL, NULL));
	check_forget();
}

void server_save(void)
{
	freeReplyObject(snapshot);
	snapshot = eval("local out = {} for _, k in ipairs(redis.call('KEYS', '*')) do out[#out + 1] = k "
			"out[#out + 1] = redis.call('DUMP', k) end return out");
}

void server_restore(void)
{
	server_flush();
	for (size_t i = 0; snapshot && i + 1 < snapshot->elements; i += 2) {
		const redisReply *key = snapshot->element[i], *value = snapshot->element[i + 1];
		const char *argv[] = {"RESTORE", key->str, "0", value->str};
		const size_t len[] = {7, key->len, 1, value->len};

		freeReplyObject(redisCommandArgv(redis, 4, argv, len));
	}
}

/* --- answers of our own --- */

static redisReply *make(int type, const char *text)
{
	redisReply *r = calloc(1, sizeof(*r));

	if (!r)
		abort();
	r->type = type;
	r->str = strdup(text);
	r->len = strlen(text);
	return r;
}

static redisReply *info(const char *section)
{
	char text[256];

	snprintf(text, sizeof(text),
		 "# %s\r\nredis_version:7.0.15\r\nrun_id:%040llx\r\nmaxmemory_policy:noeviction\r\nrole:master\r\n"
		 "connected_slaves:0\r\nmaster_replid:%040llx\r\n",
		 section, (unsigned long long)identity, (unsigned long long)identity);
	return make(REDIS_REPLY_STRING, text);
}

/* --- scripts --- */

static const char *name_of_script(const char *text)
{
	for (enum script_id id = 0; id < SCRIPTS; id++) {
		char *own = script_text(id, true);
		bool same = own && strcmp(own, text) == 0;

		free(own);
		if (same)
			return scripts[id].name;
	}
	return "?";
}

/* All hosts load the same texts, often: each is sent to the real server once. */
static redisReply *load(const char *text)
{
	static struct {
		char *text;
		unsigned known;
	} loaded[MAX_SCRIPTS];
	static unsigned count;
	size_t first = strcspn(text, "\n") + 1;
	char *whole;
	redisReply *reply;

	for (unsigned i = 0; i < count; i++)
		if (strcmp(loaded[i].text, text) == 0)
			return make(REDIS_REPLY_STRING, known[loaded[i].known].sha);
	whole = calloc(1, strlen(text) + sizeof(prelude) + sizeof(epilogue));
	if (!whole || count == MAX_SCRIPTS)
		abort();
	memcpy(whole, text, first);
	strcat(whole, prelude);
	strcat(whole, text + first);
	strcat(whole, epilogue);
	reply = ask_words("SCRIPT", "LOAD", whole);
	free(whole);
	if (reply->type != REDIS_REPLY_STRING)
		sim_fail("SCRIPT LOAD: %s", reply->str ? reply->str : "?");
	memcpy(known[known_count].sha, reply->str, 41);
	snprintf(known[known_count].name, sizeof(known->name), "%s", name_of_script(text));
	loaded[count].text = strdup(text);
	loaded[count++].known = known_count++;
	return reply;
}

static const char *name_of(const char *sha)
{
	for (unsigned i = 0; i < known_count; i++)
		if (strcmp(known[i].sha, sha) == 0)
			return known[i].name;
	return "?";
}

/* The keys of such a script are the store's two, the lock, and the fields of its rests. */
static bool is_of_lock(char **argv) { return atoi(argv[2]) > 2; }
static const char *lock_name(char **argv) { return argv[5] + strlen(STORE_LOCK_KEY); }

static void trace(const char *name, int argc, char **argv, const redisReply *answer)
{
	char line[400];
	int at = 0;

	if (!sim_tracing)
		return;
	if (is_of_lock(argv))
		at = snprintf(line, sizeof(line), " %.20s:", lock_name(argv));
	for (int i = atoi(argv[2]) + 4; i < argc && at < (int)sizeof(line); i++)
		at += snprintf(line + at, sizeof(line) - (size_t)at, " %.19s", argv[i]);
	if (answer->type == REDIS_REPLY_ERROR) {
		sim_trace("store: %s%s -> ERROR %s", name, line, answer->str);
		return;
	}
	at += snprintf(line + at, at < (int)sizeof(line) ? sizeof(line) - (size_t)at : 0, " ->");
	for (size_t i = 0; i < answer->elements && at < (int)sizeof(line); i++)
		at += snprintf(line + at, sizeof(line) - (size_t)at, " %.19s",
			       answer->element[i]->str ? answer->element[i]->str : "*");
	sim_trace("store: %s%s", name, line);
}

static redisReply *run(int argc, char **argv, redisReply **owned)
{
	const char *name = name_of(argv[1]), *all[MAX_ARGS];
	int64_t wall = WALL_START * SEC + sim_now + wall_offset;
	char sec[24], usec[8], id[48];
	redisReply *reply, *answer;
	char **args = argv + 2 + atoi(argv[2]); /* as the script numbers them, from 1 */

	if (argc + 3 > MAX_ARGS)
		sim_fail("too many arguments for the simulator");
	snprintf(sec, sizeof(sec), "%lld", (long long)(wall / SEC));
	snprintf(usec, sizeof(usec), "%lld", (long long)(wall % SEC / 1000));
	snprintf(id, sizeof(id), "%040llx", (unsigned long long)identity);
	for (int i = 0; i < argc; i++)
		all[i] = argv[i];
	all[argc] = sec;
	all[argc + 1] = usec;
	all[argc + 2] = id;
	reply = *owned = ask(argc + 3, all);
	if (reply->type != REDIS_REPLY_ARRAY) {
		trace(name, argc, argv, reply);
		if (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOSCRIPT", 8) != 0)
			sim_fail("the script %s: %s", name, reply->str);
		return reply;
	}
	answer = reply->element[0];
	trace(name, argc, argv, answer);
	if (is_of_lock(argv)) {
		bool pass = strcmp(name, "acquire") == 0 && strcmp(args[10], "1") == 0;

		check_lock(lock_name(argv), reply->element[2], reply->element[3], pass ? args[4] : "",
			   strcmp(name, "reclaim") == 0);
	}
	for (size_t i = 0; i < reply->element[1]->elements; i++) {
		const redisReply *said = reply->element[1]->element[i];

		net_publish(said->element[0]->str, said->element[0]->len, said->element[1]->str, said->element[1]->len);
	}
	return answer;
}

redisReply *server_execute(int argc, char **argv, const size_t *len, redisReply **owned)
{
	if (strcmp(argv[0], "EVALSHA") == 0)
		return run(argc, argv, owned);
	if (strcmp(argv[0], "SCRIPT") == 0)
		*owned = load(argv[2]);
	else if (strcmp(argv[0], "INFO") == 0)
		*owned = info(argv[1]);
	else if (strcmp(argv[0], "CLIENT") == 0)
		*owned = make(REDIS_REPLY_STATUS, "OK");
	else if (strcmp(argv[0], "PING") == 0)
		*owned = make(REDIS_REPLY_STATUS, "PONG");
	else if (strcmp(argv[0], "PUBLISH") == 0) {
		net_publish(argv[1], strlen(argv[1]), argv[2], strlen(argv[2]));
		*owned = make(REDIS_REPLY_STATUS, "OK");
	} else {
		*owned = ask(argc, (const char **)argv);
	}
	return *owned;
}

/* --- at the end --- */

void server_describe(void)
{
	redisReply *lines =
		eval("local out = {} for _, k in ipairs(redis.call('KEYS', 'dflock:{0}:lock:*')) do "
		     "out[#out + 1] = k .. ' ' .. cjson.encode(cmsgpack.unpack(redis.call('GET', k))) end return out");

	for (size_t i = 0; i < lines->elements; i++)
		printf("  %s\n", lines->element[i]->str);
	freeReplyObject(lines);
}

void server_expect_empty(void)
{
	redisReply *keys = ask_words("KEYS", STORE_LOCK_KEY "*", NULL);

	if (keys->elements)
		sim_fail("%zu locks are left in the store, the first is %s", keys->elements, keys->element[0]->str);
	freeReplyObject(keys);
}
