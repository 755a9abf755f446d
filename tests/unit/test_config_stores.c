/* Several stores in a configuration: what is read, which rule has which, what is refused. */
#include "tests/unit/config_file.h"

#define S(settings) "stores = {\n a = { " settings " };\n"
#define TWO(a, b)   "stores = {\n a = { " a " };\n b = { " b " }; };"
#define DEFAULT     "store = { server = \"default\"; };\n"
#define THREE                                                                                                          \
	"store = { server = \"d\"; };\n"                                                                               \
	"stores = { pay_1 = { postgresql = \"dbname=d\"; }; Hot-2 = { server = \"h:7000\"; }; };\n"
#define ONE_LOCK ", so that one lock would be two; expected a store of its own"

static const struct refusal {
	const char *text;
	int line;
	const char *message;
} refusals[] = {
	/* Names. */
	{S("server = \"x\";") "a = { }; };", 3, "duplicate setting name; expected each setting once"},
	{"stores = {\n* = { server = \"x\"; }; };", 2,
	 "stores has \"*\"; expected 1 to 32 letters, digits, '-' and '_'"},
	{"stores = {\nabcdefghabcdefghabcdefghabcdefghx = { server = \"x\"; }; };", 2,
	 "stores has \"abcdefghabcdefghabcdefghabcdefghx\"; expected 1 to 32"},
	{"stores = {\n9a = { server = \"x\"; }; };", 2, "syntax error"},
	{"stores = ( );", 1, "stores is a list ( ); expected a group { name = value; }"},
	{"stores = {\na = \"x\"; };", 2, "stores.a is no group; expected a group { name = value; }, as store is"},
	/* Their settings are those of `store`, and are called by their names. */
	{S("server = \"x\";\n porst = 1;") "};", 3, "unknown setting stores.a.porst; expected one of postgresql"},
	{S("\nserver = \"x:y\";") "};", 3, "stores.a.server is \"x:y\": the port is not a number"},
	{S("server = \"x\";\nsentinels = ( \"y\" );") "};", 2,
	 "stores.a.server is there beside stores.a.sentinels, which know the server"},
	{S("server = \"x\";\nuser = \"u\";") "};", 3, "stores.a.user is there without stores.a.password_file"},
	{S("server = \"x\";\npassword_file = \"/no/such\";") "};", 3,
	 "stores.a.password_file /no/such cannot be read: No such file"},
	/* One server, one database. */
	{S("server = \"127.0.0.1:6379\";") "};", 2, "stores.a has the server and database of store" ONE_LOCK},
	{TWO("server = \"x\";", "server = \"rediss://x:6379\";"), 3,
	 "stores.b has the server and database of stores.a" ONE_LOCK},
	{TWO("server = \"x\"; database = 3;", "server = \"x\"; database = 3; connect_ms = 100;"), 3,
	 "stores.b has the"},
	{TWO("server = \"unix:/s\";", "server = \"unix:/s\";"), 3, "stores.b has the server"},
	{TWO("postgresql = \"dbname=d\";", "postgresql = \"dbname=d\";"), 3, "stores.b has the server"},
	{TWO("zookeeper = \"z/d\";", "zookeeper = \"z/d\";"), 3, "stores.b has the server"},
	{TWO("sentinels = ( \"x\", \"y\" ); master = \"m\"; replicas = 1;",
	     "sentinels = ( \"z\", \"y\" ); master = \"m\"; replicas = 1;"),
	 3, "stores.b has the server"},
	{TWO("cluster = ( \"x\", \"y\" ); replicas = 1;", "cluster = ( \"y\" ); replicas = 1;"), 3, "stores.b has the"},
	/* Which one has the locks of rules without a name? */
	{S("server = \"x\";") "};", 1, "stores is there without store; expected store, too"},
	/* Rules. */
	{"protect = ( { path = \"/a\";\nstore = \"a\"; } );", 2, "store is \"a\"; expected a name in stores"},
	{THREE "protect = ( { path = \"/a\";\nstore = \"pay\"; } );", 4, "store is \"pay\"; expected a name in stores"},
	{THREE "protect = ( { path = \"/a\";\nstore = \"\"; } );", 4, "store is empty; expected text"},
	{THREE "protect = ( { path = \"/a\"; store = \"pay_1\";\nredis_key = \"k\"; } );", 3,
	 "redis_key is set for /a, and stores.pay_1 is not Redis; expected a single server or sentinels"},
	{S("cluster = ( \"x\" ); replicas = 1;") "};\nprotect = ( { path = \"/a\"; store = \"a\"; redis_key = \"k\"; } );",
	 4, "redis_key is set for /a, and stores.a is a Redis Cluster, whose scripts"},
	{S("server = \"x\";") "};\nprotect = ( { path = \"/a\"; store = \"a\"; redis_key = \"k\"; },\n"
			      "{ path = \"/b\"; store = \"a\"; redis_key = \"k\"; } );",
	 5, "/b has the redis_key of line 4"},
};

