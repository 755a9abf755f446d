/* See replay.h. A run is a coroutine: what asks for a cell that was not loaded yields, and goes on when it was. */
#include "store/replay/replay.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/internal.h"

SCRIPTS_EMBED("store/replay/replay.lua", replay)

struct replay {
	lua_State *lua;
	int make; /* reference: what replay.lua returns */
	int rules[SCRIPTS +
		  1]; /* references: functions of KEYS, ARGV, redis and cmsgpack; the last one: a single command */
};

/* ---- cells ---- */

static struct replay_cell *replay_find(const struct replay_run *run, const char *key, const char *name)
{
	char id[STORE_KEY_BYTES + 2 * LOCK_NAME_BYTES];
	size_t key_len = strlen(key) + 1, len = key_len + strlen(name);
	struct replay_cell *cell = NULL;
	char *at = len < sizeof(id) ? id : store_need(malloc(len + 1));

	memcpy(at, key, key_len);
	strcpy(at + key_len, name);
	HASH_FIND(hh, run->cells, at, len, cell);
	if (at != id)
		free(at);
	return cell;
}

static struct replay_cell *replay_cell(struct replay_run *run, const char *key, const char *name)
{
	struct replay_cell *cell = replay_find(run, key, name);
	size_t key_len = strlen(key) + 1;

	if (cell)
		return cell;
	cell = store_need(calloc(1, sizeof(*cell)));
	cell->id_len = key_len + strlen(name);
	cell->id = store_need(malloc(cell->id_len + 1));
	memcpy(cell->id, key, key_len);
	strcpy(cell->id + key_len, name);
	cell->key = cell->id;
	cell->name = cell->id + key_len;
	HASH_ADD_KEYPTR(hh, run->cells, cell->id, cell->id_len, cell);
	return cell;
}

static void replay_set_value(struct replay_cell *cell, const char *value, size_t len)
{
	free(cell->value);
	cell->value = NULL;
	cell->len = value ? len : 0;
	if (!value)
		return;
	cell->value = store_need(malloc(len + 1));
	memcpy(cell->value, value, len);
	cell->value[len] = '\0';
}

/* True: it is known. Else it is wanted. */
static bool replay_known(struct replay_run *run, const char *key, const char *name)
{
	struct replay_cell *cell = replay_cell(run, key, name);

	if (cell->loaded || cell->written)
		return true;
	if (!cell->wanted) {
		cell->wanted = true;
		cell->next_wanted = run->wanted;
		run->wanted = cell;
	}
	return false;
}

void replay_put(struct replay_run *run, const char *key, const char *name, const char *value, size_t len,
		uint64_t version)
{
	struct replay_cell *cell = replay_cell(run, key, name);

	if (cell->loaded) /* mutant: replay-again */
		return;
	cell->loaded = true;
	cell->version = version;
	if (!cell->written) /* mutant: replay-own */
		replay_set_value(cell, value, len);
}

/* ---- what replay.lua calls; what yields is called again with the same arguments ---- */

static int replay_lua_want(lua_State *lua, int status, lua_KContext context)
{
	struct replay_run *run = lua_touserdata(lua, 1);
	bool known = true;

	(void)status;
	(void)context;
	for (int i = 3; i <= lua_gettop(lua); i++)
		known = replay_known(run, lua_tostring(lua, 2), lua_tostring(lua, i)) && known;
	return known ? 0 : lua_yieldk(lua, 0, 0, replay_lua_want);
}

static int replay_want(lua_State *lua)
{
	return replay_lua_want(lua, LUA_OK, 0);
}

static int replay_lua_get(lua_State *lua, int status, lua_KContext context)
{
	struct replay_run *run = lua_touserdata(lua, 1);
	struct replay_cell *cell;

	(void)status;
	(void)context;
	if (!replay_known(run, lua_tostring(lua, 2), lua_tostring(lua, 3)))
		return lua_yieldk(lua, 0, 0, replay_lua_get);
	cell = replay_cell(run, lua_tostring(lua, 2), lua_tostring(lua, 3));
	cell->read = cell->read || !cell->written; /* mutant: replay-read */
	if (cell->value)
		lua_pushlstring(lua, cell->value, cell->len);
	else
		lua_pushnil(lua);
	return 1;
}

static int replay_get(lua_State *lua)
{
	luaL_checkstring(lua, 2);
	luaL_checkstring(lua, 3);
	return replay_lua_get(lua, LUA_OK, 0);
}

static int replay_set(lua_State *lua)
{
	struct replay_run *run = lua_touserdata(lua, 1);
	struct replay_cell *cell = replay_cell(run, luaL_checkstring(lua, 2), luaL_checkstring(lua, 3));
	size_t len = 0;
	const char *value = lua_isnoneornil(lua, 4) ? NULL : luaL_checklstring(lua, 4, &len);

	run->writes = true;
	cell->written = true;
	replay_set_value(cell, value, len);
	return 0;
}

