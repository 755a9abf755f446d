/*
 * From an address to a pair of checked connections: connects for commands, runs the first steps, loads the scripts, connects for
 * messages, runs the other steps. One question follows the other, but for the scripts, which are sent all at once. Every error ends
 * in store_fail(), and life.c starts again after that.
 */
#include "store/redis/redis.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENT_NAME     "dflock:"
#define STEP_ARGS       4
#define STEP_TEXT_BYTES (STORE_HOST_BYTES + 64)

struct connect_step {
	const char *words[STEP_ARGS - 1]; /* of the command */
	/* Appends arguments, for which `text` has room. Returns how many; 0: this step is not needed. NULL: there are none. */
	int (*more)(const struct store *s, const char **argv, char text[STEP_TEXT_BYTES]);
	/* Looks at the answer, which is no error reply. False: store_fail() was called. NULL: any answer will do. */
	bool (*accept)(struct store *s, const redisReply *reply);
	bool optional; /* an error reply is a note for people, and the next step follows */
};

/* ---- the commands of the steps ---- */

static int step_say_password(const struct store *s, const char **argv, char text[STEP_TEXT_BYTES])
{
	int n = 0;

	(void)text;
	if (s->config->user && s->config->password)
		argv[n++] = s->config->user;
	if (s->config->password)
		argv[n++] = s->config->password;
	return n;
}

static int step_choose_database(const struct store *s, const char **argv, char text[STEP_TEXT_BYTES])
{
	snprintf(text, STEP_TEXT_BYTES, "%d", s->config->database);
	argv[0] = text;
	return s->config->database != 0;
}

static int step_say_name(const struct store *s, const char **argv, char text[STEP_TEXT_BYTES])
{
	/* Redis refuses a name with blanks, control characters or bytes above 0x7e. */
	snprintf(text, STEP_TEXT_BYTES, CLIENT_NAME "%s", s->host);
	for (char *c = text; *c; c++)
		if (*c <= ' ' || *c > '~')
			*c = '_';
	argv[0] = text;
	return 1;
}

static int step_subscribe(const struct store *s, const char **argv, char text[STEP_TEXT_BYTES])
{
	snprintf(text, STEP_TEXT_BYTES, "%s" STORE_HOST "%s", s->keys, s->host);
	argv[0] = text;
	return 1;
}

/* Two keys, one of which never exists. The answer is a number only from the master that has the slot, while nothing of it moves
 * (discover.c); else it is ASK, TRYAGAIN or MOVED. */
static int step_ask_slot(const struct store *s, const char **argv, char text[STEP_TEXT_BYTES])
{
	argv[0] = text;
	argv[1] = text + sprintf(text, "%sstore", s->keys) + 1;
	sprintf(text + strlen(text) + 1, "%stry", s->keys);
	return s->config->cluster ? 2 : 0;
}

/* ---- their answers ---- */

static bool step_field(struct store *s, const redisReply *reply, const char *name, char value[STORE_INFO_BYTES])
{
	if (reply->type == REDIS_REPLY_STRING && reply_info_field(reply->str, name, value, STORE_INFO_BYTES))
		return true;
	store_reject(s, "INFO does not show %s: it is no Redis 6.2 or newer", name);
	return false;
}

static bool step_accept_info(struct store *s, const redisReply *reply)
{
	char why[REPLY_LINE_BYTES];

	if (reply->type == REDIS_REPLY_STRING && !fit_server(reply->str, why)) {
		store_reject(s, "%s", why);
		return false;
	}
	if (!step_field(s, reply, "run_id", redis_of(s)->run_id))
		return false;
	if (!s->config->cluster && fit_is_cluster(reply->str)) {
		store_reject(s, "it is a node of a Redis Cluster: name nodes of it in cluster, instead of server");
		return false;
	}
	fit_version(reply->str, s->version, &redis_of(s)->redis7);
	return true;
}

/* With fewer replicas than must acknowledge, every answer would wait in vain. With more than configured, the number
 * that must acknowledge is too small for a majority. */