FIXTURE(setup, teardown)

TEST_EACH(refused, ROWS(refusals)) { expect_refusal(refusals[_i].text, refusals[_i].line, refusals[_i].message); }

TEST(what_is_read)
{
	read_ok("");
	ck_assert_uint_eq(config->store_count, 1);
	ck_assert_str_eq(config->stores[0].name, "");
	read_ok(THREE);
	ck_assert_uint_eq(config->store_count, 3);
	ck_assert_str_eq(config->stores[0].name, "");
	ck_assert_str_eq(config->stores[0].address.host, "d");
	ck_assert_str_eq(config->stores[1].name, "pay_1");
	ck_assert_str_eq(config_engine(&config->stores[1]), "postgresql");
	ck_assert_str_eq(config->stores[2].name, "Hot-2");
	ck_assert_int_eq(config->stores[2].address.port, 7000);
	ck_assert_int_eq(config->stores[2].connect_ms, 5000);
	read_ok("store = { cluster = ( \"x\" ); replicas = 0; };\nstores = { };");
	ck_assert_uint_eq(config->store_count, 1);
	/* As many as there can be. */
	/* Not one server. */
	read_ok(DEFAULT TWO("server = \"x\"; database = 1;", "server = \"x\"; database = 2;"));
	read_ok(DEFAULT TWO("server = \"x\";", "server = \"x:6380\";"));
	read_ok(DEFAULT TWO("postgresql = \"dbname=d\";", "zookeeper = \"z/d\";"));
	read_ok(DEFAULT TWO("cluster = ( \"x\" ); replicas = 1;", "cluster = ( \"y\" ); replicas = 1;"));
	read_ok(DEFAULT TWO("sentinels = ( \"x\" ); master = \"m\"; replicas = 1;",
			    "sentinels = ( \"x\" ); master = \"n\"; replicas = 1;"));
}

TEST(passwords)
{
	static const char text[] =
		"store = { password_file = \"%s/one\"; };\n" S("server = \"x\"; password_file = \"%s/two\";") "};";

	write_bytes(in_base("one"), "1\n", 2);
	write_bytes(in_base("two"), "2\n", 2);
	ck_assert_int_eq(chmod(in_base("one"), 0600), 0);
	ck_assert_int_eq(chmod(in_base("two"), 0600), 0);
	read_ok(text);
	ck_assert_str_eq(config->stores[0].password, "1");
	ck_assert_str_eq(config->stores[1].password, "2");
	config_free(config);
	ck_assert_int_eq(unlink(in_base("two")), 0);
	ck_assert_int_eq(config_load_rules(file, &config, why, sizeof(why)), 0);
	ck_assert_ptr_null(config->stores[0].password);
	ck_assert_ptr_null(config->stores[1].password);
	expect_refusal(text, 3, "stores.a.password_file ");
}