/* The fields of a hash, once the cell `whole` was put. */
static int replay_list(lua_State *lua, const char *whole, lua_KFunction again)
{
	struct replay_run *run = lua_touserdata(lua, 1);
	const char *key = lua_tostring(lua, 2);
	struct replay_cell *cell, *next;
	lua_Integer n = 0;

	if (!replay_known(run, key, whole))
		return lua_yieldk(lua, 0, 0, again);
	replay_cell(run, key, whole)->read = true; /* mutant: replay-whole */
	lua_newtable(lua);
	HASH_ITER (hh, run->cells, cell, next) {
		if (cell->name[0] != '=' || strcmp(cell->key, key) != 0 || (!cell->loaded && !cell->written))
			continue;
		cell->read = cell->read || !cell->written;
		if (!cell->value)
			continue;
		lua_pushstring(lua, cell->name + 1);
		lua_rawseti(lua, -2, ++n);
		lua_pushlstring(lua, cell->value, cell->len);
		lua_rawseti(lua, -2, ++n);
	}
	return 1;
}

static int replay_lua_fields(lua_State *lua, int status, lua_KContext context)
{
	(void)status;
	(void)context;
	return replay_list(lua, "*", replay_lua_fields);
}

static int replay_fields(lua_State *lua)
{
	return replay_lua_fields(lua, LUA_OK, 0);
}

static int replay_lua_some(lua_State *lua, int status, lua_KContext context)
{
	(void)status;
	(void)context;
	return replay_list(lua, "?", replay_lua_some);
}

static int replay_some(lua_State *lua)
{
	return replay_lua_some(lua, LUA_OK, 0);
}

static int replay_lua_page(lua_State *lua, int status, lua_KContext context)
{
	struct replay_run *run = lua_touserdata(lua, 1);
	const struct replay_cell *cell;
	char name[REPLY_CURSOR_BYTES + 1];
	lua_Integer n = 0;

	(void)status;
	(void)context;
	snprintf(name, sizeof(name), ">%s", lua_tostring(lua, 2));
	if (!replay_known(run, "", name))
		return lua_yieldk(lua, 0, 0, replay_lua_page);
	cell = replay_find(run, "", name);
	lua_newtable(lua);
	for (size_t at = 0; at < cell->len; at += strlen(cell->value + at) + 1) {
		lua_pushstring(lua, cell->value + at);
		lua_rawseti(lua, -2, ++n);
	}
	return 1;
}

static int replay_page(lua_State *lua)
{
	return replay_lua_page(lua, LUA_OK, 0);
}

static int replay_say(lua_State *lua)
{
	struct replay_run *run = lua_touserdata(lua, 1);
	const char *channel = luaL_checkstring(lua, 2), *text = luaL_checkstring(lua, 3);
	struct replay_message *message = store_need(calloc(1, sizeof(*message)));

	message->channel = store_need(strdup(channel));
	message->text = store_need(strdup(text));
	*run->last_message = message;
	run->last_message = &message->next;
	return 0;
}

static int replay_time(lua_State *lua)
{
	const struct replay_run *run = lua_touserdata(lua, 1);

	lua_pushinteger(lua, run->now_us / 1000000);
	lua_pushinteger(lua, run->now_us % 1000000);
	return 2;
}

static int replay_identity(lua_State *lua)
{
	const struct replay_run *run = lua_touserdata(lua, 1);

	lua_pushstring(lua, run->identity);
	return 1;
}

/* ---- compiling ---- */

/* Compiles `text` as the body of a function, which is left on the stack. */
static int replay_compile(lua_State *lua, const char *name, const char *before, const char *text, const char *after)
{
	char *whole = NULL;
	int failed;

	if (asprintf(&whole, "%s%s%s", before, text, after) < 0)
		return LUA_ERRMEM;
	failed = luaL_loadbuffer(lua, whole, strlen(whole), name);
	free(whole);
	return failed;
}

static int replay_compile_rule(lua_State *lua, int id)
{
	char *text =
		id < SCRIPTS ? script_text((enum script_id)id, true) : strdup("#\nreturn redis.call(unpack(ARGV))");
	int failed;

	if (!text)
		return LUA_ERRMEM;
	failed = replay_compile(lua, id < SCRIPTS ? scripts[id].name : "command",
				"local unpack = table.unpack return function(KEYS, ARGV, redis, cmsgpack) ",
				strchr(text, '\n'), "\nend");
	free(text);
	return failed ? failed : lua_pcall(lua, 0, 1, 0);
}

