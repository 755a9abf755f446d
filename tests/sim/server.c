/*
 * The server: the store's own rules over cells in memory (store/replay/replay.h), with the scheduler's time, behind the
 * commands by which a keeper asks Redis. After each rule of a lock, the lock that it left is checked.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hiredis.h>

#include "store/internal.h"
#include "store/replay/replay.h"
#include "tests/sim/sim.h"
#include "tests/unit/replay_memory.h"

#define WALL_START INT64_C(1750000000)

static struct replay *replay;
static struct memory memory, snapshot;
static uint64_t identity;
static int64_t wall_offset;
bool server_up = true;
int64_t server_stopped_until, server_shard_stopped_until[SIM_SHARDS];

void server_start(void)
{
	replay = store_need(replay_new());
	server_new_identity();
}

void server_new_identity(void)
{
	identity = sim_seed * 1000003u + identity % 1000003u + 1;
	snprintf(memory.identity, sizeof(memory.identity), "%040llx", (unsigned long long)identity);
}

void server_set_clock(int64_t wrong_by_ns)
{
	wall_offset = wrong_by_ns;
	check_clock_stepped();
}

/* --- snapshots --- */

void server_flush(void)
{
	memory_clear(&memory);
	check_forget(-1);
}

void server_flush_shard(unsigned shard)
{
	struct memory_cell *cell, *next;
	char keys[STORE_KEYS_BYTES];

	snprintf(keys, sizeof(keys), "dflock:{%u}:", shard);
	HASH_ITER (hh, memory.cells, cell, next)
		if (cell->value && strncmp(cell->key, keys, strlen(keys)) == 0)
			memory_set(&memory, cell->key, cell->name, NULL, 0);
	check_forget((int)shard);
}

void server_save(void) { memory_copy(&snapshot, &memory); }

void server_restore(void)
{
	server_flush();
	memory_copy(&memory, &snapshot);
}

/* --- answers of our own --- */