static bool step_accept_replicas(struct store *s, const redisReply *reply)
{
	int acks = config_acknowledgements(s->config), replicas = s->config->replicas;
	int connected = reply_replicas(reply->str);

	if ((replicas == 0 && !s->config->cluster) || (connected >= acks && connected <= replicas))
		return true;
	if (connected < acks)
		store_reject(s,
			     "%d replicas are connected to it, and %d must acknowledge (replicas = %d): it may be cut "
			     "off from them, or they are down",
			     connected, acks, replicas);
	else
		store_reject(s,
			     "%d replicas are connected to it, and the configuration says replicas = %d: set that to "
			     "how many there are, on every host",
			     connected, replicas);
	return false;
}

static bool step_accept_role(struct store *s, const redisReply *reply)
{
	char role[STORE_INFO_BYTES], why[REPLY_LINE_BYTES];

	if (!step_field(s, reply, "role", role))
		return false;
	if (strcmp(role, "master") != 0) {
		store_reject(s, "it is a replica (role:%s): %s", role,
			     s->config->cluster          ? "the cluster has not noticed yet"
			     : s->config->sentinel_count ? "the sentinels have not noticed yet"
							 : "set the address of the master");
		return false;
	}
	if (!fit_replication(reply->str, why)) {
		store_reject(s, "%s", why);
		return false;
	}
	return step_accept_replicas(s, reply);
}

/* Several servers may stand behind one address: messages of another one would never come. */
static bool step_accept_same_server(struct store *s, const redisReply *reply)
{
	char run_id[STORE_INFO_BYTES];

	if (!step_field(s, reply, "run_id", run_id))
		return false;
	if (strcmp(run_id, redis_of(s)->run_id) == 0)
		return true;
	store_reject(s, "two connections to this address reached two servers: set the address of one");
	return false;
}

static bool step_accept_subscription(struct store *s, const redisReply *reply)
{
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 && reply->element[0]->type == REDIS_REPLY_STRING &&
	    strcmp(reply->element[0]->str, "subscribe") == 0)
		return true;
	store_reject(s, "SUBSCRIBE was answered with something else: it is no Redis");
	return false;
}

/* ---- the lists ---- */

/* The first answer may say why the server takes no connection (maxclients), so the first step is none whose refusal harms
 * nothing. */
static const struct connect_step connect_commands[] = {
	{.words = {"AUTH"}, .more = step_say_password},
	{.words = {"SELECT"}, .more = step_choose_database},
	{.words = {"INFO"}, .accept = step_accept_info},
	{.words = {"CLIENT", "SETNAME"}, .more = step_say_name, .optional = true},
	{.words = {"INFO", "replication"}, .accept = step_accept_role},
	{.words = {"EXISTS"}, .more = step_ask_slot},
	{.words = {NULL}},
};
static const struct connect_step connect_messages[] = {
	{.words = {"AUTH"}, .more = step_say_password},
	{.words = {"INFO", "server"}, .accept = step_accept_same_server},
	{.words = {"CLIENT", "SETNAME"}, .more = step_say_name, .optional = true},
	{.words = {"SUBSCRIBE"}, .more = step_subscribe, .accept = step_accept_subscription},
	{.words = {NULL}},
};

/* ---- running the steps ---- */

/* A step whose refusal harms nothing. It is reported once, and not at each connection. */
static bool connect_refused_optional(struct store *s, const redisReply *reply)
{
	char line[REPLY_LINE_BYTES];

	if (!redis_of(s)->connect.step->optional || !reply || reply->type != REDIS_REPLY_ERROR ||
	    strncmp(reply->str, "NOAUTH", 6) == 0)
		return false;
	reply_explain(reply->str, line);
	if (!redis_of(s)->step_noted && s->callbacks.on_note)
		s->callbacks.on_note(s->arg, line);
	redis_of(s)->step_noted = true;
	return true;
}

/* The common part of all answers. False: the answer is of no use, and the store is down. */
static bool connect_usable(struct store *s, const redisReply *reply)
{
	char line[REPLY_LINE_BYTES];

	if (!reply)
		return false; /* store_fail() or store_free() closes the link */
	if (reply->type != REDIS_REPLY_ERROR)
		return true;
	reply_explain(reply->str, line);
	store_reject(s, "%s", line);
	return false;
}

static void connect_load_scripts(struct store *s);
static void connect_next_step(struct store *s);

static void connect_on_step(void *arg, const redisReply *reply)
{
	struct store *s = arg;
	const struct connect_step *step = redis_of(s)->connect.step;

	if (!connect_refused_optional(s, reply) &&
	    (!connect_usable(s, reply) || (step->accept && !step->accept(s, reply))))
		return;
	redis_of(s)->connect.step++;
	connect_next_step(s);
}

