/* Reading the configuration: values and defaults, what rules and stores say, and what the example shows. Refusals: test_config_refusals.c. */
#include <syslog.h>

#include "tests/unit/config_file.h"
#include "wire/place.h"

FIXTURE_ONCE(read_example, NULL)
FIXTURE(setup, teardown)

/* The default store. */
static const struct config_store *read_store(const char *text)
{
	read_ok(text);
	return &config->stores[0];
}

static void put_password(void)
{
	write_bytes(in_base("password"), "open sesame\nnot this\n", 21);
	ck_assert_int_eq(chmod(in_base("password"), 0640), 0);
}

TEST(values)
{
	const struct config_lease *lease;
	const struct config_store *store;
	struct wire_config_id id;

	put_password();
	store = read_store(
		"host = 'worker_1.example-x';\n"
		"store : { server = '[::1]:7000'; user = 'me'; password_file = '%s/password'; database = 3;\n"
		"          connect_ms = 100 }\n"
		"lease = { ttl_ms = 100; linger_ms = 0; pin_ms = 10; probe_ms = 11; store_wait_ms = 12; fair_ms = 13; "
		"min_hold_ms = 14;\n"
		"          freeze_margin_ms = 44; dead_ms = 2000; sweep_ms = 2592000000L; idle_ms = 0L;\n"
		"          on_lost = 'kill'; on_refused = 'busy'; };\n"
		"protect = ();\n");
	lease = &config->lease;
	ck_assert_int_eq(place_config_id(file, &id), 0);
	ck_assert_mem_eq(&config->id, &id, sizeof(id));
	ck_assert_str_eq(config->host, "worker_1.example-x");
	ck_assert_str_eq(store->address.host, "::1");
	ck_assert_int_eq(store->address.port, 7000);
	ck_assert_str_eq(store->user, "me");
	ck_assert_str_eq(store->password, "open sesame");
	ck_assert_int_eq(store->database, 3);
	ck_assert_int_eq(store->connect_ms, 100);
	ck_assert(lease->ttl_ms == 100 && lease->linger_ms == 0 && lease->pin_ms == 10 && lease->probe_ms == 11);
	ck_assert(lease->store_wait_ms == 12 && lease->fair_ms == 13 && lease->min_hold_ms == 14);
	ck_assert(lease->freeze_margin_ms == 44 && lease->dead_ms == 2000 && lease->sweep_ms == 2592000000 &&
		  lease->idle_ms == 0);
	ck_assert(lease->on_lost == ON_LOST_KILL && lease->on_refused == WIRE_ON_REFUSED_BUSY);
	/* What depends on ttl_ms. */
	read_ok("lease = { on_lost = 'warn'; ttl_ms = 3600000; };");
	ck_assert_int_eq(config->lease.on_lost, ON_LOST_WARN);
	ck_assert_int_eq(config->lease.dead_ms, 72000000);
	ck_assert_int_eq(config->lease.freeze_margin_ms, 600000);
	read_ok("lease = { ttl_ms = 100; };");
	ck_assert_int_eq(config->lease.dead_ms, 600000);
	ck_assert_int_eq(config->lease.freeze_margin_ms, 16);
}

TEST(log_levels)
{
	static const int levels[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};
	char text[64];

	for (size_t i = 0; i < sizeof(levels) / sizeof(*levels); i++) {
		snprintf(text, sizeof(text), "log_level = '%s';", config_log_level_name(levels[i]));
		read_ok(text);
		ck_assert_int_eq(config->log_level, levels[i]);
	}
	ck_assert_int_eq(config_log_level("Info"), -1);
	ck_assert_int_eq(config_log_level(""), -1);
}

/* --- where stores are --- */

static const struct server {
	const char *text, *socket, *host;
	int port;
	bool tls;
} servers[] = {
	{"localhost", NULL, "localhost", 6379, false},
	{"redis-1.example_x.org:1", NULL, "redis-1.example_x.org", 1, false},
	{"10.0.0.1:65535", NULL, "10.0.0.1", 65535, false},
	{"[fe80::1%1]", NULL, "fe80::1%1", 6379, false},
	{"[::ffff:1.2.3.4]:80", NULL, "::ffff:1.2.3.4", 80, false},
	{"unix:/run/redis/redis.sock", "/run/redis/redis.sock", NULL, 0, false},
	{"redis://a:1", NULL, "a", 1, false},
	{"rediss://[::1]", NULL, "::1", 6379, true},
};