/* In protected mode. */
static int replay_prepare(lua_State *lua)
{
	static const lua_CFunction made[] = {replay_get,  replay_want, replay_set,  replay_fields,  replay_some,
					     replay_page, replay_say,  replay_time, replay_identity};
	struct replay *replay = lua_touserdata(lua, 1);

	luaL_requiref(lua, "_G", luaopen_base, 1);
	luaL_requiref(lua, LUA_STRLIBNAME, luaopen_string, 1);
	luaL_requiref(lua, LUA_TABLIBNAME, luaopen_table, 1);
	luaL_requiref(lua, LUA_MATHLIBNAME, luaopen_math, 1);
	if (replay_compile(lua, "replay", "", script_replay, "") != LUA_OK)
		lua_error(lua);
	for (size_t i = 0; i < sizeof(made) / sizeof(*made); i++)
		lua_pushcfunction(lua, made[i]);
	lua_call(lua, sizeof(made) / sizeof(*made), 1);
	replay->make = luaL_ref(lua, LUA_REGISTRYINDEX);
	for (int id = 0; id <= SCRIPTS; id++) {
		if (replay_compile_rule(lua, id) != LUA_OK)
			lua_error(lua);
		replay->rules[id] = luaL_ref(lua, LUA_REGISTRYINDEX);
	}
	return 0;
}

struct replay *replay_new(void)
{
	struct replay *replay = calloc(1, sizeof(*replay));

	if (!replay)
		return NULL;
	replay->lua = luaL_newstate();
	if (replay->lua) {
		lua_pushcfunction(replay->lua, replay_prepare);
		lua_pushlightuserdata(replay->lua, replay);
	}
	if (replay->lua && lua_pcall(replay->lua, 1, 0, 0) == LUA_OK)
		return replay;
	if (replay->lua)
		fprintf(stderr, "the rules cannot be run: %s\n", lua_tostring(replay->lua, -1));
	replay_free(replay);
	return NULL;
}

void replay_free(struct replay *replay)
{
	if (replay->lua)
		lua_close(replay->lua);
	free(replay);
}

/* ---- a run ---- */

static void replay_push_words(lua_State *lua, char *const *words, int count)
{
	lua_createtable(lua, count, 0);
	for (int i = 0; i < count; i++) {
		lua_pushstring(lua, words[i]);
		lua_rawseti(lua, -2, i + 1);
	}
}

static void replay_guess(struct replay_run *run, const char *key, const char *beginning, const char *word)
{
	char name[STORE_KEY_BYTES + 2 * LOCK_NAME_BYTES];

	snprintf(name, sizeof(name), "%s%s", beginning, word);
	replay_known(run, key, name);
}

/* What common.lua, and the rules that are called most, look at. */
static void replay_guess_all(struct replay_run *run, int script, int keys, int argc, char *const *argv)
{
	static const char *const fields[] = {"=inc", "=open", "=fence", "=ttl_ms", "=earlier"};
	const char *host = argc > keys + 1 ? argv[keys + 1] : "";

	for (size_t i = 0; i < (script == SCRIPT_STORE ? 5 : 3); i++)
		replay_known(run, argv[0], fields[i]);
	replay_guess(run, argv[0], "=given:", host);
	replay_guess(run, argv[1], "=", host);
	if (script == SCRIPT_BEAT)
		replay_guess(run, argv[0], "=seat:", host);
	if (script == SCRIPT_STORE && argc > keys + 5)
		replay_guess(run, argv[0], "=seat:", argv[keys + 5]);
	if (keys < 5)
		return;
	replay_guess(run, argv[0], "=", argv[2]);
	replay_known(run, argv[2], "$");
	replay_guess(run, STORE_RESTS, "=", argv[3]);
	replay_guess(run, STORE_RESTS, "=", argv[4]);
}

struct start {
	struct replay_run *run;
	int script, keys, argc;
	char *const *argv;
};

/* In protected mode: a coroutine with the rule and its arguments on its stack. */
static int replay_start(lua_State *lua)
{
	const struct start *start = lua_touserdata(lua, 1);
	const struct replay *replay = start->run->replay;
	int keys = start->script < 0 ? 0 : start->keys;
	lua_State *thread = lua_newthread(lua);

	start->run->thread = luaL_ref(lua, LUA_REGISTRYINDEX);
	lua_rawgeti(thread, LUA_REGISTRYINDEX, replay->rules[start->script < 0 ? SCRIPTS : start->script]);
	replay_push_words(thread, start->argv, keys);
	replay_push_words(thread, start->argv + keys, start->argc - keys);
	lua_rawgeti(thread, LUA_REGISTRYINDEX, replay->make);
	lua_pushlightuserdata(thread, start->run);
	lua_call(thread, 1, 2);
	return 0;
}

struct replay_run *replay_begin(struct replay *replay, int script, int keys, int argc, char *const *argv)
{
	struct replay_run *run = calloc(1, sizeof(*run));
	struct start start = {.run = run, .script = script, .keys = keys, .argc = argc, .argv = argv};

