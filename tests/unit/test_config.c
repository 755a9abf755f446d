/* Reading the configuration: values and defaults, and what the example shows. Refusals: test_config_refusals.c. */
#include <syslog.h>

#include "tests/unit/config_file.h"
#include "wire/place.h"

FIXTURE_ONCE(read_example, NULL)
FIXTURE(setup, teardown)

TEST(defaults)
{
	char own[256];

	read_ok("");
	ck_assert_str_eq(config->path, file);
	ck_assert_int_eq(gethostname(own, sizeof(own)), 0);
	ck_assert_str_eq(config->host, own);
	ck_assert_int_eq(config->log_level, -1);
	ck_assert_ptr_null(config->stores[0].socket);
	ck_assert_str_eq(config->stores[0].address.host, "127.0.0.1");
	ck_assert_int_eq(config->stores[0].address.port, 6379);
	ck_assert_ptr_null(config->stores[0].user);
	ck_assert_ptr_null(config->stores[0].password);
	ck_assert_int_eq(config->stores[0].database, 0);
	ck_assert_int_eq(config->stores[0].connect_ms, 5000);
	ck_assert_uint_eq(config->stores[0].sentinel_count, 0);
	ck_assert_ptr_null(config->stores[0].master);
	ck_assert_int_eq(config->stores[0].replicas, 0);
	ck_assert_int_eq(config->lease.ttl_ms, 30000);
	ck_assert_int_eq(config->lease.linger_ms, 1000);
	ck_assert_int_eq(config->lease.pin_ms, 1000);
	ck_assert_int_eq(config->lease.probe_ms, 200);
	ck_assert_int_eq(config->lease.store_wait_ms, 30000);
	ck_assert_int_eq(config->lease.min_hold_ms, 5);
	ck_assert_int_eq(config->lease.fair_ms, 1000);
	ck_assert_int_eq(config->lease.freeze_margin_ms, 5000);
	ck_assert_int_eq(config->lease.dead_ms, 600000);
	ck_assert_int_eq(config->lease.sweep_ms, 86400000);
	ck_assert_int_eq(config->lease.idle_ms, 60000);
	ck_assert_int_eq(config->lease.wait_warn_ms, 0);
	ck_assert_int_eq(config->lease.on_lost, ON_LOST_FREEZE);
	ck_assert_ptr_null(config->on_event);
	ck_assert_int_eq(config->lease.on_refused, WIRE_ON_REFUSED_REFUSE);
	ck_assert_uint_eq(config->rule_count, 0);
}

TEST(values)
{
	struct wire_config_id id;

	write_bytes(in_base("password"), "open sesame\nnot this\n", 21);
	ck_assert_int_eq(chmod(in_base("password"), 0640), 0);
	read_ok("host = \"worker_1.example-x\";\n"
		"store : { server = \"[::1]:7000\"; user = \"me\"; password_file = \"%s/password\"; database = 3;\n"
		"          connect_ms = 100 }\n"
		"lease = { ttl_ms = 100; linger_ms = 0; pin_ms = 10; probe_ms = 11; store_wait_ms = 12; fair_ms = 13; "
		"min_hold_ms = 14;\n"
		"          freeze_margin_ms = 44; dead_ms = 2000; sweep_ms = 2592000000L; idle_ms = 0L;\n"
		"          on_lost = \"kill\"; on_refused = \"busy\"; };\n"
		"protect = ();\n");
	ck_assert_int_eq(place_config_id(file, &id), 0);
	ck_assert_mem_eq(&config->id, &id, sizeof(id));
	ck_assert_str_eq(config->host, "worker_1.example-x");
	ck_assert_str_eq(config->stores[0].address.host, "::1");
	ck_assert_int_eq(config->stores[0].address.port, 7000);
	ck_assert_str_eq(config->stores[0].user, "me");
	ck_assert_str_eq(config->stores[0].password, "open sesame");
	ck_assert_int_eq(config->stores[0].database, 3);
	ck_assert_int_eq(config->stores[0].connect_ms, 100);
	ck_assert_int_eq(config->lease.ttl_ms, 100);
	ck_assert_int_eq(config->lease.linger_ms, 0);
	ck_assert_int_eq(config->lease.pin_ms, 10);
	ck_assert_int_eq(config->lease.probe_ms, 11);
	ck_assert_int_eq(config->lease.store_wait_ms, 12);
	ck_assert_int_eq(config->lease.fair_ms, 13);
	ck_assert_int_eq(config->lease.min_hold_ms, 14);
	ck_assert_int_eq(config->lease.freeze_margin_ms, 44);
	ck_assert_int_eq(config->lease.dead_ms, 2000);
	ck_assert_int_eq(config->lease.sweep_ms, 2592000000);
	ck_assert_int_eq(config->lease.idle_ms, 0);
	ck_assert_int_eq(config->lease.on_lost, ON_LOST_KILL);
	ck_assert_int_eq(config->lease.on_refused, WIRE_ON_REFUSED_BUSY);

	read_ok("lease = { on_lost = \"warn\"; ttl_ms = 3600000; };");
	ck_assert_int_eq(config->lease.on_lost, ON_LOST_WARN);
	ck_assert_int_eq(config->lease.dead_ms, 72000000);
	ck_assert_int_eq(config->lease.freeze_margin_ms, 600000);
	read_ok("lease = { ttl_ms = 100; };");
	ck_assert_int_eq(config->lease.dead_ms, 600000);
	ck_assert_int_eq(config->lease.freeze_margin_ms, 16);
}