TEST_EACH(server_syntax, ROWS(servers))
{
	const struct server *s = &servers[_i];
	const struct config_store *store;
	char text[256];

	snprintf(text, sizeof(text), "store = { server = '%s'; };", s->text);
	store = read_store(text);
	ck_assert_pstr_eq(store->socket, s->socket);
	ck_assert_pstr_eq(store->address.host, s->host);
	ck_assert_int_eq(store->address.port, s->port);
	ck_assert_int_eq(store->tls.on, s->tls);
}

static void check_listed(const struct config_store *store, size_t i, const char *host, int port)
{
	ck_assert_uint_gt(store->sentinel_count, i);
	ck_assert_str_eq(store->sentinels[i].host, host);
	ck_assert_int_eq(store->sentinels[i].port, port);
}

TEST(clusters_and_sentinels)
{
	static const int acks[] = {0, 1, 1, 2, 2, 3};
	const struct config_store *store =
		read_store("store = { cluster = ( '10.0.0.1', '[::1]:8' ); replicas = 0; };");

	ck_assert(store->cluster && !store->address.host && !store->master && store->replicas == 0);
	ck_assert_uint_eq(store->sentinel_count, 2);
	check_listed(store, 0, "10.0.0.1", 6379);
	check_listed(store, 1, "::1", 8);
	put_password();
	store = read_store(
		"store = { sentinels = ( '10.0.0.1', 's2:7', '[::1]:8' ); master = 'my.master-1'; replicas = 4;\n"
		"  sentinel_user = 'me'; sentinel_password_file = '%s/password'; };");
	ck_assert(!store->cluster && !store->socket && !store->address.host && store->replicas == 4);
	ck_assert_uint_eq(store->sentinel_count, 3);
	check_listed(store, 0, "10.0.0.1", 26379);
	check_listed(store, 1, "s2", 7);
	check_listed(store, 2, "::1", 8);
	ck_assert_str_eq(store->master, "my.master-1");
	ck_assert_str_eq(store->sentinel_user, "me");
	ck_assert_str_eq(store->sentinel_password, "open sesame");
	store = read_store("store = { sentinels = [ 'a' ]; master = 'm'; replicas = 1; };"); /* an array will do */
	ck_assert_uint_eq(store->sentinel_count, 1);
	ck_assert_int_eq(read_store("store = { server = 'a'; replicas = 64; };")->replicas, 64);
	for (int replicas = 0; replicas < 6; replicas++)
		ck_assert_int_eq(config_acknowledgements(&(struct config_store){.replicas = replicas}), acks[replicas]);
}

TEST(encrypted)
{
	const struct config_store *store;
	const struct config_tls *tls;

	/* The files need not exist: they are read when a connection is made. */
	tls = &read_store("store = { server = 'rediss://[::1]'; tls_ca = '/a'; tls_certificate_file = '/b'; "
			  "tls_key_file = '/c'; tls_server_name = 'd.e'; };")
		       ->tls;
	ck_assert_str_eq(tls->ca, "/a");
	ck_assert_str_eq(tls->certificate, "/b");
	ck_assert_str_eq(tls->key, "/c");
	ck_assert_str_eq(tls->server_name, "d.e");
	store = read_store("store = { sentinels = ( 'rediss://a', 'rediss://b:7' ); master = 'm'; replicas = 1; };");
	tls = &store->tls;
	ck_assert(tls->on && !tls->only_server && !tls->ca && !tls->key && !tls->server_name);
	check_listed(store, 0, "a", 26379);
	check_listed(store, 1, "b", 7);
	store = read_store(
		"store = { sentinels = ( 'a', 'redis://b' ); master = 'rediss://m'; replicas = 1; tls_ca = '/a'; };");
	ck_assert(store->tls.on && store->tls.only_server);
	ck_assert_str_eq(store->tls.ca, "/a");
	ck_assert_str_eq(store->master, "m");
	store = read_store("store = { sentinels = ( 'rediss://a' ); master = 'rediss://m'; replicas = 1; };");
	ck_assert(store->tls.on && !store->tls.only_server);
}

TEST(other_engines)
{
	const struct config_store *store =
		read_store("store = { postgresql = 'host=a,b dbname=d'; connect_ms = 100; };");

	ck_assert_str_eq(store->postgresql, "host=a,b dbname=d");
	ck_assert_str_eq(config_engine(store), "postgresql");
	ck_assert_ptr_null(store->address.host);
	read_ok("store = { postgresql = 'host=a passfile=/b user=password sslmode=require'; };");
	read_ok("store = { postgresql = 'postgresql://u@a,b:5433/d?sslmode=require'; };");
	ck_assert_str_eq(config_engine(read_store("store = { zookeeper = 'a:1,b:2/c'; };")), "zookeeper");
	ck_assert_ptr_null(config_engine(read_store("")));
}