static redisReply *make(int type, const char *text)
{
	redisReply *r = sim_new(sizeof(*r));

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

/* --- what a rule has left --- */

/* A lock as replay.lua packs it, read from `at` on: "m" and "a" are a map and a list of so many, "s" is text, "i" a
 * whole number. */
struct packed {
	const char *at;
};

static uint32_t packed_count(struct packed *p)
{
	uint32_t count;

	memcpy(&count, p->at, sizeof(count));
	p->at += sizeof(count);
	return count;
}

/* Text, a number or a truth, as text. */
static redisReply *packed_word(struct packed *p)
{
	char text[4096] = "1";
	uint32_t len;
	int64_t n;
	double d;

	switch (*p->at++) {
	case 's':
		len = packed_count(p);
		snprintf(text, sizeof(text), "%.*s", (int)len, p->at);
		p->at += len;
		break;
	case 'i':
		memcpy(&n, p->at, sizeof(n));
		snprintf(text, sizeof(text), "%lld", (long long)n);
		p->at += sizeof(n);
		break;
	case 'd':
		memcpy(&d, p->at, sizeof(d));
		snprintf(text, sizeof(text), "%.0f", d);
		p->at += sizeof(d);
		break;
	}
	return make(REDIS_REPLY_STRING, text);
}

static redisReply *make_list(size_t count)
{
	redisReply *list = make(REDIS_REPLY_ARRAY, "");

	list->elements = count;
	list->element = calloc(count + 1, sizeof(*list->element));
	return list->element ? list : NULL;
}

static redisReply *packed_entry(struct packed *p)
{
	static const char *const columns[] = {"token", "host", "file",  "space", "mode",
					      "from",  "to",   "fence", "pass",  "ask"};
	const size_t count = sizeof(columns) / sizeof(*columns);
	redisReply *row = make_list(count);

	p->at++;
	for (uint32_t n = packed_count(p); n > 0; n--) {
		redisReply *name = packed_word(p), *value = packed_word(p);

		for (size_t i = 0; i < count && value; i++)
			if (strcmp(name->str, columns[i]) == 0) {
				row->element[i] = value;
				value = NULL;
			}
		freeReplyObject(name);
		freeReplyObject(value);
	}
	for (size_t i = 0; i < count; i++)
		row->element[i] = row->element[i] ? row->element[i] : make(REDIS_REPLY_STRING, i < 8 ? "" : "0");
	return row;
}

static void packed_lock(const char *key, redisReply **leases, redisReply **waiters)
{
	const struct memory_cell *cell = memory_cell(&memory, key, "$", false);
	struct packed p = {.at = cell ? cell->value : NULL};

	*leases = *waiters = NULL;
	if (p.at) {
		p.at++;
		for (uint32_t lists = packed_count(&p); lists > 0; lists--) {
			redisReply *name = packed_word(&p), **list = *name->str == 'l' ? leases : waiters;

			p.at++;
			*list = make_list(packed_count(&p));
			for (size_t i = 0; i < (*list)->elements; i++)
				(*list)->element[i] = packed_entry(&p);
			freeReplyObject(name);
		}
	}
	*leases = *leases ? *leases : make_list(0);
	*waiters = *waiters ? *waiters : make_list(0);
}

static void check_left(const char *key, const char *passing, bool reclaims)
{
	redisReply *leases, *waiters;

	packed_lock(key, &leases, &waiters);
	check_lock(key + strlen(STORE_LOCK_KEY), leases, waiters, passing, reclaims);
	freeReplyObject(leases);
	freeReplyObject(waiters);
}

/* --- scripts --- */

/* The number of the script stands for the sum of its text. */
static redisReply *load(const char *text)
{
	char sha[41];

	for (int id = 0; id < SCRIPTS; id++) {
		char *own = script_text((enum script_id)id, true);
		bool same = own && strcmp(own, text) == 0;

		free(own);
		snprintf(sha, sizeof(sha), "%040x", (unsigned)id);
		if (same)
			return make(REDIS_REPLY_STRING, sha);
	}
	sim_fail("a script that is none of the store's");
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

/* Runs a script, or one command (-1), as one step. */
static redisReply *execute(int script, int keys, int argc, char **argv)
{
	int64_t wall = WALL_START * SEC + sim_now + wall_offset;
	struct replay_run *run = store_need(replay_begin(replay, script, keys, argc, argv));
	redisReply *answer;

	memory.now_us = wall / 1000;
	while (replay_step(run) == REPLAY_LOAD)
		memory_load(&memory, run);
	if (run->answer->type == REDIS_REPLY_ERROR)
		sim_fail("%s: %s", script < 0 ? argv[0] : scripts[script].name, run->answer->str);
	if (!memory_commit(&memory, run))
		sim_fail("a step that was not one");
	answer = run->answer;
	run->answer = NULL;
	for (const struct replay_message *m = run->messages; m; m = m->next)
		net_publish(m->channel, strlen(m->channel), m->text, strlen(m->text));
	replay_end(run);
	return answer;
}

static redisReply *run_script(int argc, char **argv)
{
	int script = (int)strtol(argv[1], NULL, 16), keys = atoi(argv[2]);
	char **args = argv + 2 + keys; /* as the script numbers them, from 1 */
	redisReply *answer = execute(script, keys, argc - 3, argv + 3);

	trace(scripts[script].name, argc, argv, answer);
	if (is_of_lock(argv))
		check_left(argv[5], script == SCRIPT_ACQUIRE && strcmp(args[10], "1") == 0 ? args[4] : "",
			   script == SCRIPT_RECLAIM);
	return answer;
}

redisReply *server_execute(int argc, char **argv)
{
	if (strcmp(argv[0], "EVALSHA") == 0)
		return run_script(argc, argv);
	if (strcmp(argv[0], "SCRIPT") == 0)
		return load(argv[2]);
	if (strcmp(argv[0], "INFO") == 0)
		return info(argv[1]);
	if (strcmp(argv[0], "CLIENT") == 0 || strcmp(argv[0], "PING") == 0)
		return make(REDIS_REPLY_STATUS, "OK");
	return execute(-1, 0, argc, argv);
}

/* --- at the end --- */

static bool is_lock(const struct memory_cell *cell)
{
	return cell->value && strncmp(cell->key + strlen("dflock:{0"), "}:lock:", 7) == 0; /* of any shard */
}

void server_describe(void)
{
	struct memory_cell *cell, *next;

	HASH_ITER (hh, memory.cells, cell, next) {
		redisReply *lists[2];

		if (!is_lock(cell))
			continue;
		printf("  %s\n", cell->key);
		packed_lock(cell->key, &lists[0], &lists[1]);
		for (int i = 0; i < 2; i++) {
			for (size_t n = 0; n < lists[i]->elements; n++) {
				printf("    %s", i ? "waits" : "holds");
				for (size_t w = 0; w < lists[i]->element[n]->elements; w++)
					printf(" %s", lists[i]->element[n]->element[w]->str);
				printf("\n");
			}
			freeReplyObject(lists[i]);
		}
	}
}

void server_expect_empty(void)
{
	struct memory_cell *cell, *next;

	HASH_ITER (hh, memory.cells, cell, next)
		if (is_lock(cell))
			sim_fail("a lock is left in the store: %s", cell->key);
}