TEST(cluster)
{
	read_ok("store = { cluster = ( \"10.0.0.1\", \"[::1]:8\" ); replicas = 0; };");
	ck_assert(config->stores[0].cluster);
	ck_assert_ptr_null(config->stores[0].address.host);
	ck_assert_ptr_null(config->stores[0].master);
	ck_assert_uint_eq(config->stores[0].sentinel_count, 2);
	ck_assert_str_eq(config->stores[0].sentinels[0].host, "10.0.0.1");
	ck_assert_int_eq(config->stores[0].sentinels[0].port, 6379);
	ck_assert_int_eq(config->stores[0].sentinels[1].port, 8);
	ck_assert_int_eq(config->stores[0].replicas, 0);
}

TEST(other_engines)
{
	read_ok("store = { postgresql = \"host=a,b dbname=d\"; connect_ms = 100; };");
	ck_assert_str_eq(config->stores[0].postgresql, "host=a,b dbname=d");
	ck_assert_str_eq(config_engine(&config->stores[0]), "postgresql");
	ck_assert_ptr_null(config->stores[0].address.host);
	read_ok("store = { postgresql = \"host=a passfile=/b user=password sslmode=require\"; };");
	read_ok("store = { postgresql = \"postgresql://u@a,b:5433/d?sslmode=require\"; };");
	read_ok("store = { zookeeper = \"a:1,b:2/c\"; };");
	ck_assert_str_eq(config_engine(&config->stores[0]), "zookeeper");
	read_ok("");
	ck_assert_ptr_null(config_engine(&config->stores[0]));
}

TEST(log_levels)
{
	static const int levels[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};
	char text[64];

	for (size_t i = 0; i < sizeof(levels) / sizeof(*levels); i++) {
		snprintf(text, sizeof(text), "log_level = \"%s\";", config_log_level_name(levels[i]));
		read_ok(text);
		ck_assert_int_eq(config->log_level, levels[i]);
	}
	ck_assert_int_eq(config_log_level("Info"), -1);
	ck_assert_int_eq(config_log_level(""), -1);
}

