/* What is refused in a configuration: each refusal with its line, and text that only looks like a mistake. */
#include "tests/unit/config_file.h"

#define TOP_NAMES         "expected one of host, log_level, allow_break, on_event, show_jobs, store, stores, lease, protect"
#define AS_SERVER         "; expected host:port, [IPv6 address]:port, rediss://... or unix:/path"
#define BESIDE_POSTGRESQL " is there beside store.postgresql, and is not for it; expected all in its string"
#define NO_PASSWORD       " contains a password; expected it in the first line of a file that password_file names"
#define ONE_LOCK          ", so that one lock would be two; expected a store of its own"

#define STORE(text, line, wrong) "store = { " text " };", line, "store." wrong
#define SERVER(text, wrong)      STORE("server = '" text "';", 1, "server is \"" text "\": " wrong)
#define LEASE(text, line, wrong) "lease = { " text " };", line, "lease." wrong
#define RULE(text, line, wrong)  "protect = ( { path = '/a'; " text " } );", line, wrong
#define PATH(text, read, wrong)  "protect = ( { path = '" text "'; } );", 1, "path is \"" read "\": " wrong
#define BOTH                     "stores = { b = { server = 'b'; }; }; protect = (\n"
#define TWO(a, b, wrong)         "stores = {\n a = { " a " };\n b = { " b " }; };", 3, wrong

