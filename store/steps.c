/* The steps that check a connection: commands and what their answers must say. connect.c runs them. */
#include "store/internal.h"

#include <stdio.h>
#include <string.h>

#define CLIENT_NAME "dflock:"

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
	/* Redis refuses a name with blanks, control characters or bytes above 0x7e. */
	snprintf(text, STEP_TEXT_BYTES, CLIENT_NAME "%s", s->host);
	for (char *c = text; *c; c++)
		if (*c <= ' ' || *c > '~')
			*c = '_';
	argv[0] = "CLIENT";
	argv[1] = "SETNAME";
	argv[2] = text;
	return 3;
}

static int step_ask_info(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES])
{
	(void)s, (void)text;
	argv[0] = "INFO";
	return 1;
}

static int step_ask_server(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES])
{
	(void)s, (void)text;
	argv[0] = "INFO";
	argv[1] = "server";
	return 2;
}

static int step_ask_role(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES])
{
	(void)s, (void)text;
	argv[0] = "INFO";
	argv[1] = "replication";
	return 2;
}

static int step_subscribe(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES])
{
	snprintf(text, STEP_TEXT_BYTES, STORE_KEYS "host:%s", s->host);
	argv[0] = "SUBSCRIBE";
	argv[1] = text;
	return 2;
}

/* In a cluster: two keys, one of which never exists. The answer is a number only from the master that has the slot, while
 * nothing of it moves (sentinel.c); else it is ASK, TRYAGAIN or MOVED. */
static int step_ask_slot(const struct store *s, const char *argv[STEP_ARGS], char text[STEP_TEXT_BYTES])
{
	(void)text;
	if (!s->config->cluster)
		return 0;
	argv[0] = "EXISTS";
	argv[1] = STORE_KEYS "store";
	argv[2] = STORE_KEYS "try";
	return 3;
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
	if (!step_field(s, reply, "run_id", s->run_id))
		return false;
	if (!s->config->cluster && fit_is_cluster(reply->str)) {
		store_reject(s, "it is a node of a Redis Cluster: name nodes of it in cluster, instead of server");
		return false;
	}
	fit_version(reply->str, s->version, &s->redis7);
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

/* The first answer may say why the server takes no connection (maxclients), so the first step is none whose refusal harms
 * nothing. */
const struct connect_step steps_of_commands[] = {
	{.command = step_say_password},
	{.command = step_choose_database},
	{.command = step_ask_info, .accept = step_accept_info},
	{.command = step_say_name, .optional = true},
	{.command = step_ask_role, .accept = step_accept_role},
	{.command = step_ask_slot},
	{.command = NULL},
};
const struct connect_step steps_of_messages[] = {
	{.command = step_say_password},
	{.command = step_ask_server, .accept = step_accept_same_server},
	{.command = step_say_name, .optional = true},
	{.command = step_subscribe, .accept = step_accept_subscription},
	{.command = NULL},
};
const struct connect_step steps_of_check[] = {
	{.command = step_ask_role, .accept = step_accept_role},
	{.command = NULL},
};
