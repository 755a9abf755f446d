/*
 * From an address to a pair of checked connections: look the name up, then the steps below, one question after the
 * other; then redis.c reads the incarnation record. Whatever goes wrong ends in store_down(), which starts again later.
 */
#include "store/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENT_NAME     "dflock"
#define STEP_ARGS       4
#define STEP_TEXT_BYTES (STORE_HOST_BYTES + 64)

struct step {
	/* Fills argv with the command; text is room for a made-up argument. 0: nothing to do here. */
	int (*command)(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES]);
	/* Looks at the answer, which is no error; false: it called store_down(). NULL: any answer will do. */
	bool (*accept)(struct store *s, const redisReply *reply);
	/* What follows the last step; then the others are not set. */
	void (*done)(struct store *s);
};

/* ---- the commands of the steps ---- */

static int say_password(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES])
{
	int n = 0;

	(void)text;
	if (!s->config->password)
		return 0;
	argv[n++] = "AUTH";
	if (s->config->user)
		argv[n++] = s->config->user;
	argv[n++] = s->config->password;
	return n;
}

static int choose_database(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES])
{
	if (s->config->database == 0)
		return 0;
	snprintf(text, STEP_TEXT_BYTES, "%d", s->config->database);
	argv[0] = "SELECT";
	argv[1] = text;
	return 2;
}

static int say_name(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES])
{
	(void)s, (void)text;
	argv[0] = "CLIENT";
	argv[1] = "SETNAME";
	argv[2] = CLIENT_NAME;
	return 3;
}

static int ask_info(const char *argv[STEP_ARGS], const char *section)
{
	argv[0] = "INFO";
	argv[1] = section;
	return 2;
}

static int ask_server(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES])
{
	(void)s, (void)text;
	return ask_info(argv, "server");
}

static int ask_memory(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES])
{
	(void)s, (void)text;
	return ask_info(argv, "memory");
}

static int ask_role(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES])
{
	(void)s, (void)text;
	return ask_info(argv, "replication");
}

static int subscribe(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES])
{
	snprintf(text, STEP_TEXT_BYTES, STORE_KEYS "host:%s", s->host);
	argv[0] = "SUBSCRIBE";
	argv[1] = text;
	return 2;
}

/* ---- their answers ---- */

static bool field(struct store *s, const redisReply *reply, const char *name, char value[STORE_INFO_BYTES])
{
	if (reply->type == REDIS_REPLY_STRING && reply_info_field(reply->str, name, value, STORE_INFO_BYTES))
		return true;
	store_down(s, "INFO does not show %s: it is no Redis 6.2 or newer", name);
	return false;
}

static bool accept_server(struct store *s, const redisReply *reply)
{
	char version[STORE_INFO_BYTES], valkey[STORE_INFO_BYTES];
	unsigned major, minor;

	if (!field(s, reply, "redis_version", version) || !field(s, reply, "run_id", s->run_id))
		return false;
	if (sscanf(version, "%u.%u", &major, &minor) != 2 || major < 6 || (major == 6 && minor < 2)) {
		store_down(s, "its version is %s: dflock needs Redis 6.2 or newer", version);
		return false;
	}
	s->redis7 = major >= 7;
	if (reply_info_field(reply->str, "valkey_version", valkey, sizeof(valkey)))
		snprintf(s->version, sizeof(s->version), "%.16s (valkey %.16s)", version, valkey);
	else
		snprintf(s->version, sizeof(s->version), "%s", version);
	return true;
}

static bool accept_memory(struct store *s, const redisReply *reply)
{
	char policy[STORE_INFO_BYTES];

	if (!field(s, reply, "maxmemory_policy", policy))
		return false;
	if (strcmp(policy, "noeviction") == 0 || strncmp(policy, "volatile-", 9) == 0)
		return true;
	store_down(s,
		   "its maxmemory-policy is %s, which drops leases when memory is short: set it to noeviction or to "
		   "volatile-... (CONFIG SET maxmemory-policy noeviction, and in its configuration file)",
		   policy);
	return false;
}