/* Single quotes stand for double ones in what is written. */
static const struct refusal {
	const char *text;
	int line;
	const char *message;
} refusals[] = {
	/* What libconfig finds. */
	{"\n\nhost = ;", 3, "syntax error; expected name = value;"},
	{"lease = {\nttl_ms = 1000\n", 3, "syntax error"},
	{"protect = (\n{ path = '/a'; }\n{ path = '/b'; }\n);", 3, "syntax error"},
	{"host = 'a';\nhost = 'b';\n", 2, "duplicate setting name; expected each setting once"},
	/* What it does not. */
	{"\n@include 'x.conf'\n", 2, "@include is not supported"},
	{"host = 'a';\n \t@include 'x.conf'\n", 2, "@include is not supported"},
	{"\nhost = 'a'; /* on\nand on", 2, "this comment does not end; expected */"},
	{"host = 'a';\n/*/", 2, "this comment does not end"},
	{"host = 'a' 'b\n\nc", 1, "this string does not end; expected \""},
	{"host = 'a';\n'b\\'", 2, "this string does not end"},
	{"host = 'a\\x00b';", 1, "\\x00 in a string"},
	{"lease = {\n ttl_ms = 4294997296; };", 2,
	 "4294997296 needs more than 32 bits; expected an L behind the number: 4294997296L"},
	{"lease = {\n ttl_ms = 0x100007530; };", 2, "0x100007530 needs more than 32 bits"},
	{"lease = { ttl_ms = -2147483648; };", 1, "2147483648 needs more than 32 bits"},
	{"lease = { ttl_ms = 99999999999999999999999; };", 1, "99999999999999999999999 needs more than 32 bits"},
	/* Names. */
	{"\nstroe = { };", 2, "unknown setting stroe; did you mean store?"},
	{"log_level = 'loud';", 1, "log_level is \"loud\"; expected \"error\", \"warning\", \"info\" or \"debug\""},
	{"lease = {\n\n ttl = 1000; };", 3, "unknown setting lease.ttl; did you mean ttl_ms?"},
	{"lease = { ttl_sm = 1000; };", 1, "unknown setting lease.ttl_sm; did you mean ttl_ms?"},
	{"lease = { On_lost = 'freeze'; };", 1, "unknown setting lease.On_lost; did you mean on_lost?"},
	{"a4294967296 = 1;", 1, "unknown setting a4294967296; " TOP_NAMES},
	{"show_jobs = 1;", 1, "show_jobs is a number; expected true or false"},
	{"x = 1;", 1, "unknown setting x; " TOP_NAMES},
	{"a-name-of-more-than-forty-letters-is-nobodys-slip = 1;", 1,
	 "unknown setting a-name-of-more-than-forty-letters-is-nobodys-slip; expected one of"},
	{"store = { password = 'x'; };", 1, "unknown setting store.password; did you mean password_file?"},
	{RULE("\n nmae = 'x';", 2, "unknown setting nmae; did you mean name?")},
	/* Types. */
	{"host = 1;", 1, "host is a number; expected a string"},
	{"store = 1;", 1, "store is a number; expected a group { name = value; }"},
	{"lease = ( );", 1, "lease is a list ( ); expected a group"},
	{"protect = { };", 1, "protect is a group { }; expected a list ( { path ="},
	{"protect = [ '/a' ];", 1, "protect is an array [ ]; expected a list"},
	{"protect = (\n'/a' );", 2, "expected groups such as { path = \"/...\"; } in protect"},
	{LEASE("\nttl_ms = '30 s';", 2, "ttl_ms is a string; expected a whole number")},
	{LEASE("ttl_ms = 1000.5;", 1, "ttl_ms is a number with a fraction; expected a whole number")},
	{LEASE("ttl_ms = 12345678901.5;", 1, "ttl_ms is a number with a fraction")},
	{LEASE("ttl_ms = true;", 1, "ttl_ms is true or false; expected a whole number")},
	{LEASE("on_lost = 1;", 1, "on_lost is a number; expected a string")},
	/* Ranges. */
	{LEASE("\nttl_ms = 99;", 2, "ttl_ms is 99; expected 100 to 3600000")},
	{LEASE("ttl_ms = 3600001;", 1, "ttl_ms is 3600001; expected 100 to 3600000")},
	{LEASE("linger_ms = -1;", 1, "linger_ms is -1; expected 0 to 3600000")},
	{LEASE("idle_ms = 9223372036854775807L;", 1, "idle_ms is 9223372036854775807; expected 0 to 86400000")},
	{STORE("database = 16384;", 1, "database is 16384; expected 0 to 16383")},
	{STORE("connect_ms = 99;", 1, "connect_ms is 99; expected 100 to 600000")},
	{LEASE("\nttl_ms = 1000;\nfreeze_margin_ms = 450;", 3,
	       "freeze_margin_ms is 450; expected less than 450 (9/20 of ttl_ms)")},
	{LEASE("\ndead_ms = 599999;\n ttl_ms = 30000;", 2,
	       "dead_ms is 599999; expected at least 600000 (20 times ttl_ms)")},
	{LEASE("\nsweep_ms = 29999;", 2, "sweep_ms is 29999; expected at least 30000 (ttl_ms)")},
	{LEASE("on_lost = 'stop';", 1, "on_lost is \"stop\"; expected \"freeze\", \"kill\" or \"warn\"")},
	/* Strings. */
	{"host = '';", 1, "host is empty; expected text, or leave the setting out"},
	{"host = 'a b';", 1, "host is \"a b\"; expected 1 to 64 letters"},
	{"host = '1234567890123456789012345678901234567890123456789012345678901234x';", 1, "host is \"123"},
	{STORE("user = 'a\\nb';", 1, "user contains a control character (byte 2 is 0x0a)")},
	{RULE("\nname = '\\x7f';", 2, "name contains a control character (byte 1 is 0x7f)")},
	/* The server. */
	{SERVER("http://x", "it is no URL that begins with redis:// or rediss://" AS_SERVER)},
	{SERVER("rediss://:x@y", "user and password_file are settings of their own" AS_SERVER)},
	{SERVER("redis://x/1", "nothing may stand behind the port (database is a setting of")},
	{SERVER("rediss://", "there is no host name")},
	/* TLS. */
	{STORE("server = 'a';\ntls_ca = '/a';", 2,
	       "tls_ca is there, and no server or sentinel is reached by TLS; expected rediss:// before the address")},
	{STORE("server = 'rediss://a';\ntls_ca = 'a';", 2, "tls_ca is \"a\"; expected an absolute path")},
	{STORE("server = 'rediss://a';\ntls_key_file = '/a';", 2,
	       "tls_key_file is there without store.tls_certificate_file; expected both")},
	{STORE("server = 'rediss://a';\ntls_certificate_file = '/a';", 2,
	       "tls_certificate_file is there without store.tls_key_file; expected both")},
	{STORE("server = 'rediss://a';\ntls_server_name = 'a/b';", 2,
	       "tls_server_name is \"a/b\"; expected a host's name or number")},
	{STORE("sentinels = ( 'rediss://a',\n'b' );", 2,
	       "sentinels contains \"b\" beside one with rediss://; expected TLS to all or none")},
	{STORE("sentinels = ( 'a',\n'rediss://b' );", 2,
	       "sentinels contains \"rediss://b\" beside one without rediss://; expected TLS to all or none")},
	{SERVER("::1", "an IPv6 address needs brackets" AS_SERVER)},
	{SERVER(":1", "there is no host name")},
	{SERVER("1::2", "an IPv6 address needs brackets" AS_SERVER)},
	{SERVER("[::1", "there is no ']' after the address")},
	{SERVER("[]", "there is no host name")},
	{SERVER("a b", "the port is not a number")},
	{SERVER("a:", "the port is not a number from 1 to 65535")},
	{SERVER("a:0", "the port is not a number")},
	{SERVER("a:65536", "the port is not a number")},
	{SERVER("a:000001", "the port is not a number")},
	{SERVER("unix:redis.sock", "the socket's path is not abs")},
	{SERVER("/run/redis.sock", "a socket's path needs unix:")},
	{STORE("server = 'unix:/2345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567x';",
	       1, "server is \"unix:/234")},
	/* The password. */
	{STORE("\nuser = 'me';", 2, "user is there without store.password_file; expected both")},
	{STORE("\npassword_file = '/dev/null';", 2, "password_file /dev/null is not a regular file")},
	/* Sentinels. */
	{STORE("\nsentinels = 'a';", 2, "sentinels is a string; expected a list ( \"...\", \"...\" )")},
	{STORE("\nsentinels = ( );", 2, "sentinels is a list ( ); expected a list")},
	{STORE("sentinels = (\n'a',\n1 );", 3, "sentinels contains a number; expected strings only")},
	{STORE("sentinels = ( 'a',\n'' );", 2, "sentinels is empty; expected text")},
	{STORE("sentinels = (\n'a:b' );", 2,
	       "sentinels contains \"a:b\": the port is not a number from 1 to 65535; expected host:port, [IPv6")},
	{STORE("sentinels = ( 'a',\n'a:26379' );", 2,
	       "sentinels contains \"a:26379\" twice; expected each sentinel once")},
	{STORE("sentinels = ( 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o', 'p', 'q' );",
	       1, "sentinels has 17; expected 1 to 16")},
	{STORE("sentinels = ( 'a' );\nserver = 'b';", 2,
	       "server is there beside store.sentinels, which know the server; expected one of them")},
	{STORE("\nsentinels = ( 'a' );", 2, "master is missing; expected the name by which")},
	{STORE("sentinels = ( 'a' );\nmaster = 'b c'; replicas = 1;", 2, "master is \"b c\"; expected 1")},
	{STORE("sentinels = ( 'a' );\nmaster = 'rediss://'; replicas = 1;", 2,
	       "master is \"rediss://\"; expected 1 to 253 letters")},
	{STORE("sentinels = ( 'rediss://a' ); master = 'redis://b'; replicas = 1;", 1,
	       "master is \"redis://b\"; expected 1 to 253 letters, digits, '-', '.' and '_', perhaps behind rediss://")},
	{STORE("sentinels = ( 'a' ); master = 'b';", 1, "replicas is missing; expected how many")},
	{STORE("sentinels = ( 'a' ); master = 'b';\nreplicas = 0;", 2, "replicas is 0; expected how")},
	{STORE("replicas = 65;", 1, "replicas is 65; expected 0 to 64")},
	{STORE("postgresql = 'host=a';\nserver = 'b';", 2, "server" BESIDE_POSTGRESQL)},
	{STORE("postgresql = 'host=a';\ndatabase = 0;", 2, "database" BESIDE_POSTGRESQL)},
	{STORE("shards = 33;", 1, "shards is 33; expected 1 to 32")},
	{"store = { shards = 20; };\nstores = { b = { server = 'b'; shards = 13; }; };", 2,
	 "with stores.b there are 33 stores, each shard counted; expected at most 32"},
	{"store = { shards = 2; };\nprotect = ( { path = '/a'; redis_key = 'a'; } );", 2,
	 "redis_key is set for /a, and store is spread over shards; expected a single server or sentinels"},
	{STORE("postgresql = 'host=a'; password_file = '/p';\nuser = 'b';", 2, "user" BESIDE_POSTGRESQL)},
	{STORE("\npostgresql = 'host=a password=b';", 2, "postgresql" NO_PASSWORD)},
	{STORE("postgresql = 'password = b';", 1, "postgresql" NO_PASSWORD)},
	{STORE("postgresql = 'host=a sslpassword=b';", 1, "postgresql" NO_PASSWORD)},
	{STORE("postgresql = 'postgresql://u:p@h/d';", 1, "postgresql" NO_PASSWORD)},
	{STORE("postgresql = 'postgres://h/d?user=u&password=p';", 1, "postgresql" NO_PASSWORD)},
	{STORE("zookeeper = 'b:1/x/';", 1, "zookeeper names a path with an empty part")},
	{STORE("zookeeper = 'b:1/';", 1, "zookeeper names a path with an empty part")},
	{STORE("zookeeper = 'b:1/x//y';", 1, "zookeeper names a path with an empty part")},
	{STORE("zookeeper = 'b:1/x/../y';", 1, "zookeeper names a path with an empty part")},
	{STORE("zookeeper = 'b:1';\npostgresql = 'host=a';", 2, "postgresql is there beside store.zookeeper")},
	{STORE("zookeeper = 'b:1';\nserver = 'a';", 2,
	       "server is there beside store.zookeeper, and is not for it; expected all in its string (h1:2181")},
	{STORE("cluster = ( 'a',\n'a:6379' ); replicas = 0;", 2,
	       "cluster contains \"a:6379\" twice; expected each node once")},
	{STORE("cluster = ( 'a' );\nserver = 'b'; replicas = 0;", 2,
	       "server is there beside store.cluster, which know the server; expected one of them")},
	{STORE("\ncluster = ( 'a' ); sentinels = ( 'b' ); master = 'm'; replicas = 1;", 2,
	       "cluster is there beside store.sentinels; expected one of them")},
	{STORE("\ncluster = ( 'a' );", 2, "replicas is missing; expected how many replicas each master")},
	{STORE("cluster = ( 'a' ); replicas = 0;\ndatabase = 1;", 2,
	       "database is there beside store.cluster; expected none, a cluster has only 0")},
	{STORE("\nmaster = 'b';", 2, "master is there without store.sentinels; expected both")},
	{STORE("\nsentinel_user = 'b';", 2, "sentinel_user is there without store.sentinel_password_file")},
	{STORE("\nsentinel_password_file = '/b';", 2, "sentinel_password_file is there without store.sent")},
	/* Rules. */
	{RULE("\non_refused = 'waits';", 2, "on_refused is \"waits\"; expected \"refuse\", \"busy\" or \"wait\"")},
	{RULE("\nunstoppable = 'kill';", 2, "unstoppable is \"kill\"; expected \"warn\" or \"refuse\"")},
	{"\non_event = [ 'logger' ];", 2, "on_event begins with \"logger\"; expected the absolute path of a program"},
	{"on_event = [ '/bin/true', 'a\\nb' ];", 1, "on_event contains a control character"},
	{RULE("\nwait_warn_ms = 86400001;", 2, "wait_warn_ms is 86400001; expected 0 to 86400000")},
	{RULE("\nat_least_ms = -1;", 2, "at_least_ms is -1; expected 0 to 2592000000")},
	{RULE("\nat_least_ms = 2592000001L;", 2, "at_least_ms is 2592000001; expected 0 to 2592000000")},
	{RULE("\nredis_key = 'dflock:{0}:x';", 2,
	      "redis_key is \"dflock:{0}:x\"; expected a key that is not dflock's own")},
	{RULE("\nredis_key = '\xc3\xa4';", 2, "redis_key has a byte that is not printable ASCII")},
	{RULE("\nredis_key_format = 'string';", 2, "redis_key_format is there without redis_key; expected both")},
	{RULE("redis_key = 'k';\nredis_key_format = 'hash';", 2,
	      "redis_key_format is \"hash\"; expected \"string\" or \"redisson\"")},
	{"protect = ( { path = '/a*';\nredis_key = 'k'; } );", 2,
	 "redis_key is in the rule of many files; expected the path of one file"},
	{RULE("at_least_ms = 5;\nredis_key = 'k';", 2, "redis_key and at_least_ms are in one rule")},
	{RULE("redis_key = 'k'; },\n{ path = '/b'; redis_key = 'k'; redis_key_format = 'redisson';", 2,
	      "/b has the redis_key of line 1; expected a key of its own")},
	{RULE("\nkill_after_ms = 2592000001L;", 2, "kill_after_ms is 2592000001; expected 0 to 2592000000")},
	{RULE("\nkill_after_ms = 999;", 2,
	      "kill_after_ms is 999; expected 0, or at least 1000: it is in milliseconds")},
	{RULE("warn_after_ms = 5001;\nkill_after_ms = 5000;", 2,
	      "kill_after_ms is 5000; expected at least warn_after_ms, which is 5001")},
	{RULE("},\n {", 2, "this rule has neither path nor tree; expected one of the two")},
	{"protect = (\n{ path = '/a'; tree = '/b'; } );", 2,
	 "this rule has both path and tree; expected one of the two"},
	{"protect = ( { tree = '../a'; } );", 1, "tree is \"../a\": expected an absolute path"},
	{PATH("/a/../b", "/a/../b", "expected an absolute path without . and ..")},
	{PATH("/a/.", "/a/.", "expected an absolute path without . and ..")},
	{PATH("//", "//", "the root directory is no file; expected tree")},
	{PATH("/a/[b", "/a/[b", "a [ has no ] before the next /")},
	{PATH("/a/[b/]", "/a/[b/]", "a [ has no ] before the next /")},
	{PATH("/a/[b\\\\", "/a/[b\\", "a [ has no ]")},
	{PATH("/a/**/x", "/a/**/x", "** is not known")},
	{PATH("/a/[[:alpha:]]", "/a/[[:alpha:]]", "classes such as [:alpha:]")},
	{PATH("/a/*\\\\", "/a/*\\", "it ends with a backslash")},
	{RULE("\nname = 'b/';", 2, "name is \"b/\"; expected no / at its end")},
	{"protect = ( { tree = '%s/c.conf'; } );", 1, "tree /dev/shm/dflock-test-"},
	{"protect = ( { path = '/no/such'; },\n{ tree = '/no/such'; },\n{ path = '//no/such/'; name = 'x'; } );", 3,
	 "/no/such is in the rule of line 1 already; expected it once"},
	/* Several stores. */
	{"stores = {\n* = { server = 'x'; }; };", 2, "stores has \"*\"; expected 1 to 32 letters, digits, '-' and '_'"},
	{"stores = {\nabcdefghabcdefghabcdefghabcdefghx = { server = 'x'; }; };", 2,
	 "stores has \"abcdefghabcdefghabcdefghabcdefghx\"; expected 1 to 32"},
	{"stores = {\na = 'x'; };", 2, "stores.a is no group; expected a group { name = value; }, as store is"},
	/* One name, one store. */
	{BOTH "{ path = '/a'; },\n{ path = '/b'; name = '/a'; store = 'b'; } );", 2,
	 "/a has a lock name that line 3 gives, too, in another store; expected names of its own"},
	{BOTH "{ tree = '/a'; name = 't'; },\n{ tree = '/b'; name = 't/x'; store = 'b'; } );", 3,
	 "/b has a lock name that line 2 gives, too, in another store"},
	{BOTH "{ path = '/a'; name = 't/x/y'; },\n{ tree = '/b'; name = 't/x'; store = 'b'; } );", 2,
	 "/a has a lock name that line 3 gives, too, in another store"},
	/* Their settings are those of `store`, and are called by their names. */
	{"stores = {\n a = { server = 'x';\n porst = 1; };\n};", 3,
	 "unknown setting stores.a.porst; expected one of postgresql"},
	{"stores = {\n a = { server = 'x';\nsentinels = ( 'y' ); };\n};", 2,
	 "stores.a.server is there beside stores.a.sentinels, which know the server"},
	{"stores = {\n a = { server = 'x';\npassword_file = '/no/such'; };\n};", 3,
	 "stores.a.password_file /no/such cannot be read: No such file"},
	/* One server, one database. */
	{"stores = {\n a = { server = '127.0.0.1:6379'; };\n};", 2,
	 "stores.a has the server and database of store" ONE_LOCK},
	{TWO("server = 'x';", "server = 'rediss://x:6379';",
	     "stores.b has the server and database of stores.a" ONE_LOCK)},
	{TWO("server = 'x'; database = 3;", "server = 'x'; database = 3; connect_ms = 100;", "stores.b has the")},
	{TWO("server = 'unix:/s';", "server = 'unix:/s';", "stores.b has the server")},
	{TWO("postgresql = 'dbname=d';", "postgresql = 'dbname=d';", "stores.b has the server")},
	{TWO("sentinels = ( 'x', 'y' ); master = 'm'; replicas = 1;",
	     "sentinels = ( 'z', 'y' ); master = 'm'; replicas = 1;", "stores.b has the server")},
	{TWO("cluster = ( 'x', 'y' ); replicas = 1;", "cluster = ( 'y' ); replicas = 1;", "stores.b has the")},
	/* Which one has the locks of rules without a name? */
	{"stores = {\n a = { server = 'x'; };\n};", 1, "stores is there without store; expected store, too"},
	{RULE("\nstore = 'a';", 2, "store is \"a\"; expected a name in stores")},
	{THREE_STORES "protect = ( { path = '/a'; store = 'pay_1';\nredis_key = 'k'; } );", 3,
	 "redis_key is set for /a, and stores.pay_1 is not Redis; expected a single server or sentinels"},
	{"stores = {\n a = { cluster = ( 'x' ); replicas = 1; };\n};\nprotect = ( { path = '/a'; store = 'a'; redis_key = 'k'; } );",
	 4, "redis_key is set for /a, and stores.a is a Redis Cluster, whose scripts"},
};