TEST(sentinels)
{
	static const int acks[] = {0, 1, 1, 2, 2, 3};

	write_bytes(in_base("password"), "open sesame\n", 12);
	ck_assert_int_eq(chmod(in_base("password"), 0640), 0);
	read_ok("store = { sentinels = ( \"10.0.0.1\", \"s2:7\", \"[::1]:8\" ); master = \"my.master-1\"; replicas = "
		"4;\n"
		"  sentinel_user = \"me\"; sentinel_password_file = \"%s/password\"; };");
	ck_assert_ptr_null(config->stores[0].socket);
	ck_assert_ptr_null(config->stores[0].address.host);
	ck_assert_uint_eq(config->stores[0].sentinel_count, 3);
	ck_assert_str_eq(config->stores[0].sentinels[0].host, "10.0.0.1");
	ck_assert_int_eq(config->stores[0].sentinels[0].port, 26379);
	ck_assert_str_eq(config->stores[0].sentinels[1].host, "s2");
	ck_assert_int_eq(config->stores[0].sentinels[1].port, 7);
	ck_assert_str_eq(config->stores[0].sentinels[2].host, "::1");
	ck_assert_int_eq(config->stores[0].sentinels[2].port, 8);
	ck_assert_str_eq(config->stores[0].master, "my.master-1");
	ck_assert_str_eq(config->stores[0].sentinel_user, "me");
	ck_assert_str_eq(config->stores[0].sentinel_password, "open sesame");
	ck_assert_int_eq(config->stores[0].replicas, 4);
	read_ok("store = { sentinels = [ \"a\" ]; master = \"m\"; replicas = 1; };"); /* an array will do */
	ck_assert_uint_eq(config->stores[0].sentinel_count, 1);
	read_ok("store = { server = \"a\"; replicas = 64; };");
	ck_assert_int_eq(config->stores[0].replicas, 64);
	for (config->stores[0].replicas = 0; config->stores[0].replicas < 6; config->stores[0].replicas++)
		ck_assert_int_eq(config_acknowledgements(&config->stores[0]), acks[config->stores[0].replicas]);
}

TEST(encrypted)
{
	const struct config_tls *tls;

	read_ok("store = { server = \"redis://a:1\"; };");
	ck_assert(!config->stores[0].tls.on);
	ck_assert_str_eq(config->stores[0].address.host, "a");
	/* The files need not exist: they are read when a connection is made. */
	read_ok("store = { server = \"rediss://[::1]\"; tls_ca = \"/a\"; tls_certificate_file = \"/b\"; "
		"tls_key_file = \"/c\"; tls_server_name = \"d.e\"; };");
	tls = &config->stores[0].tls;
	ck_assert(tls->on);
	ck_assert_str_eq(config->stores[0].address.host, "::1");
	ck_assert_int_eq(config->stores[0].address.port, 6379);
	ck_assert_str_eq(tls->ca, "/a");
	ck_assert_str_eq(tls->certificate, "/b");
	ck_assert_str_eq(tls->key, "/c");
	ck_assert_str_eq(tls->server_name, "d.e");
	read_ok("store = { sentinels = ( \"rediss://a\", \"rediss://b:7\" ); master = \"m\"; replicas = 1; };");
	tls = &config->stores[0].tls;
	ck_assert(tls->on);
	ck_assert_ptr_null(tls->ca);
	ck_assert_ptr_null(tls->key);
	ck_assert_ptr_null(tls->server_name);
	ck_assert_int_eq(config->stores[0].sentinels[0].port, 26379);
	ck_assert_str_eq(config->stores[0].sentinels[1].host, "b");
	ck_assert(!tls->only_server);
	read_ok("store = { sentinels = ( \"a\", \"redis://b\" ); master = \"rediss://m\"; replicas = 1; tls_ca = \"/a\"; };");
	tls = &config->stores[0].tls;
	ck_assert(tls->on && tls->only_server);
	ck_assert_str_eq(tls->ca, "/a");
	ck_assert_str_eq(config->stores[0].master, "m");
	read_ok("store = { sentinels = ( \"rediss://a\" ); master = \"rediss://m\"; replicas = 1; };");
	ck_assert(config->stores[0].tls.on && !config->stores[0].tls.only_server);
}

static const struct server {
	const char *text, *socket, *host;
	int port;
} servers[] = {
	{"localhost", NULL, "localhost", 6379},
	{"redis-1.example_x.org:1", NULL, "redis-1.example_x.org", 1},
	{"10.0.0.1:65535", NULL, "10.0.0.1", 65535},
	{"[fe80::1%1]", NULL, "fe80::1%1", 6379},
	{"[::ffff:1.2.3.4]:80", NULL, "::ffff:1.2.3.4", 80},
	{"unix:/run/redis/redis.sock", "/run/redis/redis.sock", NULL, 0},
};

TEST_EACH(server_syntax, ROWS(servers))
{
	const struct server *s = &servers[_i];
	char text[256];

	snprintf(text, sizeof(text), "store = { server = \"%s\"; };", s->text);
	read_ok(text);
	ck_assert_pstr_eq(config->stores[0].socket, s->socket);
	ck_assert_pstr_eq(config->stores[0].address.host, s->host);
	ck_assert_int_eq(config->stores[0].address.port, s->port);
}