TEST(several_stores)
{
#define TWO(a, b) "store = { server = 'default'; };\nstores = { a = { " a " }; b = { " b " }; };"
	read_ok("");
	ck_assert_uint_eq(config->store_count, 1);
	ck_assert_str_eq(config->stores[0].name, "");
	read_ok(THREE_STORES);
	ck_assert_uint_eq(config->store_count, 3);
	ck_assert_str_eq(config->stores[0].name, "");
	ck_assert_str_eq(config->stores[0].address.host, "d");
	ck_assert_str_eq(config->stores[1].name, "pay_1");
	ck_assert_str_eq(config_engine(&config->stores[1]), "postgresql");
	ck_assert_str_eq(config->stores[2].name, "Hot-2");
	ck_assert_int_eq(config->stores[2].address.port, 7000);
	ck_assert_int_eq(config->stores[2].connect_ms, 5000);
	read_ok("store = { cluster = ( 'x' ); replicas = 0; };\nstores = { };");
	ck_assert_uint_eq(config->store_count, 1);
	/* Not one server. */
	read_ok(TWO("server = 'x'; database = 1;", "server = 'x'; database = 2;"));
	read_ok(TWO("server = 'x';", "server = 'x:6380';"));
	read_ok(TWO("postgresql = 'dbname=d';", "zookeeper = 'z/d';"));
	read_ok(TWO("cluster = ( 'x' ); replicas = 1;", "cluster = ( 'y' ); replicas = 1;"));
	read_ok(TWO("sentinels = ( 'x' ); master = 'm'; replicas = 1;",
		    "sentinels = ( 'x' ); master = 'n'; replicas = 1;"));
}

/* As it was, for ever: hosts of another version look for a name in the same shard. */
TEST(the_shard_of_a_name)
{
	static const unsigned shards[] = {1, 8, 16, 31};
	static const struct {
		const char *name;
		unsigned in[4];
	} names[] = {{"", {0, 5, 5, 8}},
		     {"t/f", {0, 6, 6, 20}},
		     {"lock:nightly", {0, 5, 13, 18}},
		     {"jobs/ä", {0, 1, 1, 12}}};
	struct config_store store;
	unsigned in[16] = {0};
	char name[24];

	for (int n = 0; n < ROWS(names); n++)
		for (int i = 0; i < 4; i++) {
			store.shards = shards[i];
			ck_assert_uint_eq(config_shard(&store, names[n].name), names[n].in[i]);
		}
	store.shards = 16;
	for (int i = 0; i < 16000; i++) {
		sprintf(name, "queue/job-%d.lock", i);
		in[config_shard(&store, name)]++;
	}
	for (int i = 0; i < 16; i++)
		ck_assert_uint_gt(in[i], 900); /* of 1,000 */
}

/* --- rules --- */

static const struct said {
	const char *path;
	enum on_lost on_lost;
	enum wire_on_refused on_refused;
	int64_t wait_warn_ms, at_least_ms, warn_after_ms, kill_after_ms;
	bool refuse_unstoppable;
	const char *key;
} sayings[] = {
	{"/d/a", ON_LOST_KILL, WIRE_ON_REFUSED_BUSY, 60000, 60000, 0, 0, true, NULL},
	{"/d/b", ON_LOST_WARN, WIRE_ON_REFUSED_REFUSE, 0, 0, 5, 0, false, NULL},
	{"/d/c", ON_LOST_WARN, WIRE_ON_REFUSED_WAIT, 7, 0, 0, 1000, false, "string jobs:{x} y"},
	{"/d/d", ON_LOST_WARN, WIRE_ON_REFUSED_WAIT, 7, 0, 0, 0, false, "redisson k"},
	{"/d/e", ON_LOST_FREEZE, WIRE_ON_REFUSED_WAIT, 7, 2592000000, 1000, 1000, false, NULL},
	{"/e", ON_LOST_WARN, WIRE_ON_REFUSED_WAIT, 0, 0, 0, 0, false, NULL}, /* no rule */
	{"/names/x", ON_LOST_WARN, WIRE_ON_REFUSED_WAIT, 7, 0, 0, 0, false, NULL},
};

