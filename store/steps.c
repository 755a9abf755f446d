/* The steps that check a connection: commands and what their answers must say. connect.c runs them. */
#include "store/internal.h"

#include <stdio.h>
#include <string.h>

#define CLIENT_NAME "dflock"

/* ---- the commands of the steps ---- */

static int step_say_password(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES])
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

static int step_choose_database(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES])
{
	if (s->config->database == 0)
		return 0;
	snprintf(text, STEP_TEXT_BYTES, "%d", s->config->database);
	argv[0] = "SELECT";
	argv[1] = text;
	return 2;
}

static int step_say_name(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES])
{
	(void)s, (void)text;
	argv[0] = "CLIENT";
	argv[1] = "SETNAME";
	argv[2] = CLIENT_NAME;
	return 3;
}

static int step_ask_info(const char *argv[STEP_ARGS], const char *section)
{
	argv[0] = "INFO";
	argv[1] = section;
	return 2;
}

static int step_ask_server(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES])
{
	(void)s, (void)text;
	return step_ask_info(argv, "server");
}

static int step_ask_memory(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES])
{
	(void)s, (void)text;
	return step_ask_info(argv, "memory");
}

static int step_ask_role(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES])
{
	(void)s, (void)text;
	return step_ask_info(argv, "replication");
}

static int step_subscribe(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES])
{
	snprintf(text, STEP_TEXT_BYTES, STORE_KEYS "host:%s", s->host);
	argv[0] = "SUBSCRIBE";
	argv[1] = text;
	return 2;
}

/* ---- their answers ---- */

static bool step_field(struct store *s, const redisReply *reply, const char *name, char value[STORE_INFO_BYTES])
{
	if (reply->type == REDIS_REPLY_STRING && reply_info_field(reply->str, name, value, STORE_INFO_BYTES))
		return true;
	store_reject(s, "INFO does not show %s: it is no Redis 6.2 or newer", name);
	return false;
}

static bool step_accept_server(struct store *s, const redisReply *reply)
{
	char version[STORE_INFO_BYTES], valkey[STORE_INFO_BYTES];
	unsigned major, minor;

	if (!step_field(s, reply, "redis_version", version) || !step_field(s, reply, "run_id", s->run_id))
		return false;
	if (sscanf(version, "%u.%u", &major, &minor) != 2 || major < 6 || (major == 6 && minor < 2)) {
		store_reject(s, "its version is %s: dflock needs Redis 6.2 or newer", version);
		return false;
	}
	s->redis7 = major >= 7;
	if (reply_info_field(reply->str, "valkey_version", valkey, sizeof(valkey)))
		snprintf(s->version, sizeof(s->version), "%.16s (valkey %.16s)", version, valkey);
	else
		snprintf(s->version, sizeof(s->version), "%s", version);
	return true;
}

static bool step_accept_memory(struct store *s, const redisReply *reply)
{
	char policy[STORE_INFO_BYTES];

	if (!step_field(s, reply, "maxmemory_policy", policy))
		return false;
	if (strcmp(policy, "noeviction") == 0 || strncmp(policy, "volatile-", 9) == 0)
		return true;
	store_reject(s,
		     "its maxmemory-policy is %s, which drops leases when memory is short: set it to noeviction or to "
		     "volatile-... (CONFIG SET maxmemory-policy noeviction, and in its configuration file)",
		     policy);
	return false;
}

/* With fewer replicas than must acknowledge, every answer would wait in vain. With more than configured, the number
 * that must acknowledge is too small for a majority. */
static bool step_accept_replicas(struct store *s, const redisReply *reply)
{
	int acks = config_acknowledgements(s->config), replicas = s->config->replicas;
	int connected = reply_replicas(reply->str);

	if (replicas == 0 || (connected >= acks && connected <= replicas))
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
	char role[STORE_INFO_BYTES];

	if (!step_field(s, reply, "role", role))
		return false;
	if (strcmp(role, "master") != 0) {
		store_reject(s, "it is a replica (role:%s): %s", role,
			     s->config->sentinel_count ? "the sentinels have not noticed yet"
						       : "set the address of the master");
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
	if (strcmp(run_id, s->run_id) == 0)
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

const struct connect_step steps_of_commands[] = {
	{.command = step_say_password},
	{.command = step_choose_database},
	{.command = step_say_name},
	{.command = step_ask_server, .accept = step_accept_server},
	{.command = step_ask_memory, .accept = step_accept_memory},
	{.command = step_ask_role, .accept = step_accept_role},
	{.command = NULL},
};
const struct connect_step steps_of_messages[] = {
	{.command = step_say_password},
	{.command = step_say_name},
	{.command = step_ask_server, .accept = step_accept_same_server},
	{.command = step_subscribe, .accept = step_accept_subscription},
	{.command = NULL},
};
const struct connect_step steps_of_check[] = {
	{.command = step_ask_role, .accept = step_accept_role},
	{.command = NULL},
};