/* Every setting is in the example, and what it shows are the defaults. */
static void expect_in_example(const struct setting_row *rows)
{
	for (; rows->name; rows++) {
		char text[64], *at;

		snprintf(text, sizeof(text), "%s = ", rows->name);
		at = strstr(example, text);
		while (at && at > example && !strchr(" \t\n", at[-1]))
			at = strstr(at + 1, text);
		ck_assert_msg(at != NULL, "config/dflock.conf does not show %s", rows->name);
	}
}

/* Each rule has its own, or the lease group's. The first that matches a path counts. */
TEST(what_rules_say_of_loss)
{
	read_ok("protect = ( { path = \"/d/a\"; on_lost = \"kill\"; unstoppable = \"refuse\"; }, { path = \"/d/b\"; "
		"unstoppable = \"warn\"; }, { tree = \"/d\"; on_lost = \"freeze\"; } );\n"
		"lease = { on_lost = \"warn\"; };");
	ck_assert_int_eq(config_rule_for(config, "/d/a").on_lost, ON_LOST_KILL);
	ck_assert_int_eq(config_rule_for(config, "/d/b").on_lost, ON_LOST_WARN);
	ck_assert_int_eq(config_rule_for(config, "/d/c").on_lost, ON_LOST_FREEZE);
	ck_assert_int_eq(config_rule_for(config, "/e").on_lost, ON_LOST_WARN);
	ck_assert(config_rule(config, "/d/a")->refuse_unstoppable);
	ck_assert(!config_rule(config, "/d/b")->refuse_unstoppable);
	ck_assert(!config_rule(config, "/d/c")->refuse_unstoppable);
	ck_assert_ptr_null(config_rule(config, "/e"));
}

TEST(what_rules_say_of_keys)
{
	read_ok("protect = ( { path = \"/d/a\"; redis_key = \"jobs:{x} y\"; }, "
		"{ path = \"/d/b\"; redis_key = \"k\"; redis_key_format = \"redisson\"; }, { tree = \"/d\"; } );\n");
	ck_assert_str_eq(config_rule_for(config, "/d/a").redis_key, "string jobs:{x} y");
	ck_assert_str_eq(config_rule_for(config, "/d/b").redis_key, "redisson k");
	ck_assert_ptr_null(config_rule_for(config, "/d/c").redis_key);
	ck_assert_ptr_null(config_rule_for(config, "/e").redis_key);
	ck_assert(config->stores[0].keys);
	read_ok("protect = ( { path = \"/d/a\"; } );\n");
	ck_assert(!config->stores[0].keys);
}

/* The first rule that matches says it; the lease group has none. */
TEST(what_rules_say_of_rests)
{
	read_ok("protect = ( { path = \"/d/a\"; at_least_ms = 60000; }, { path = \"/d/b\"; at_least_ms = 0; }, "
		"{ path = \"/d/c\"; }, { tree = \"/d\"; at_least_ms = 2592000000L; } );\n");
	ck_assert_int_eq(config_rule_for(config, "/d/a").at_least_ms, 60000);
	ck_assert_int_eq(config_rule_for(config, "/d/b").at_least_ms, 0);
	ck_assert_int_eq(config_rule_for(config, "/d/c").at_least_ms, 0);
	ck_assert_int_eq(config_rule_for(config, "/d/d").at_least_ms, INT64_C(2592000000));
	ck_assert_int_eq(config_rule_for(config, "/e").at_least_ms, 0);
}

TEST(what_rules_say_of_long_locks)
{
	struct rule rule;

	read_ok("protect = ( { path = \"/d/a\"; warn_after_ms = 5; }, { path = \"/d/b\"; kill_after_ms = 1000; }, "
		"{ path = \"/d/c\"; }, { tree = \"/d\"; warn_after_ms = 1000; kill_after_ms = 1000; } );\n");
	rule = config_rule_for(config, "/d/a");
	ck_assert(rule.warn_after_ms == 5 && rule.kill_after_ms == 0);
	rule = config_rule_for(config, "/d/b");
	ck_assert(rule.warn_after_ms == 0 && rule.kill_after_ms == 1000);
	rule = config_rule_for(config, "/d/c");
	ck_assert(rule.warn_after_ms == 0 && rule.kill_after_ms == 0);
	rule = config_rule_for(config, "/d/d");
	ck_assert(rule.warn_after_ms == 1000 && rule.kill_after_ms == 1000);
	rule = config_rule_for(config, "/e");
	ck_assert(rule.warn_after_ms == 0 && rule.kill_after_ms == 0);
}

