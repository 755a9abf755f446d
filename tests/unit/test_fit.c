/* store/redis/fit.c: which servers will do, by what INFO says. The fields are those that these servers show. */
#include "store/redis/fit.h"
#include "tests/unit/suite.h"

#define REST    "maxmemory_policy:noeviction\r\n"
#define REDIS   "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n# Memory\r\n" REST
#define REPLICA "# Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_replid:"

static const struct {
	const char *info, *why; /* why NULL: it will do */
} servers[] = {
	{REDIS, NULL},
	{"redis_version:6.2.0\r\n" REST, NULL},
	{"redis_version:8.0.2\nmaxmemory_policy:volatile-ttl\n", NULL},
	{"redis_version:6.0.16\r\n" REST, "its version is 6.0.16: dflock needs Redis 6.2 or newer"},
	{"redis_version:seven\r\n" REST, "its version is seven"},
	{"colour:blue\r\n", "INFO does not show redis_version"},
	{"", "INFO does not show redis_version"},
	{"redis_version:7.0.15\r\n", "INFO does not show maxmemory_policy"},
	{"redis_version:7.0.15\r\nmaxmemory_policy:allkeys-lru\r\n", "its maxmemory-policy is allkeys-lru"},
	{"# Server\r\nredis_version:7.0.15\r\nredis_mode:sentinel\r\n", "it is a Redis Sentinel: name it in sentinels"},
	{"# Server\r\nredis_version:7.4.0\r\ndragonfly_version:df-v1.40.1\r\nredis_mode:standalone\r\narch_bits:64\r\n",
	 "it is Dragonfly, which dflock does not support"},
	{"# Server\r\nredis_version:6.3.4\r\nredis_mode:standalone\r\n" REST "# Cluster\r\ncluster_enabled:0\r\n\r\n"
	 "# KeyDB\r\nmvcc_depth:0\r\n",
	 "it is KeyDB, which dflock does not support"},
	{"redis_version:6.3.4\r\n" REST "role:active-replica\r\n", "it is KeyDB, which dflock does not support"},
	{"redis_version:255.255.255\r\n" REST "# Modules\r\nmodule:name=raft,ver=1,api=1,filters=1,usedby=[],using=[],"
	 "options=[]\r\n",
	 "it is RedisRaft, which dflock does not support"},
	/* Not at the beginning of a line: a name or path that somebody chose. */
	{REDIS "executable:/opt/mvcc_depth:0/redis-server\r\nconfig_file:/etc/dragonfly_version:1\r\n", NULL},
	{REDIS "module:name=raftlike,ver=1\r\n", NULL},
};

TEST_EACH(kinds, ROWS(servers))
{
	char why[REPLY_LINE_BYTES] = "";

	ck_assert_int_eq(fit_server(servers[_i].info, why), servers[_i].why == NULL);
	if (servers[_i].why)
		ck_assert_msg(strncmp(why, servers[_i].why, strlen(servers[_i].why)) == 0, "%s", why);
}

static const struct {
	const char *info;
	bool good;
} ids[] = {
	{REPLICA "0123456789abcdef0123456789abcdef01234567\r\n", true},
	{REPLICA "0000000000000000000000000000000000000000\r\n", false},
	{REPLICA "0123456789abcdef0123456789abcdef0123456\r\n", false},
	{REPLICA "0123456789abcdef0123456789abcdef0123456X\r\n", false},
	{REPLICA "\r\n", false},
	{"role:master\r\nconnected_slaves:0\r\n", false},
};

TEST_EACH(replication_ids, ROWS(ids))
{
	char why[REPLY_LINE_BYTES] = "";

	ck_assert_int_eq(fit_replication(ids[_i].info, why), ids[_i].good);
	ck_assert_int_eq(strstr(why, "master_replid") != NULL, !ids[_i].good);
}

TEST(versions)
{
	char version[STORE_VERSION_BYTES];
	bool redis7;

	fit_version(REDIS, version, &redis7);
	ck_assert_str_eq(version, "7.0.15");
	ck_assert(redis7);
	fit_version("redis_version:6.2.14\r\n", version, &redis7);
	ck_assert(!redis7);
	fit_version("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\n", version, &redis7);
	ck_assert_str_eq(version, "7.2.4 (valkey 8.1.1)");
	ck_assert(redis7);
}
