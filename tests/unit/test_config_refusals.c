/* What is refused in a configuration: each refusal with its line, and text that only looks like a mistake. */
#include "tests/unit/config_file.h"

#define AS_SERVER         "; expected host:port, [IPv6 address]:port, rediss://... or unix:/path"
#define BESIDE_POSTGRESQL " is there beside store.postgresql, and is not for it; expected all in its string"
#define NO_PASSWORD       " contains a password; expected it in the first line of a file that password_file names"
#define TLS_ON            "store = { server = \"rediss://a\";\n"
static const struct refusal {
	const char *text;
	int line;
	const char *message;
} refusals[] = {
	/* What libconfig finds. */
	{"\n\nhost = ;", 3, "syntax error; expected name = value;"},
	{"lease = {\nttl_ms = 1000\n", 3, "syntax error"},
	{"x", 1, "syntax error"},
	{"protect = (\n{ path = \"/a\"; }\n{ path = \"/b\"; }\n);", 3, "syntax error"},
	{"host = \"a\";\nhost = \"b\";\n", 2, "duplicate setting name; expected each setting once"},
	{"lease = { ttl_ms = 1000;\nttl_ms = 1000; };", 2, "duplicate setting name"},
	/* What it does not. */
	{"\n@include \"x.conf\"\n", 2, "@include is not supported"},
	{"host = \"a\";\n \t@include \"x.conf\"\n", 2, "@include is not supported"},
	{"\nhost = \"a\"; /* on\nand on", 2, "this comment does not end; expected */"},
	{"host = \"a\";\n/*/", 2, "this comment does not end"},
	{"host = \"a\" \"b\n\nc", 1, "this string does not end; expected \""},
	{"host = \"a\";\n\"b\\\"", 2, "this string does not end"},
	{"host = \"a\\x00b\";", 1, "\\x00 in a string"},
	{"lease = {\n ttl_ms = 4294997296; };", 2,
	 "4294997296 needs more than 32 bits; expected an L behind the number: 4294997296L"},
	{"lease = {\n ttl_ms = 0x100007530; };", 2, "0x100007530 needs more than 32 bits"},
	{"lease = { ttl_ms = -2147483648; };", 1, "2147483648 needs more than 32 bits"},
	{"lease = { ttl_ms = 99999999999999999999999; };", 1, "99999999999999999999999 needs more than 32 bits"},
	/* Names. */
	{"\nstroe = { };", 2, "unknown setting stroe; did you mean store?"},
	{"log_level = \"loud\";", 1, "log_level is \"loud\"; expected \"error\", \"warning\", \"info\" or \"debug\""},
	{"\nlog_level = 3;", 2, "log_level is a number; expected a string"},
	{"lease = {\n\n ttl = 1000; };", 3, "unknown setting lease.ttl; did you mean ttl_ms?"},
	{"lease = { ttl_sm = 1000; };", 1, "unknown setting lease.ttl_sm; did you mean ttl_ms?"},
	{"lease = { On_lost = \"freeze\"; };", 1, "unknown setting lease.On_lost; did you mean on_lost?"},
	{"zzzzzzzz = 1;", 1,
	 "unknown setting zzzzzzzz; expected one of host, log_level, allow_break, on_event, show_jobs, store, stores, lease, protect"},
	{"a4294967296 = 1;", 1,
	 "unknown setting a4294967296; expected one of host, log_level, allow_break, on_event, show_jobs, store, stores, lease, protect"},
	{"show_jobs = 1;", 1, "show_jobs is a number; expected true or false"},
	{"x = 1;", 1,
	 "unknown setting x; expected one of host, log_level, allow_break, on_event, show_jobs, store, stores, lease, protect"},
	{"a-name-of-more-than-forty-letters-is-nobodys-slip = 1;", 1,
	 "unknown setting a-name-of-more-than-forty-letters-is-nobodys-slip; expected one of"},
	{"store = { password = \"x\"; };", 1, "unknown setting store.password; did you mean password_file?"},
	{"protect = ( { path = \"/a\";\n nmae = \"x\"; } );", 2, "unknown setting nmae; did you mean name?"},
	/* Types. */
	{"host = 1;", 1, "host is a number; expected a string"},
	{"store = 1;", 1, "store is a number; expected a group { name = value; }"},
	{"lease = ( );", 1, "lease is a list ( ); expected a group"},
	{"protect = { };", 1, "protect is a group { }; expected a list ( { path ="},
	{"protect = [ \"/a\" ];", 1, "protect is an array [ ]; expected a list"},
	{"protect = (\n\"/a\" );", 2, "expected groups such as { path = \"/...\"; } in protect"},
	{"lease = {\nttl_ms = \"30 s\"; };", 2, "lease.ttl_ms is a string; expected a whole number"},
	{"lease = { ttl_ms = 1000.5; };", 1, "lease.ttl_ms is a number with a fraction; expected a whole number"},
	{"lease = { ttl_ms = 12345678901.5; };", 1, "lease.ttl_ms is a number with a fraction"},
	{"lease = { ttl_ms = true; };", 1, "lease.ttl_ms is true or false; expected a whole number"},
	{"lease = { on_lost = 1; };", 1, "lease.on_lost is a number; expected a string"},
	{"protect = ( { path = 7; } );", 1, "path is a number; expected a string"},
	/* Ranges. */
	{"lease = {\nttl_ms = 99; };", 2, "lease.ttl_ms is 99; expected 100 to 3600000"},
	{"lease = { ttl_ms = 3600001; };", 1, "lease.ttl_ms is 3600001; expected 100 to 3600000"},
	{"lease = { linger_ms = -1; };", 1, "lease.linger_ms is -1; expected 0 to 3600000"},
	{"lease = { idle_ms = 9223372036854775807L; };", 1,
	 "lease.idle_ms is 9223372036854775807; expected 0 to 86400000"},
	{"store = { database = 16384; };", 1, "store.database is 16384; expected 0 to 16383"},
	{"store = { connect_ms = 99; };", 1, "store.connect_ms is 99; expected 100 to 600000"},
	{"lease = {\nttl_ms = 1000;\nfreeze_margin_ms = 450; };", 3,
	 "lease.freeze_margin_ms is 450; expected less than 450 (9/20 of ttl_ms)"},
	{"lease = {\ndead_ms = 599999;\n ttl_ms = 30000; };", 2,
	 "lease.dead_ms is 599999; expected at least 600000 (20 times ttl_ms)"},
	{"lease = {\nsweep_ms = 29999; };", 2, "lease.sweep_ms is 29999; expected at least 30000 (ttl_ms)"},
	{"lease = { on_lost = \"stop\"; };", 1, "lease.on_lost is \"stop\"; expected \"freeze\", \"kill\" or \"warn\""},
	/* Strings. */
	{"host = \"\";", 1, "host is empty; expected text, or leave the setting out"},
	{"host = \"a b\";", 1, "host is \"a b\"; expected 1 to 64 letters"},
	{"host = \"1234567890123456789012345678901234567890123456789012345678901234x\";", 1, "host is \"123"},
	{"store = { user = \"a\\nb\"; };", 1, "store.user contains a control character (byte 2 is 0x0a)"},
	{"protect = ( { path = \"/a\";\nname = \"\\x7f\"; } );", 2,
	 "name contains a control character (byte 1 is 0x7f)"},
	/* The server. */
	{"store = {\nserver = \"http://x\"; };", 2,
	 "store.server is \"http://x\": it is no URL that begins with redis:// or rediss://" AS_SERVER},
	{"store = {\nserver = \"rediss://:x@y\"; };", 2,
	 "store.server is \"rediss://:x@y\": user and password_file are settings of their own" AS_SERVER},
	{"store = { server = \"redis://x/1\"; };", 1,
	 "store.server is \"redis://x/1\": nothing may stand behind the port (database is a setting of"},
	{"store = { server = \"rediss://unix:/x\"; };", 1,
	 "store.server is \"rediss://unix:/x\": nothing may stand behind the port"},
	{"store = { server = \"rediss://\"; };", 1, "store.server is \"rediss://\": there is no host name"},
	{"store = { server = \"rediss://a:b\"; };", 1,
	 "store.server is \"rediss://a:b\": the port is not a number from 1 to 65535"},
	/* TLS. */
	{"store = { server = \"a\";\ntls_ca = \"/a\"; };", 2,
	 "store.tls_ca is there, and no server or sentinel is reached by TLS; expected rediss:// before the address"},
	{"store = {\ntls_server_name = \"a\"; };", 2, "store.tls_server_name is there, and no server"},
	{"store = { server = \"unix:/a\";\ntls_ca = \"/a\"; };", 2, "store.tls_ca is there, and no server"},
	{TLS_ON "tls_ca = \"a\"; };", 2, "store.tls_ca is \"a\"; expected an absolute path"},
	{TLS_ON "tls_key_file = \"/a\"; };", 2,
	 "store.tls_key_file is there without store.tls_certificate_file; expected both"},
	{TLS_ON "tls_certificate_file = \"/a\"; };", 2,
	 "store.tls_certificate_file is there without store.tls_key_file; expected both"},
	{TLS_ON "tls_certificate_file = \"a\"; tls_key_file = \"/a\"; };", 2,
	 "store.tls_certificate_file is \"a\"; expected an absolute path"},
	{TLS_ON "tls_server_name = \"a/b\"; };", 2,
	 "store.tls_server_name is \"a/b\"; expected a host's name or number"},
	{"store = { sentinels = ( \"rediss://a\",\n\"b\" ); };", 2,
	 "store.sentinels contains \"b\" beside one with rediss://; expected TLS to all or none"},
	{"store = { sentinels = ( \"a\",\n\"rediss://b\" ); };", 2,
	 "store.sentinels contains \"rediss://b\" beside one without rediss://; expected TLS to all or none"},
	{"store = { server = \"::1\"; };", 1, "store.server is \"::1\": there is no host name"},
	{"store = { server = \"1::2\"; };", 1, "store.server is \"1::2\": an IPv6 address needs brackets" AS_SERVER},
	{"store = { server = \"[::1\"; };", 1, "store.server is \"[::1\": there is no ']' after the address"},
	{"store = { server = \"[]\"; };", 1, "store.server is \"[]\": there is no host name"},
	{"store = { server = \"a b\"; };", 1, "store.server is \"a b\": the port is not a number"},
	{"store = { server = \"a:\"; };", 1, "store.server is \"a:\": the port is not a number from 1 to 65535"},
	{"store = { server = \"a:0\"; };", 1, "store.server is \"a:0\": the port is not a number"},
	{"store = { server = \"a:65536\"; };", 1, "store.server is \"a:65536\": the port is not a number"},
	{"store = { server = \"a:+1\"; };", 1, "store.server is \"a:+1\": the port is not a number"},
	{"store = { server = \"a:000001\"; };", 1, "store.server is \"a:000001\": the port is not a number"},
	{"store = { server = \"unix:redis.sock\"; };", 1,
	 "store.server is \"unix:redis.sock\": the socket's path is not abs"},
	{"store = { server = \"/run/redis.sock\"; };", 1,
	 "store.server is \"/run/redis.sock\": a socket's path needs unix:"},
	{"store = { server = \"unix:/234567890123456789012345678901234567890123456789012345678901234567890123456789"
	 "0123456789012345678901234567x\"; };",
	 1, "store.server is \"unix:/234"},
	/* The password. */
	{"store = {\nuser = \"me\"; };", 2, "store.user is there without store.password_file; expected both"},
	{"store = {\npassword_file = \"p\"; };", 2, "store.password_file is \"p\"; expected an absolute path"},
	{"store = {\npassword_file = \"/dev/null\"; };", 2, "store.password_file /dev/null is not a regular file"},
	/* Sentinels. */
	{"store = {\nsentinels = \"a\"; };", 2, "store.sentinels is a string; expected a list ( \"...\", \"...\" )"},
	{"store = {\nsentinels = ( ); };", 2, "store.sentinels is a list ( ); expected a list"},
	{"store = { sentinels = (\n\"a\",\n1 ); };", 3, "store.sentinels contains a number; expected strings only"},
	{"store = { sentinels = ( \"a\",\n\"\" ); };", 2, "store.sentinels is empty; expected text"},
	{"store = { sentinels = (\n\"a:b\" ); };", 2,
	 "store.sentinels contains \"a:b\": the port is not a number from 1 to 65535; expected host:port, [IPv6"},
	{"store = { sentinels = (\n\"unix:/a\" ); };", 2, "store.sentinels contains \"unix:/a\": the port is not"},
	{"store = { sentinels = ( \"a\",\n\"a:26379\" ); };", 2,
	 "store.sentinels contains \"a:26379\" twice; expected each sentinel once"},
	{"store = { sentinels = ( \"a\", \"b\", \"c\", \"d\", \"e\", \"f\", \"g\", \"h\", \"i\", \"j\", \"k\", "
	 "\"l\", \"m\", \"n\", \"o\", \"p\", \"q\" ); };",
	 1, "store.sentinels has 17; expected 1 to 16"},
	{"store = { sentinels = ( \"a\" );\nserver = \"b\"; };", 2,
	 "store.server is there beside store.sentinels, which know the server; expected one of them"},
	{"store = {\nsentinels = ( \"a\" ); };", 2, "store.master is missing; expected the name by which"},
	{"store = { sentinels = ( \"a\" );\nmaster = \"b c\"; replicas = 1; };", 2,
	 "store.master is \"b c\"; expected 1"},
	{"store = { sentinels = ( \"a\" );\nmaster = \"rediss://\"; replicas = 1; };", 2,
	 "store.master is \"rediss://\"; expected 1 to 253 letters"},
	{"store = { sentinels = ( \"rediss://a\" ); master = \"redis://b\"; replicas = 1; };", 1,
	 "store.master is \"redis://b\"; expected 1 to 253 letters, digits, '-', '.' and '_', perhaps behind rediss://"},
	{"store = { sentinels = ( \"a\" ); master = \"b\"; };", 1, "store.replicas is missing; expected how many"},
	{"store = { sentinels = ( \"a\" ); master = \"b\";\nreplicas = 0; };", 2, "store.replicas is 0; expected how"},
	{"store = { replicas = 65; };", 1, "store.replicas is 65; expected 0 to 64"},
	{"store = { postgresql = \"\"; };", 1, "store.postgresql is empty"},
	{"store = { postgresql = \"host=a\";\nserver = \"b\"; };", 2, "store.server" BESIDE_POSTGRESQL},
	{"store = { postgresql = \"host=a\";\ncluster = ( \"b\" ); };", 2, "store.cluster" BESIDE_POSTGRESQL},
	{"store = { postgresql = \"host=a\";\nsentinels = ( \"b\" ); };", 2, "store.sentinels" BESIDE_POSTGRESQL},
	{"store = { postgresql = \"host=a\";\nreplicas = 0; };", 2, "store.replicas" BESIDE_POSTGRESQL},
	{"store = { postgresql = \"host=a\";\ndatabase = 0; };", 2, "store.database" BESIDE_POSTGRESQL},
	{"store = { postgresql = \"host=a\";\nshards = 2; };", 2, "store.shards" BESIDE_POSTGRESQL},
	{"store = { shards = 33; };", 1, "store.shards is 33; expected 1 to 32"},
	{"store = { shards = 20; };\nstores = { b = { server = \"b\"; shards = 13; }; };", 2,
	 "with stores.b there are 33 stores, each shard counted; expected at most 32"},
	{"store = { shards = 2; };\nprotect = ( { path = \"/a\"; redis_key = \"a\"; } );", 2,
	 "redis_key is set for /a, and store is spread over shards; expected a single server or sentinels"},
	{"store = { postgresql = \"host=a\"; password_file = \"/p\";\nuser = \"b\"; };", 2,
	 "store.user" BESIDE_POSTGRESQL},
	{"store = { postgresql = \"host=a\";\ntls_ca = \"/b\"; };", 2, "store.tls_ca" BESIDE_POSTGRESQL},
	{"store = {\npostgresql = \"host=a password=b\"; };", 2, "store.postgresql" NO_PASSWORD},
	{"store = { postgresql = \"password = b\"; };", 1, "store.postgresql" NO_PASSWORD},
	{"store = { postgresql = \"host=a sslpassword='b'\"; };", 1, "store.postgresql" NO_PASSWORD},
	{"store = { postgresql = \"postgresql://u:p@h/d\"; };", 1, "store.postgresql" NO_PASSWORD},
	{"store = { postgresql = \"postgres://h/d?user=u&password=p\"; };", 1, "store.postgresql" NO_PASSWORD},
	{"store = { postgresql = \"host=a\"; };\nprotect = ( { path = \"/a\"; redis_key = \"k\"; } );", 2,
	 "redis_key is set for /a, and store is not Redis; expected a single server or sentinels"},
	{"store = { zookeeper = \"b:1\";\npostgresql = \"host=a\"; };", 2,
	 "store.postgresql is there beside store.zookeeper"},
	{"store = { zookeeper = \"b:1\";\nserver = \"a\"; };", 2,
	 "store.server is there beside store.zookeeper, and is not for it; expected all in its string (h1:2181"},
	{"store = { cluster = (\n\"a:b\" ); replicas = 0; };", 2, "store.cluster contains \"a:b\": the port is not"},
	{"store = { cluster = ( \"a\",\n\"a:6379\" ); replicas = 0; };", 2,
	 "store.cluster contains \"a:6379\" twice; expected each node once"},
	{"store = { cluster = ( \"a\" );\nserver = \"b\"; replicas = 0; };", 2,
	 "store.server is there beside store.cluster, which know the server; expected one of them"},
	{"store = {\ncluster = ( \"a\" ); sentinels = ( \"b\" ); master = \"m\"; replicas = 1; };", 2,
	 "store.cluster is there beside store.sentinels; expected one of them"},
	{"store = {\ncluster = ( \"a\" ); };", 2, "store.replicas is missing; expected how many replicas each master"},
	{"store = { cluster = ( \"a\" ); replicas = 0;\ndatabase = 1; };", 2,
	 "store.database is there beside store.cluster; expected none, a cluster has only 0"},
	{"store = { cluster = ( \"a\" ); replicas = 0;\nmaster = \"m\"; };", 2,
	 "store.master is there without store.sentinels"},
	{"store = {\nmaster = \"b\"; };", 2, "store.master is there without store.sentinels; expected both"},
	{"store = {\nsentinel_user = \"b\"; };", 2,
	 "store.sentinel_user is there without store.sentinel_password_file"},
	{"store = {\nsentinel_password_file = \"/b\"; };", 2,
	 "store.sentinel_password_file is there without store.sent"},
	{"store = { sentinels = ( \"a\" ); master = \"b\"; replicas = 1;\nsentinel_user = \"me\"; };", 2,
	 "store.sentinel_user is there without store.sentinel_password_file; expected both"},
	{"store = { sentinels = ( \"a\" ); master = \"b\"; replicas = 1;\nsentinel_password_file = \"p\"; };", 2,
	 "store.sentinel_password_file is \"p\"; expected an absolute path"},
	/* Rules. */
	{"lease = { on_refused = \"BUSY\"; };", 1,
	 "lease.on_refused is \"BUSY\"; expected \"refuse\", \"busy\" or \"wait\""},
	{"lease = { on_refused = 1; };", 1, "lease.on_refused is a number; expected a string"},
	{"protect = ( { path = \"/a\";\non_refused = \"waits\"; } );", 2,
	 "on_refused is \"waits\"; expected \"refuse\", \"busy\" or \"wait\""},
	{"protect = ( { path = \"/a\";\non_lost = \"stop\"; } );", 2,
	 "on_lost is \"stop\"; expected \"freeze\", \"kill\" or \"warn\""},
	{"protect = ( { path = \"/a\";\nunstoppable = \"kill\"; } );", 2,
	 "unstoppable is \"kill\"; expected \"warn\" or \"refuse\""},
	{"on_event = \"/bin/true\";", 1, "on_event is a string; expected a list"},
	{"on_event = [];", 1, "on_event is an array [ ]; expected a list"},
	{"\non_event = [ \"logger\" ];", 2, "on_event begins with \"logger\"; expected the absolute path of a program"},
	{"on_event = ( \"/bin/true\",\n3 );", 2, "on_event contains a number; expected strings only"},
	{"on_event = [ \"/bin/true\", \"a\\nb\" ];", 1, "on_event contains a control character"},
	{"protect = ( { path = \"/a\";\nwait_warn_ms = 86400001; } );", 2,
	 "wait_warn_ms is 86400001; expected 0 to 86400000"},
	{"protect = ( { path = \"/a\";\nat_least_ms = -1; } );", 2, "at_least_ms is -1; expected 0 to 2592000000"},
	{"protect = ( { path = \"/a\";\nat_least_ms = 2592000001L; } );", 2,
	 "at_least_ms is 2592000001; expected 0 to 2592000000"},
	{"protect = ( { path = \"/a\";\nat_least_ms = \"1 min\"; } );", 2,
	 "at_least_ms is a string; expected a whole number"},
	{"protect = ( { path = \"/a\";\nredis_key = \"dflock:{0}:x\"; } );", 2,
	 "redis_key is \"dflock:{0}:x\"; expected a key that is not dflock's own"},
	{"protect = ( { path = \"/a\";\nredis_key = \"\"; } );", 2, "redis_key is empty"},
	{"protect = ( { path = \"/a\";\nredis_key = \"\xc3\xa4\"; } );", 2,
	 "redis_key has a byte that is not printable ASCII"},
	{"protect = ( { path = \"/a\";\nredis_key_format = \"string\"; } );", 2,
	 "redis_key_format is there without redis_key; expected both"},
	{"protect = ( { path = \"/a\"; redis_key = \"k\";\nredis_key_format = \"hash\"; } );", 2,
	 "redis_key_format is \"hash\"; expected \"string\" or \"redisson\""},
	{"protect = ( { path = \"/a*\";\nredis_key = \"k\"; } );", 2,
	 "redis_key is in the rule of many files; expected the path of one file"},
	{"protect = ( { tree = \"/a\";\nredis_key = \"k\"; } );", 2, "redis_key is in the rule of many files"},
	{"protect = ( { path = \"/a\"; at_least_ms = 5;\nredis_key = \"k\"; } );", 2,
	 "redis_key and at_least_ms are in one rule"},
	{"protect = ( { path = \"/a\"; redis_key = \"k\"; },\n{ path = \"/b\"; redis_key = \"k\"; redis_key_format = "
	 "\"redisson\"; } );",
	 2, "/b has the redis_key of line 1; expected a key of its own"},
	{"store = { cluster = ( \"a\" ); replicas = 0; };\nprotect = ( { path = \"/a\"; redis_key = \"k\"; } );", 2,
	 "redis_key is set for /a, and store is a Redis Cluster"},
	{"protect = ( { path = \"/a\";\nwarn_after_ms = -1; } );", 2, "warn_after_ms is -1; expected 0 to 2592000000"},
	{"protect = ( { path = \"/a\";\nkill_after_ms = 2592000001L; } );", 2,
	 "kill_after_ms is 2592000001; expected 0 to 2592000000"},
	{"protect = ( { path = \"/a\";\nkill_after_ms = 999; } );", 2,
	 "kill_after_ms is 999; expected 0, or at least 1000: it is in milliseconds"},
	{"protect = ( { path = \"/a\"; warn_after_ms = 5001;\nkill_after_ms = 5000; } );", 2,
	 "kill_after_ms is 5000; expected at least warn_after_ms, which is 5001"},
	{"protect = ( { path = \"/a\"; },\n { } );", 2, "this rule has neither path nor tree; expected one of the two"},
	{"protect = (\n{ path = \"/a\"; tree = \"/b\"; } );", 2,
	 "this rule has both path and tree; expected one of the two"},
	{"protect = ( {\npath = \"a\"; } );", 2, "path is \"a\": expected an absolute path without . and .. in it"},
	{"protect = ( { path = \"\"; } );", 1, "path is empty"},
	{"protect = ( { tree = \"../a\"; } );", 1, "tree is \"../a\": expected an absolute path"},
	{"protect = ( { tree = \"~/a\"; } );", 1, "tree is \"~/a\": expected an absolute path"},
	{"protect = ( { path = \"/a/../b\"; } );", 1,
	 "path is \"/a/../b\": expected an absolute path without . and .."},
	{"protect = ( { path = \"/a/.\"; } );", 1, "path is \"/a/.\": expected an absolute path without . and .."},
	{"protect = ( { path = \"//\"; } );", 1, "path is \"//\": the root directory is no file; expected tree"},
	{"protect = ( { path = \"/a/[b\"; } );", 1, "path is \"/a/[b\": a [ has no ] before the next /"},
	{"protect = ( { path = \"/a/[b/]\"; } );", 1, "path is \"/a/[b/]\": a [ has no ] before the next /"},
	{"protect = ( { path = \"/a/[b\\\\\"; } );", 1, "path is \"/a/[b\\\": a [ has no ]"},
	{"protect = ( { path = \"/a/**/x\"; } );", 1, "path is \"/a/**/x\": ** is not known"},
	{"protect = ( { path = \"/a/x**\"; } );", 1, "path is \"/a/x**\": ** is not known"},
	{"protect = ( { path = \"/a/[[:alpha:]]\"; } );", 1, "path is \"/a/[[:alpha:]]\": classes such as [:alpha:]"},
	{"protect = ( { path = \"/a/*\\\\\"; } );", 1, "path is \"/a/*\\\": it ends with a backslash"},
	{"protect = ( { path = \"/a\";\nname = \"b/\"; } );", 2, "name is \"b/\"; expected no / at its end"},
	{"protect = ( { path = \"/a\";\nname = \"\"; } );", 2, "name is empty"},
	{"protect = ( { tree = \"%s/c.conf\"; } );", 1, "tree /dev/shm/dflock-test-"},
	{"protect = ( { path = \"/no/such\"; },\n{ tree = \"/no/such\"; },\n{ path = \"//no/such/\"; name = \"x\"; } "
	 ");",
	 3, "/no/such is in the rule of line 1 already; expected it once"},
};