TEST(each_rule_its_own_on_refused)
{
	read_ok("protect = ( { path = \"/d/a\"; on_refused = \"busy\"; }, { path = \"/d/b\"; on_refused = \"refuse\"; }, "
		"{ tree = \"/d\"; } );\nlease = { on_refused = \"wait\"; };");
	ck_assert_int_eq(config_rule_for(config, "/d/a").on_refused, WIRE_ON_REFUSED_BUSY);
	ck_assert_int_eq(config_rule_for(config, "/d/b").on_refused, WIRE_ON_REFUSED_REFUSE);
	ck_assert_int_eq(config_rule_for(config, "/d/c").on_refused, WIRE_ON_REFUSED_WAIT);
	ck_assert_int_eq(config_rule_for(config, "/e").on_refused, WIRE_ON_REFUSED_WAIT);
	ck_assert_int_eq(config_set_names(config, "/run/names"), 0);
	ck_assert_int_eq(config_rule_for(config, "/run/names/x").on_refused, WIRE_ON_REFUSED_WAIT);
}

static const struct {
	const char *file, *name;
	int64_t at_least_ms;
} named_locks[] = {
	{"x", "lock:x", 0},
	{"x~90000", "lock:x", 90000},
	{"x~1", "lock:x", 1},
	{"x~2592000000", "lock:x", CONFIG_RULE_MAX_MS},
	/* No dflock makes such files, but users can. */
	{"x~2592000001", "lock:x~2592000001", 0},
	{"x~99999999999999999999999999", "lock:x~99999999999999999999999999", 0},
	{"x~0", "lock:x~0", 0},
	{"x~090", "lock:x~090", 0},
	{"x~", "lock:x~", 0},
	{"x~-5", "lock:x~-5", 0},
	{"x~5s", "lock:x~5s", 0},
	{"~5", "lock:~5", 0},
	{"x~5~6", "lock:x~5", 6},
};

TEST_EACH(a_lock_without_a_file_may_have_a_rest, ROWS(named_locks))
{
	char path[PATH_MAX], name[LOCK_NAME_BYTES];

	read_ok("protect = ( { tree = \"/d\"; at_least_ms = 7; } );");
	ck_assert_int_eq(config_set_names(config, "/run/names"), 0);
	snprintf(path, sizeof(path), "/run/names/%s", named_locks[_i].file);
	ck_assert_int_eq(config_lock_name(config, path, name), 0);
	ck_assert_str_eq(name, named_locks[_i].name);
	ck_assert_int_eq(config_rule_for(config, path).at_least_ms, named_locks[_i].at_least_ms);
	/* Only there. */
	snprintf(path, sizeof(path), "/d/%s", named_locks[_i].file);
	ck_assert_int_eq(config_rule_for(config, path).at_least_ms, 7);
	ck_assert_int_eq(config_lock_name(config, path, name), 0);
	ck_assert_str_eq(name, path);
}

TEST(example_is_complete)
{
	struct config_store store;
	struct config_lease lease;

	expect_in_example(config_top_rows);
	expect_in_example(config_store_rows);
	expect_in_example(config_lease_rows);
	expect_in_example(config_rule_rows);

	read_ok("");
	lease = config->lease;
	store = config->stores[0];
	store.address.host = strdup(store.address.host);
	write_bytes(file, example, strlen(example));
	config_free(config);
	config = NULL;
	ck_assert_msg(config_load(file, &config, why, sizeof(why)) == 0, "%s", why);
	ck_assert_mem_eq(&lease, &config->lease, sizeof(lease));
	ck_assert_str_eq(store.address.host, config->stores[0].address.host);
	ck_assert_int_eq(store.address.port, config->stores[0].address.port);
	ck_assert_int_eq(store.database, config->stores[0].database);
	ck_assert_int_eq(store.replicas, config->stores[0].replicas);
	ck_assert_int_eq(store.connect_ms, config->stores[0].connect_ms);
	ck_assert_uint_eq(config->rule_count, 0);
	free(store.address.host);
}