	if (!run)
		return NULL;
	*run = (struct replay_run){.replay = replay, .last_message = &run->messages, .thread = LUA_NOREF};
	lua_pushcfunction(replay->lua, replay_start);
	lua_pushlightuserdata(replay->lua, &start);
	if (lua_pcall(replay->lua, 1, 0, 0) != LUA_OK) {
		lua_pop(replay->lua, 1);
		replay_end(run);
		return NULL;
	}
	if (script >= 0)
		replay_guess_all(run, script, keys, argc, argv);
	return run;
}

/* ---- the answer ---- */

static redisReply *replay_make(int type, const char *text, size_t len)
{
	redisReply *reply = store_need(calloc(1, sizeof(*reply)));

	reply->type = type;
	if (!text)
		return reply;
	reply->str = store_need(malloc(len + 1));
	memcpy(reply->str, text, len);
	reply->str[len] = '\0';
	reply->len = len;
	return reply;
}

/* The text of field `name` of the table at the top, as a reply. NULL: it has none. */
static redisReply *replay_named(lua_State *lua, const char *name, int type)
{
	redisReply *reply = NULL;

	lua_getfield(lua, -1, name);
	if (lua_type(lua, -1) == LUA_TSTRING)
		reply = replay_make(type, lua_tostring(lua, -1), lua_rawlen(lua, -1));
	lua_pop(lua, 1);
	return reply;
}

#define REPLAY_MAX_DEPTH 7

/* What is at the top of the stack, as Redis makes an answer of it. */
static redisReply *replay_reply(lua_State *lua, int depth)
{
	redisReply *reply;
	size_t len;

	switch (lua_type(lua, -1)) {
	case LUA_TSTRING:
		reply = replay_make(REDIS_REPLY_STRING, lua_tostring(lua, -1), lua_rawlen(lua, -1));
		return reply;
	case LUA_TNUMBER:
		reply = replay_make(REDIS_REPLY_INTEGER, NULL, 0);
		reply->integer = lua_isinteger(lua, -1) ? lua_tointeger(lua, -1) : (long long)lua_tonumber(lua, -1);
		return reply;
	case LUA_TTABLE:
		break;
	default:
		return replay_make(REDIS_REPLY_NIL, NULL, 0);
	}
	if ((reply = replay_named(lua, "err", REDIS_REPLY_ERROR)) ||
	    (reply = replay_named(lua, "ok", REDIS_REPLY_STATUS)))
		return reply;
	reply = replay_make(REDIS_REPLY_ARRAY, NULL, 0);
	len = lua_rawlen(lua, -1);
	reply->element = store_need(calloc(len + 1, sizeof(redisReply *)));
	for (size_t i = 0; i < len && depth < REPLAY_MAX_DEPTH && lua_checkstack(lua, 4); i++) {
		bool is_nil = lua_rawgeti(lua, -1, (lua_Integer)i + 1) == LUA_TNIL;

		if (!is_nil)
			reply->element[reply->elements++] = replay_reply(lua, depth + 1);
		lua_pop(lua, 1);
		if (is_nil)
			break;
	}
	return reply;
}

enum replay_verdict replay_step(struct replay_run *run)
{
	lua_State *thread;
	int status, count;

	if (run->wanted && !run->wanted->loaded)
		return REPLAY_LOAD; /* what was guessed */
	for (; run->wanted; run->wanted = run->wanted->next_wanted)
		run->wanted->wanted = false;
	lua_rawgeti(run->replay->lua, LUA_REGISTRYINDEX, run->thread);
	thread = lua_tothread(run->replay->lua, -1);
	lua_pop(run->replay->lua, 1);
	status = lua_resume(thread, run->replay->lua, lua_status(thread) == LUA_YIELD ? 0 : 4, &count);
	if (status == LUA_YIELD)
		return REPLAY_LOAD;
	if (status == LUA_OK)
		run->answer = replay_reply(thread, 1);
	else if (lua_type(thread, -1) == LUA_TSTRING)
		run->answer = replay_make(REDIS_REPLY_ERROR, lua_tostring(thread, -1), lua_rawlen(thread, -1));
	else
		run->answer = replay_make(REDIS_REPLY_ERROR, "the rule failed", strlen("the rule failed"));
	return REPLAY_DONE;
}

void replay_end(struct replay_run *run)
{
	struct replay_cell *cell, *next;
	struct replay_message *message;

	HASH_ITER (hh, run->cells, cell, next) {
		HASH_DEL(run->cells, cell);
		free(cell->value);
		free(cell->id);
		free(cell);
	}
	while ((message = run->messages)) {
		run->messages = message->next;
		free(message->channel);
		free(message->text);
		free(message);
	}
	luaL_unref(run->replay->lua, LUA_REGISTRYINDEX, run->thread);
	freeReplyObject(run->answer);
	free(run);
}