/* The first rule that matches a path counts. Each has its own values, or the lease group's where that has them. */
TEST_EACH(what_rules_say, ROWS(sayings))
{
	const struct said *s = &sayings[_i];
	struct rule rule;

	read_ok("lease = { on_lost = 'warn'; on_refused = 'wait'; wait_warn_ms = 7; };\n"
		"protect = ( { path = '/d/a'; on_lost = 'kill'; unstoppable = 'refuse'; on_refused = 'busy';\n"
		"   wait_warn_ms = 60000; at_least_ms = 60000; },\n"
		" { path = '/d/b'; unstoppable = 'warn'; on_refused = 'refuse'; wait_warn_ms = 0; at_least_ms = 0;\n"
		"   warn_after_ms = 5; },\n"
		" { path = '/d/c'; kill_after_ms = 1000; redis_key = 'jobs:{x} y'; },\n"
		" { path = '/d/d'; redis_key = 'k'; redis_key_format = 'redisson'; },\n"
		" { tree = '/d'; on_lost = 'freeze'; at_least_ms = 2592000000L; warn_after_ms = 1000; kill_after_ms = 1000; } );");
	ck_assert_int_eq(config_set_names(config, "/names"), 0);
	rule = config_rule_for(config, s->path);
	ck_assert_int_eq(rule.on_lost, s->on_lost);
	ck_assert_int_eq(rule.on_refused, s->on_refused);
	ck_assert_int_eq(rule.wait_warn_ms, s->wait_warn_ms);
	ck_assert_int_eq(rule.at_least_ms, s->at_least_ms);
	ck_assert_int_eq(rule.warn_after_ms, s->warn_after_ms);
	ck_assert_int_eq(rule.kill_after_ms, s->kill_after_ms);
	ck_assert_int_eq(rule.refuse_unstoppable, s->refuse_unstoppable);
	ck_assert_pstr_eq(rule.redis_key, s->key);
	ck_assert_int_eq(config_rule(config, s->path) == NULL, strcmp(s->path, "/e") == 0);
	ck_assert(config->stores[0].keys);
	ck_assert(!read_store("protect = ( { path = '/d/a'; } );\n")->keys);
}

TEST(stores_of_rules)
{
	static const struct {
		const char *name;
		size_t store;
	} names[] = {{"n1", 1},     {"g/x.l", 2}, {"g/x", 0},    {"/g/x", 0},
		     {"/t/x/y", 1}, {"/t", 0},    {"lock:x", 0}, {"", 0}};

	read_ok(THREE_STORES "protect = ( { path = '/one'; name = 'n1'; store = 'pay_1'; },\n"
			     "{ path = '/g/*.l'; name = 'g'; store = 'Hot-2'; },\n"
			     "{ tree = '/g'; },\n"
			     "{ tree = '/t'; store = 'pay_1'; },\n"
			     "{ path = '/j'; name = 'n2'; },\n"
			     "{ path = '/k'; name = 'n2'; redis_key = 'k'; },\n"
			     "{ path = '/t/k'; redis_key = 'l'; } );");
	ck_assert_uint_eq(config_rule(config, "/one")->store, 1);
	ck_assert_uint_eq(config_rule_for(config, "/g/x.l").store, 2);
	ck_assert_uint_eq(config_rule_for(config, "/other").store, 0);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		ck_assert_uint_eq(config_store_of(config, names[i].name), names[i].store);
	/* The key is of another rule with the same name. */
	ck_assert_str_eq(config_redis_key_of(config, "n2"), "string k");
	ck_assert_ptr_null(config_redis_key_of(config, "/t/x"));
	ck_assert_ptr_null(config_redis_key_of(config, "n1/x"));
	ck_assert_ptr_null(config_redis_key_of(config, "/t/k")); /* the rule is hidden by the tree's */
	ck_assert(config->stores[0].keys && !config->stores[1].keys);
	/* A key is in the store of its rule. */
	read_ok("store = { server = 'default'; };\nstores = { a = { server = 'x'; }; };\n"
		"protect = ( { path = '/a'; redis_key = 'k'; }, { path = '/b'; store = 'a'; redis_key = 'k'; } );");
	ck_assert(config->stores[0].keys && config->stores[1].keys);
}

