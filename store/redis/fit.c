#include "store/redis/fit.h"

#include <stdio.h>
#include <string.h>

#define FIELD_BYTES  64
#define REPLID_BYTES 41

/*
 * What these servers are known by: a field of INFO, or a module in it.
 *
 * Dragonfly runs scripts on several threads, and a script may use only keys that it was given. KeyDB has several threads,
 * versions of values, and two modes in which more than one server takes writes (active-replica, multi-master); INFO of a server
 * does not tell whether another one is in such a mode. In RedisRaft each node executes the log's scripts itself: they ask
 * for time and replication id, which differ from node to node.
 */
#define RAFT_REASON                                                                                                          \
	"each of its nodes executes dflock's scripts itself, with its own time and replication id, so that the nodes would " \
	"disagree"
static const struct {
	const char *field; /* with its ':'; at the beginning of a line */
	const char *name, *reason;
} unfit[] = {
	{"dragonfly_version:", "Dragonfly",
	 "its scripts may only use the keys that they are given, and dflock's find keys by themselves"},
	{"mvcc_depth:", "KeyDB",
	 "with active-replica or multi-master several of its servers take writes at once, so that each could grant the same "
	 "lock"},
	{"role:active-replica", "KeyDB",
	 "with active-replica several of its servers take writes at once, so that each could grant the same lock"},
	{"module:name=raft,", "RedisRaft", RAFT_REASON},
	{"module:name=redisraft,", "RedisRaft", RAFT_REASON},
};

static bool fit_has_line(const char *info, const char *beginning)
{
	size_t len = strlen(beginning);

	for (const char *line = info; *line; line += *line == '\n') {
		if (strncmp(line, beginning, len) == 0)
			return true;
		line += strcspn(line, "\n");
	}
	return false;
}

static bool fit_kind(const char *info, char why[REPLY_LINE_BYTES])
{
	for (size_t i = 0; i < sizeof(unfit) / sizeof(*unfit); i++) {
		if (!fit_has_line(info, unfit[i].field))
			continue;
		snprintf(why, REPLY_LINE_BYTES, "it is %s, which dflock does not support: %s. Use Redis or Valkey",
			 unfit[i].name, unfit[i].reason);
		return false;
	}
	if (!fit_has_line(info, "redis_mode:sentinel") && !fit_has_line(info, "server_mode:sentinel")) /* Valkey */
		return true;
	snprintf(why, REPLY_LINE_BYTES,
		 "it is a Redis Sentinel: name it in sentinels, and the master in master, instead of server");
	return false;
}

static bool fit_policy(const char *info, char why[REPLY_LINE_BYTES])
{
	char policy[FIELD_BYTES];

	if (!reply_info_field(info, "maxmemory_policy", policy, sizeof(policy))) {
		snprintf(why, REPLY_LINE_BYTES, "INFO does not show maxmemory_policy: it is no Redis 6.2 or newer");
		return false;
	}
	if (strcmp(policy, "noeviction") == 0 || strncmp(policy, "volatile-", 9) == 0)
		return true;
	snprintf(why, REPLY_LINE_BYTES,
		 "its maxmemory-policy is %s, which drops leases when memory is short: set it to noeviction or to "
		 "volatile-... (CONFIG SET maxmemory-policy noeviction, and in its configuration file)",
		 policy);
	return false;
}

bool fit_server(const char *info, char why[REPLY_LINE_BYTES])
{
	char version[FIELD_BYTES];
	unsigned major, minor;

	if (!fit_kind(info, why))
		return false;
	if (!reply_info_field(info, "redis_version", version, sizeof(version))) {
		snprintf(why, REPLY_LINE_BYTES, "INFO does not show redis_version: it is no Redis 6.2 or newer");
		return false;
	}
	if (sscanf(version, "%u.%u", &major, &minor) != 2 || major < 6 || (major == 6 && minor < 2)) {
		snprintf(why, REPLY_LINE_BYTES, "its version is %s: dflock needs Redis 6.2 or newer", version);
		return false;
	}
	return fit_policy(info, why);
}

bool fit_is_cluster(const char *info)
{
	return fit_has_line(info, "cluster_enabled:1");
}

void fit_version(const char *info, char version[STORE_VERSION_BYTES], bool *redis7)
{
	char redis[FIELD_BYTES] = "", valkey[FIELD_BYTES];
	unsigned major;

	reply_info_field(info, "redis_version", redis, sizeof(redis));
	*redis7 = sscanf(redis, "%u", &major) == 1 && major >= 7;
	if (reply_info_field(info, "valkey_version", valkey, sizeof(valkey)))
		snprintf(version, STORE_VERSION_BYTES, "%.16s (valkey %.16s)", redis, valkey);
	else
		snprintf(version, STORE_VERSION_BYTES, "%.60s", redis);
}

bool fit_replication(const char *info, char why[REPLY_LINE_BYTES])
{
	char id[FIELD_BYTES];

	if (reply_info_field(info, "master_replid", id, sizeof(id)) && strlen(id) == REPLID_BYTES - 1 &&
	    strspn(id, "0123456789abcdef") == REPLID_BYTES - 1 && strspn(id, "0") < REPLID_BYTES - 1)
		return true;
	snprintf(
		why, REPLY_LINE_BYTES,
		"INFO does not show a replication id (master_replid), by which dflock sees that the server has lost its "
		"memory: it is no Redis, or a service that hides it. Use Redis or Valkey");
	return false;
}