FIXTURE(setup, teardown)

TEST_EACH(refused, ROWS(refusals)) { expect_refusal(refusals[_i].text, refusals[_i].line, refusals[_i].message); }

/* Text that looks like a mistake to scan.c and is none. */
TEST(not_refused)
{
	read_ok("# @include 'x' 4294997296 /* '\n"
		"// @include 'x' '\n"
		"/* @include 'x' \n@include 'x'\n ' // */ /***/ /**/\n"
		"host = 'a' 'b';\n"
		"protect = ( { path = '/4294997296 @include // # /* \\' \\\\a'; name = '\\\\x00'; } );");
	ck_assert_str_eq(config->host, "ab");
	ck_assert_str_eq(config->rules[0].pattern, "/4294997296 @include / # /* \" \\a");
	read_ok("lease = { ttl_ms = 0x3e8; fair_ms = +5; };");
	ck_assert_int_eq(config->lease.ttl_ms, 1000);
	ck_assert_int_eq(config->lease.fair_ms, 5);
}

TEST(bytes_refused)
{
	char *big = malloc(CONFIG_FILE_BYTES + 1);

	write_bytes(file, "host = \"a\";\n\nx\0y", 16);
	ck_assert_int_eq(config_load(file, &config, why, sizeof(why)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "c.conf:3: a NUL byte; expected text"));

	ck_assert_ptr_nonnull(big);
	/* Blanks: code that looks back over all of them at each one needs hours. */
	memset(big, ' ', CONFIG_FILE_BYTES + 1);
	write_bytes(file, big, CONFIG_FILE_BYTES + 1);
	ck_assert_int_eq(config_load(file, &config, why, sizeof(why)), -EFBIG);
	ck_assert_ptr_nonnull(strstr(why, "c.conf: larger than 1048576 bytes"));
	write_bytes(file, big, CONFIG_FILE_BYTES);
	ck_assert_int_eq(config_load(file, &config, why, sizeof(why)), 0);
	free(big);
}