/* As it was, for ever: hosts of another version look for a name in the same shard. */
TEST(the_shard_of_a_name)
{
	static const struct {
		const char *name;
		unsigned of_8, of_16, of_31;
	} names[] = {{"", 5, 5, 8}, {"t/f", 6, 6, 20}, {"lock:nightly", 5, 13, 18}, {"jobs/ä", 1, 1, 12}};
	struct config_store store = {.shards = 1};
	unsigned in[16] = {0};
	char name[24];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		store.shards = 1;
		ck_assert_uint_eq(config_shard(&store, names[i].name), 0);
		store.shards = 8;
		ck_assert_uint_eq(config_shard(&store, names[i].name), names[i].of_8);
		store.shards = 16;
		ck_assert_uint_eq(config_shard(&store, names[i].name), names[i].of_16);
		store.shards = 31;
		ck_assert_uint_eq(config_shard(&store, names[i].name), names[i].of_31);
	}
	store.shards = 16;
	for (int i = 0; i < 16000; i++) {
		sprintf(name, "queue/job-%d.lock", i);
		in[config_shard(&store, name)]++;
	}
	for (int i = 0; i < 16; i++)
		ck_assert_uint_gt(in[i], 900); /* of 1,000 */
}

TEST(what_rules_say_of_waits)
{
	read_ok("lease = { wait_warn_ms = 7; };\n"
		"protect = ( { path = \"/d/a\"; wait_warn_ms = 60000; }, { path = \"/d/b\"; wait_warn_ms = 0; }, "
		"{ path = \"/d/c\"; } );\n");
	ck_assert_int_eq(config_rule_for(config, "/d/a").wait_warn_ms, 60000);
	ck_assert_int_eq(config_rule_for(config, "/d/b").wait_warn_ms, 0);
	ck_assert_int_eq(config_rule_for(config, "/d/c").wait_warn_ms, 7);
	ck_assert_int_eq(config_rule_for(config, "/e").wait_warn_ms, 0);
	ck_assert_int_eq(config_set_names(config, "/names"), 0);
	ck_assert_int_eq(config_rule_for(config, "/names/x").wait_warn_ms, 7);
}

TEST(a_command_for_events)
{
	read_ok("on_event = ( \"/bin/sh\", \"-c\", \"cat >/x; $(id)\" );\n");
	ck_assert_str_eq(config->on_event[0], "/bin/sh");
	ck_assert_str_eq(config->on_event[1], "-c");
	ck_assert_str_eq(config->on_event[2], "cat >/x; $(id)");
	ck_assert_ptr_null(config->on_event[3]);
	ck_assert_int_eq(config_can_run(config, why, sizeof(why)), 0);
	read_ok("on_event = [ \"/none\" ];\n");
	ck_assert_int_eq(config_can_run(config, why, sizeof(why)), -ENOENT);
	ck_assert_ptr_nonnull(strstr(why, "c.conf: on_event /none cannot be run: No such file or directory"));
	read_ok("on_event = [ \"/etc\" ];\n");
	ck_assert_int_eq(config_can_run(config, why, sizeof(why)), -EACCES);
	read_ok("");
	ck_assert_int_eq(config_can_run(config, why, sizeof(why)), 0);
}

/* Another user, or a group, may have written the file. */
TEST(a_command_of_another_user)
{
	static const struct {
		mode_t mode;
		uid_t owner;
		bool good;
	} files[] = {{0644, 0, true},  {0600, 0, true},  {0664, 0, false},
		     {0646, 0, false}, {0620, 0, false}, {0644, 65534, false}};

	ck_assert_int_eq(geteuid(), 0);
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		struct config *none = NULL;

		for (int with = 0; with < 2; with++) {
			bool good = files[i].good || !with;

			write_config(with ? "on_event = [ \"/bin/true\" ];" : "");
			ck_assert_int_eq(chown(file, files[i].owner, (gid_t)-1), 0);
			ck_assert_int_eq(chmod(file, files[i].mode), 0);
			ck_assert_int_eq(config_load(file, &none, why, sizeof(why)), good ? 0 : -EINVAL);
			ck_assert_msg(
				good || strstr(why,
					       "c.conf:1: on_event is a command that the keeper runs; expected a file"),
				"%s", why);
			config_free(good ? none : NULL);
		}
	}
}