TEST(of_rules)
{
	read_ok(THREE "protect = ( { path = \"/one\"; name = \"n1\"; store = \"pay_1\"; },\n"
		      "{ path = \"/g/*.l\"; name = \"g\"; store = \"Hot-2\"; },\n"
		      "{ tree = \"/g\"; },\n"
		      "{ tree = \"/t\"; store = \"pay_1\"; },\n"
		      "{ path = \"/k\"; name = \"n1\"; redis_key = \"k\"; },\n"
		      "{ path = \"/t/k\"; redis_key = \"l\"; } );");
	ck_assert_uint_eq(config_rule(config, "/one")->store, 1);
	ck_assert_uint_eq(config_rule_for(config, "/g/x.l").store, 2);
	ck_assert_uint_eq(config_rule_for(config, "/other").store, 0);
	ck_assert_uint_eq(config_store_of(config, "n1"), 1);
	ck_assert_uint_eq(config_store_of(config, "g/x.l"), 2);
	ck_assert_uint_eq(config_store_of(config, "g/x"), 0); /* no rule gives it */
	ck_assert_uint_eq(config_store_of(config, "/g/x"), 0);
	ck_assert_uint_eq(config_store_of(config, "/t/x/y"), 1);
	ck_assert_uint_eq(config_store_of(config, "/t"), 0);
	ck_assert_uint_eq(config_store_of(config, "lock:x"), 0);
	ck_assert_uint_eq(config_store_of(config, ""), 0);
	/* The key is of another rule with the same name. */
	ck_assert_str_eq(config_redis_key_of(config, "n1"), "string k");
	ck_assert_ptr_null(config_redis_key_of(config, "/t/x"));
	ck_assert_ptr_null(config_redis_key_of(config, "n1/x"));
	ck_assert_ptr_null(config_redis_key_of(config, "/t/k")); /* the rule is hidden by the tree's */
	ck_assert(config->stores[0].keys && !config->stores[1].keys);
	/* A key is in the store of its rule. */
	read_ok(DEFAULT S("server = \"x\";") "};\nprotect = ( { path = \"/a\"; redis_key = \"k\"; },\n"
					     "{ path = \"/b\"; store = \"a\"; redis_key = \"k\"; } );");
	ck_assert(config->stores[0].keys && config->stores[1].keys);
}

/* Does the configuration with other text have the same stores? */
static bool same_as(const char *text)
{
	struct config *other = NULL;
	bool same;

	write_config(text);
	ck_assert_msg(config_load(file, &other, why, sizeof(why)) == 0, "%s", why);
	same = config_same_store(config, other);
	config_free(other);
	return same;
}

TEST(same_store)
{
	read_ok(THREE);
	ck_assert(same_as(THREE "protect = ( { path = \"/a\"; store = \"pay_1\"; } );"));
	ck_assert(!same_as("store = { server = \"d\"; };\n"));
	ck_assert(!same_as("store = { server = \"d\"; };\n"
			   "stores = { pay_2 = { postgresql = \"dbname=d\"; };\n"
			   "Hot-2 = { server = \"h:7000\"; }; };\n"));
	ck_assert(!same_as("store = { server = \"d\"; };\n"
			   "stores = { pay_1 = { postgresql = \"dbname=e\"; };\n"
			   "Hot-2 = { server = \"h:7000\"; }; };\n"));
	ck_assert(!same_as("store = { server = \"d\"; };\n"
			   "stores = { pay_1 = { postgresql = \"dbname=d\"; };\n"
			   "Hot-2 = { server = \"h:7001\"; }; };\n"));
}

static void expect_follows(const char *stores, const char *rules, const char *expected)
{
	struct config *fresh = NULL;
	char text[1024];

	snprintf(text, sizeof(text), "%sprotect = ( %s );", stores, rules);
	write_config(text);
	ck_assert_msg(config_load(file, &fresh, why, sizeof(why)) == 0, "%s", why);
	why[0] = '\0';
	ck_assert_msg(config_follows(config, fresh, why, sizeof(why)) == !expected, "%s", rules);
	ck_assert_msg(!expected || strstr(why, expected), "\"%s\" is not in \"%s\"", expected, why);
	config_free(fresh);
}

/* One name in another store is another lock. */
TEST(what_follows)
{
	read_ok(THREE "protect = ( { path = \"/a\"; store = \"pay_1\"; } );");
	expect_follows(THREE, "{ path = \"/a\"; store = \"pay_1\"; }, { tree = \"/\"; store = \"Hot-2\"; }", NULL);
	expect_follows(THREE, "{ tree = \"/\"; store = \"pay_1\"; }, { path = \"/a\"; store = \"pay_1\"; }", NULL);
	expect_follows(THREE, "{ path = \"/a\"; }", "\"/a\" is not protected as \"/a\" in its store any more");
	expect_follows(THREE, "{ path = \"/a\"; store = \"Hot-2\"; }", "is not protected as");
	expect_follows(THREE, "{ tree = \"/\"; }, { path = \"/a\"; store = \"pay_1\"; }", "may name its files anew");
	/* The rules have the same index. */
	expect_follows(DEFAULT TWO("server = \"y\";", "server = \"x\";"), "{ path = \"/a\"; store = \"a\"; }",
		       "stores.pay_1 is not in it, or not where it was");
	expect_follows(DEFAULT "stores = { pay_1 = { server = \"y\"; }; };", "{ path = \"/a\"; store = \"pay_1\"; }",
		       "stores.Hot-2 is not in it");
}