/* Fewer than must acknowledge: it would only be waited for in vain. More than there should be: too few of them would.
 */
static bool accept_replicas(struct store *s, const redisReply *reply)
{
	int acks = config_acknowledgements(s->config), replicas = s->config->replicas;
	int connected = reply_replicas(reply->str);

	if (replicas == 0 || (connected >= acks && connected <= replicas))
		return true;
	if (connected < acks)
		store_down(s,
			   "%d replicas are connected to it, and %d must acknowledge (replicas = %d): it may be cut "
			   "off from "
			   "them, or they are down",
			   connected, acks, replicas);
	else
		store_down(s,
			   "%d replicas are connected to it, and the configuration says replicas = %d: set that to how "
			   "many "
			   "there are, on every host",
			   connected, replicas);
	return false;
}

static bool accept_role(struct store *s, const redisReply *reply)
{
	char role[STORE_INFO_BYTES];

	if (!field(s, reply, "role", role))
		return false;
	if (strcmp(role, "master") != 0) {
		store_down(s, "it is a replica (role:%s): %s", role,
			   s->config->sentinel_count ? "the sentinels have not noticed yet"
						     : "set the address of the master");
		return false;
	}
	return accept_replicas(s, reply);
}

/* Behind one address may be several servers: messages of another one would never come. */
static bool accept_same_server(struct store *s, const redisReply *reply)
{
	char run_id[STORE_INFO_BYTES];

	if (!field(s, reply, "run_id", run_id))
		return false;
	if (strcmp(run_id, s->run_id) == 0)
		return true;
	store_down(s, "two connections to this address reached two servers: set the address of one");
	return false;
}

static bool accept_subscription(struct store *s, const redisReply *reply)
{
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 && reply->element[0]->type == REDIS_REPLY_STRING &&
	    strcmp(reply->element[0]->str, "subscribe") == 0)
		return true;
	store_down(s, "SUBSCRIBE was answered with something else: it is no Redis");
	return false;
}

/* ---- running the steps ---- */

static void load_scripts(struct store *s);
static void next_step(struct store *s);

static const struct step command_steps[] = {
	{.command = say_password},
	{.command = choose_database},
	{.command = say_name},
	{.command = ask_server, .accept = accept_server},
	{.command = ask_memory, .accept = accept_memory},
	{.command = ask_role, .accept = accept_role},
	{.done = load_scripts},
};
static const struct step message_steps[] = {
	{.command = say_password},
	{.command = say_name},
	{.command = ask_server, .accept = accept_same_server},
	{.command = subscribe, .accept = accept_subscription},
	{.done = store_read_record},
};

/* The common part of all answers: false if it is of no use (and the store is down). */
static bool usable(struct store *s, const redisReply *reply)
{
	char line[REPLY_LINE_BYTES];

	if (!reply)
		return false; /* the link was closed by store_down() or store_free() */
	if (reply->type != REDIS_REPLY_ERROR)
		return true;
	reply_explain(reply->str, line);
	store_down(s, "%s", line);
	return false;
}

static void on_step(void *arg, const redisReply *reply)
{
	struct store *s = arg;

	if (!usable(s, reply) || (s->step->accept && !s->step->accept(s, reply)))
		return;
	s->step++;
	next_step(s);
}

static void next_step(struct store *s)
{
	char text[STEP_TEXT_BYTES];
	const char *argv[STEP_ARGS];
	int argc = 0;

	while (!s->step->done) {
		argc = s->step->command(s, argv, text);
		if (argc > 0)
			break;
		s->step++;
	}
	if (s->step->done) {
		s->step->done(s);
		return;
	}
	int err = link_send(s->messages ? s->messages : s->commands, argc, argv, on_step, s);
	if (err)
		store_down(s, "cannot send: %s", uv_strerror(err));
}

static void on_role(void *arg, const redisReply *reply)
{
	struct store *s = arg;

	if (usable(s, reply))
		accept_role(s, reply);
}