/* The step's command. 0: it is not needed. */
static int connect_words(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES])
{
	const struct connect_step *step = redis_of(s)->connect.step;
	int argc = 0, more;

	while (argc < STEP_ARGS - 1 && step->words[argc]) {
		argv[argc] = step->words[argc];
		argc++;
	}
	more = step->more ? step->more(s, argv + argc, text) : 0;
	return step->more && !more ? 0 : argc + more;
}

static void connect_next_step(struct store *s)
{
	char text[STEP_TEXT_BYTES];
	const char *argv[STEP_ARGS];
	int argc = 0;

	for (; redis_of(s)->connect.step->words[0]; redis_of(s)->connect.step++) {
		argc = connect_words(s, argv, text);
		if (argc > 0)
			break;
	}
	if (argc > 0) {
		int ret = link_send(redis_of(s)->messages ? redis_of(s)->messages : redis_of(s)->commands, argc, argv,
				    connect_on_step, s);
		if (ret)
			store_fail(s, "cannot send: %s", uv_strerror(ret));
	} else if (redis_of(s)->messages) {
		s->news->connected(s);
	} else {
		connect_load_scripts(s);
	}
}

static void connect_on_check(void *arg, const redisReply *reply)
{
	struct store *s = arg;

	if (connect_usable(s, reply))
		step_accept_role(s, reply);
}

void connect_check(struct store *s)
{
	int ret =
		link_send(redis_of(s)->commands, 2, (const char *const[]){"INFO", "replication"}, connect_on_check, s);
	if (ret)
		store_fail(s, "cannot send: %s", uv_strerror(ret));
}

/* ---- the links ---- */

static void connect_on_connected(void *arg)
{
	connect_next_step(arg);
}

static void connect_on_broken(void *arg, const char *why)
{
	store_fail(arg, "%s", why);
}

static void connect_on_message(void *arg, const char *channel, const char *text, size_t len)
{
	struct store *s = arg;

	if (s->state == STORE_UP && !keywatch_message(s, channel, text))
		s->news->message(s, text, len);
}

static struct link *connect_open(struct store *s, const struct connect_step *steps)
{
	const struct link_events events = {.connected = connect_on_connected,
					   .message = steps == connect_messages ? connect_on_message : NULL,
					   .broken = connect_on_broken};

	redis_of(s)->connect.step = steps;
	return store_need(
		link_open(s->loop, &redis_of(s)->connect.target, (uint64_t)s->config->connect_ms, &events, s));
}

static void connect_on_loaded(void *arg, const redisReply *reply)
{
	struct store *s = arg;

	if (!connect_usable(s, reply))
		return;
	if (reply->type != REDIS_REPLY_STRING || reply->len != STORE_SHA_BYTES - 1 ||
	    strlen(reply->str) != reply->len) {
		store_reject(s, "SCRIPT LOAD was answered with something else: it is no Redis");
		return;
	}
	strcpy(redis_of(s)->sha[redis_of(s)->connect.loaded++], reply->str);
	if (redis_of(s)->connect.loaded == SCRIPTS)
		redis_of(s)->messages = connect_open(s, connect_messages);
}

static void connect_load_scripts(struct store *s)
{
	redis_of(s)->connect.loaded = 0;
	for (enum script_id id = 0; id < SCRIPTS; id++) {
		char *text = script_text(id, redis_of(s)->redis7);
		int ret = text ? link_send(redis_of(s)->commands, 3, (const char *const[]){"SCRIPT", "LOAD", text},
					   connect_on_loaded, s)
			       : -ENOMEM;

		free(text);
		if (ret) {
			store_fail(s, "cannot send: %s", uv_strerror(ret));
			return;
		}
	}
}

/* One address of a name for each attempt: both connections go to the same one. */
void connect_to(struct store *s, const char *path, const char *host, int port)
{
	uv_timer_stop(&s->retry);
	redis_of(s)->connect.target = (struct channel_target){
		.path = path,
		.host = host,
		.port = port,
		.attempt = redis_of(s)->connect.attempt++,
		.tls = credentials_context(redis_of(s)->credentials),
		.name = s->config->tls.server_name ? s->config->tls.server_name : host,
	};
	redis_of(s)->commands = connect_open(s, connect_commands);
}