/* If reading them takes too long, Check ends this test. A keeper has ten seconds to start, and an operator waits for a reload. */
TEST(many_rules_and_two_stores)
{
	static const struct {
		const char *name, *last;
		int count;
	} many[] = {{"name = 'one';", "{ tree = '/e'; store = 'a'; }", 3000},
		    {"", "{ tree = '/d'; store = 'a'; }", 6000}};
	char *text;
	size_t len;

	for (int row = 0; row < ROWS(many); row++) {
		FILE *f = open_memstream(&text, &len);

		fputs("store = { }; stores = { a = { server = 'x'; }; };\nprotect = ( ", f);
		for (int i = 0; i < many[row].count; i++)
			fprintf(f, "{ path = '/d/%d'; %s },\n", i, many[row].name);
		fprintf(f, "%s );", many[row].last);
		ck_assert_int_eq(fclose(f), 0);
		read_ok(text);
		free(text);
		ck_assert_int_eq(config->rule_count, many[row].count + 1);
		ck_assert_uint_eq(config_store_of(config, row ? "/d/x" : "/e/x"), 1);
		ck_assert_uint_eq(config_store_of(config, row ? "/d/7" : "one"), 0);
	}
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

	read_ok("protect = ( { tree = '/d'; at_least_ms = 7; } );");
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

/* --- the command for events --- */

TEST(a_command_for_events)
{
	read_ok("on_event = ( '/bin/sh', '-c', 'cat >/x; $(id)' );\n");
	ck_assert_str_eq(config->on_event[0], "/bin/sh");
	ck_assert_str_eq(config->on_event[1], "-c");
	ck_assert_str_eq(config->on_event[2], "cat >/x; $(id)");
	ck_assert_ptr_null(config->on_event[3]);
	ck_assert_int_eq(config_can_run(config, why, sizeof(why)), 0);
	read_ok("on_event = [ '/none' ];\n");
	ck_assert_int_eq(config_can_run(config, why, sizeof(why)), -ENOENT);
	ck_assert_ptr_nonnull(strstr(why, "c.conf: on_event /none cannot be run: No such file or directory"));
	read_ok("on_event = [ '/etc' ];\n");
	ck_assert_int_eq(config_can_run(config, why, sizeof(why)), -EACCES);
	read_ok("");
	ck_assert_int_eq(config_can_run(config, why, sizeof(why)), 0);
}

static const struct {
	mode_t mode;
	uid_t owner;
	bool good;
} rights[] = {{0644, 0, true},  {0600, 0, true},  {0664, 0, false},
	      {0646, 0, false}, {0620, 0, false}, {0644, 65534, false}};

/* Another user, or a group, may have written the file. */
TEST_EACH(a_command_of_another_user, ROWS(rights))
{
	struct config *none = NULL;

	if (rights[_i].owner != 0 && geteuid() != 0)
		return; /* only root can give a file away */
	for (int with = 0; with < 2; with++) {
		bool good = rights[_i].good || !with;

		write_config(with ? "on_event = [ '/bin/true' ];" : "");
		ck_assert_int_eq(chown(file, rights[_i].owner ? rights[_i].owner : geteuid(), (gid_t)-1), 0);
		ck_assert_int_eq(chmod(file, rights[_i].mode), 0);
		ck_assert_int_eq(config_load(file, &none, why, sizeof(why)), good ? 0 : -EINVAL);
		ck_assert_msg(
			good || strstr(why, "c.conf:1: on_event is a command that the keeper runs; expected a file"),
			"%s", why);
		config_free(good ? none : NULL);
	}
}

/* --- the example, which shows every setting, and the defaults --- */

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

static void check_defaults(void)
{
	const struct config_store *store = &config->stores[0];
	char own[256];

	ck_assert_int_eq(gethostname(own, sizeof(own)), 0);
	ck_assert_str_eq(config->path, file);
	ck_assert_str_eq(config->host, own);
	ck_assert_str_eq(store->address.host, "127.0.0.1");
	ck_assert(!store->socket && !store->user && !store->password && !store->master && !config->on_event);
	ck_assert(store->address.port == 6379 && store->database == 0 && store->connect_ms == 5000);
	ck_assert(store->sentinel_count == 0 && store->replicas == 0 && config->rule_count == 0);
	ck_assert_int_eq(config->lease.wait_warn_ms, 0);
}

TEST(example_is_complete)
{
	struct config_lease lease;

	expect_in_example(config_top_rows);
	expect_in_example(config_store_rows);
	expect_in_example(config_lease_rows);
	expect_in_example(config_rule_rows);
	read_ok("");
	check_defaults();
	ck_assert_int_eq(config->log_level, -1);
	lease = config->lease;
	write_bytes(file, example, strlen(example));
	config_free(config);
	config = NULL;
	ck_assert_msg(config_load(file, &config, why, sizeof(why)) == 0, "%s", why);
	check_defaults();
	ck_assert_mem_eq(&lease, &config->lease, sizeof(lease));
}