void connect_check(struct store *s)
{
	char text[STEP_TEXT_BYTES];
	const char *argv[STEP_ARGS];

	if (s->config->replicas == 0)
		return;
	int err = link_send(s->commands, ask_role(s, argv, text), argv, on_role, s);
	if (err)
		store_down(s, "cannot send: %s", uv_strerror(err));
}

static void on_connected(void *arg)
{
	next_step(arg);
}

static void on_broken(void *arg, const char *why)
{
	store_down(arg, "%s", why);
}

static void on_message(void *arg, const char *text, size_t len)
{
	store_take_message(arg, text, len);
}

static struct link *open_link(struct store *s, const struct step *steps, bool messages)
{
	const struct link_events events = {
		.connected = on_connected, .message = messages ? on_message : NULL, .broken = on_broken};
	char why[128];

	s->step = steps;
	struct link *link =
		link_open(s->loop, &s->target, (uint64_t)s->config->connect_ms, &events, s, why, sizeof(why));
	if (!link)
		store_down(s, "cannot connect: %s", why);
	return link;
}

static void on_loaded(void *arg, const redisReply *reply)
{
	struct store *s = arg;

	if (!usable(s, reply))
		return;
	if (reply->type != REDIS_REPLY_STRING || reply->len != STORE_SHA_BYTES - 1 ||
	    strlen(reply->str) != reply->len) {
		store_down(s, "SCRIPT LOAD was answered with something else: it is no Redis");
		return;
	}
	strcpy(s->sha[s->loaded++], reply->str);
	if (s->loaded == SCRIPTS)
		s->messages = open_link(s, message_steps, true);
}

static void load_scripts(struct store *s)
{
	s->loaded = 0;
	for (enum script_id id = 0; id < SCRIPTS; id++) {
		char *text = script_text(id, s->redis7);
		int err = text ? link_send(s->commands, 3, (const char *const[]){"SCRIPT", "LOAD", text}, on_loaded, s)
			       : -ENOMEM;

		free(text);
		if (err) {
			store_down(s, "cannot send: %s", uv_strerror(err));
			return;
		}
	}
}

/* ---- the address ---- */

static void connect_commands(struct store *s)
{
	s->state = STORE_CONNECTING;
	uv_timer_stop(&s->retry);
	s->commands = open_link(s, command_steps, false);
}

static const char *host_of(const struct store *s)
{
	return s->config->sentinel_count ? s->master_host : s->config->address.host;
}

static void on_addresses(void *arg, const struct addrinfo *list, const char *why)
{
	struct store *s = arg;
	unsigned count = 0;

	s->lookup = NULL;
	if (!list) {
		store_down(s, "cannot look up the address of %s: %s", host_of(s), why);
		return;
	}
	for (const struct addrinfo *a = list; a; a = a->ai_next)
		count++;
	/* One after the other: both connections must go to the same one. */
	for (unsigned i = s->attempt++ % count; i > 0; i--)
		list = list->ai_next;
	memcpy(&s->target.address, list->ai_addr, list->ai_addrlen);
	connect_commands(s);
}

static void on_limit(uv_timer_t *timer)
{
	struct store *s = timer->data;

	store_down(s, "cannot look up the address of %s within %" PRId64 " ms", host_of(s), s->config->connect_ms);
}

void connect_cancel(struct store *s)
{
	if (s->lookup)
		address_cancel(s->lookup);
	s->lookup = NULL;
}

void connect_to(struct store *s, const char *host, int port)
{
	const char *why;

	s->target.path = NULL;
	if (address_of_number(host, port, &s->target.address)) {
		connect_commands(s);
		return;
	}
	s->state = STORE_RESOLVING;
	uv_timer_start(&s->retry, on_limit, (uint64_t)s->config->connect_ms, 0);
	s->lookup = address_look_up(s->loop, host, port, on_addresses, s, &why);
	if (!s->lookup)
		store_down(s, "cannot look up the address of %s: %s", host_of(s), why);
}

void connect_start(struct store *s)
{
	if (s->config->sentinel_count > 0) {
		discover_start(s);
	} else if (s->config->socket) {
		s->target.path = s->config->socket;
		connect_commands(s);
	} else {
		connect_to(s, s->config->address.host, s->config->address.port);
	}
}