TEST(files_refused)
{
	ck_assert_int_eq(config_load(in_base("none"), &config, why, sizeof(why)), -ENOENT);
	ck_assert_ptr_nonnull(strstr(why, "/none: cannot be read: No such file or directory"));
	ck_assert_int_eq(config_load(base, &config, why, sizeof(why)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, ": not a regular file"));
	ck_assert_int_eq(mkfifo(in_base("fifo"), 0600), 0);
	ck_assert_int_eq(config_load(in_base("fifo"), &config, why, sizeof(why)), -EINVAL);
	/* A name with a newline must not make two lines of one. */
	ck_assert_int_eq(config_load(in_base("a\nb"), &config, why, sizeof(why)), -ENOENT);
	ck_assert_ptr_nonnull(strstr(why, "/a?b: cannot be read"));
	ck_assert_int_eq(config_load(in_base("none"), &config, why, 9), -ENOENT);
	ck_assert_str_eq(why, "/dev/shm");

	write_config("");
	ck_assert_int_eq(config_load("c.conf", &config, why, sizeof(why)), 0);
	ck_assert_str_eq(config->path, file);
}

static void put_password(const char *name, const char *bytes, size_t len, mode_t mode)
{
	write_bytes(in_base(name), bytes, len);
	ck_assert_int_eq(chmod(in_base(name), mode), 0);
}