FIXTURE(setup, teardown)

TEST_EACH(refused, ROWS(refusals))
{
	const struct refusal *r = &refusals[_i];

	expect_refusal(r->text, r->line, r->message);
}

/* Text that looks like a mistake to scan.c and is none. */
TEST(not_refused)
{
	read_ok("# @include \"x\" 4294997296 /* \"\n"
		"// @include \"x\" \"\n"
		"/* @include \"x\" \n@include \"x\"\n \" // */ /***/ /**/\n"
		"host = \"a\" \"b\";\n"
		"protect = ( { path = \"/4294997296 @include // # /* \\\" \\\\a\"; name = \"\\\\x00\"; } );");
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

TEST(passwords_refused)
{
	static const char text[] = "store = {\n password_file = \"%s/password\"; };";
	char long_line[5000];

	expect_refusal(text, 2, "store.password_file /dev/shm/dflock-test-");
	ck_assert_ptr_nonnull(strstr(why, "/password cannot be read: No such file or directory"));
	write_bytes(in_base("password"), "x\n", 2);
	ck_assert_int_eq(chmod(in_base("password"), 0644), 0);
	expect_refusal(text, 2, "");
	ck_assert_ptr_nonnull(strstr(why, "can be read or written by everybody; run chmod o-rw on it"));
	ck_assert_int_eq(chmod(in_base("password"), 0602), 0);
	expect_refusal(text, 2, "");
	ck_assert_int_eq(chmod(in_base("password"), 0600), 0);
	read_ok(text);
	ck_assert_str_eq(config->stores[0].password, "x");
	write_bytes(in_base("password"), "no newline", 10);
	read_ok(text);
	ck_assert_str_eq(config->stores[0].password, "no newline");
	write_bytes(in_base("password"), "\nx", 2);
	expect_refusal(text, 2, "");
	ck_assert_ptr_nonnull(strstr(why, "has an empty first line"));
	write_bytes(in_base("password"), "x\0y\n", 4);
	expect_refusal(text, 2, "");
	ck_assert_ptr_nonnull(strstr(why, "contains a NUL byte"));
	memset(long_line, 'x', sizeof(long_line));
	write_bytes(in_base("password"), long_line, sizeof(long_line));
	expect_refusal(text, 2, "");
	ck_assert_ptr_nonnull(strstr(why, "is larger than 4096 bytes"));
}