static const struct {
	const char *bytes;
	size_t len;
	mode_t mode;
	const char *refusal, *password; /* one of them */
} passwords[] = {
	{"x\n", 2, 0644, "can be read or written by everybody; run chmod o-rw on it", NULL},
	{"x\n", 2, 0602, "can be read or written by everybody", NULL},
	{"x\n", 2, 0600, NULL, "x"},
	{"no newline", 10, 0600, NULL, "no newline"},
	{"\nx", 2, 0600, "has an empty first line", NULL},
	{"x\0y\n", 4, 0600, "contains a NUL byte", NULL},
	{NULL, 5000, 0600, "is larger than 4096 bytes", NULL},
};

TEST_EACH(passwords_refused, ROWS(passwords))
{
	static const char text[] = "store = {\n password_file = '%s/one'; };", long_line[5000] = {'x'};

	put_password("one", passwords[_i].bytes ? passwords[_i].bytes : long_line, passwords[_i].len,
		     passwords[_i].mode);
	if (passwords[_i].password) {
		read_ok(text);
		ck_assert_str_eq(config->stores[0].password, passwords[_i].password);
	} else {
		expect_refusal(text, 2, "store.password_file /dev/shm/dflock-test-");
		ck_assert_ptr_nonnull(strstr(why, passwords[_i].refusal));
	}
}

TEST(passwords_of_several_stores)
{
	static const char text[] = "store = { password_file = '%s/one'; };\n"
				   "stores = {\n a = { server = 'x'; password_file = '%s/two'; }; };";

	put_password("one", "1\n", 2, 0600);
	put_password("two", "2\n", 2, 0600);
	read_ok(text);
	ck_assert_str_eq(config->stores[0].password, "1");
	ck_assert_str_eq(config->stores[1].password, "2");
	config_free(config);
	ck_assert_int_eq(unlink(in_base("two")), 0);
	ck_assert_int_eq(config_load_rules(file, &config, why, sizeof(why)), 0);
	ck_assert(!config->stores[0].password && !config->stores[1].password);
	expect_refusal(text, 3, "stores.a.password_file ");
	ck_assert_ptr_nonnull(strstr(why, "/two cannot be read: No such file or directory"));
}
