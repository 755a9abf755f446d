/* Reading the configuration: values and defaults, and every refusal with its line. */
#include <errno.h>
#include <sys/stat.h>

#include "tests/unit/config_file.h"
#include "wire/place.h"

START_TEST(defaults)
{
	char own[256];

	read_ok("");
	ck_assert_str_eq(config->path, file);
	ck_assert_int_eq(gethostname(own, sizeof(own)), 0);
	ck_assert_str_eq(config->host, own);
	ck_assert_ptr_null(config->store.socket);
	ck_assert_str_eq(config->store.address.host, "127.0.0.1");
	ck_assert_int_eq(config->store.address.port, 6379);
	ck_assert_ptr_null(config->store.user);
	ck_assert_ptr_null(config->store.password);
	ck_assert_int_eq(config->store.database, 0);
	ck_assert_int_eq(config->store.connect_ms, 5000);
	ck_assert_uint_eq(config->store.sentinel_count, 0);
	ck_assert_ptr_null(config->store.master);
	ck_assert_int_eq(config->store.replicas, 0);
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
	ck_assert_int_eq(config->lease.on_lost, ON_LOST_FREEZE);
	ck_assert_uint_eq(config->rule_count, 0);
}
END_TEST

START_TEST(values)
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
		"          on_lost = \"kill\"; };\n"
		"protect = ();\n");
	ck_assert_int_eq(place_config_id(file, &id), 0);
	ck_assert_mem_eq(&config->id, &id, sizeof(id));
	ck_assert_str_eq(config->host, "worker_1.example-x");
	ck_assert_str_eq(config->store.address.host, "::1");
	ck_assert_int_eq(config->store.address.port, 7000);
	ck_assert_str_eq(config->store.user, "me");
	ck_assert_str_eq(config->store.password, "open sesame");
	ck_assert_int_eq(config->store.database, 3);
	ck_assert_int_eq(config->store.connect_ms, 100);
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

	read_ok("lease = { on_lost = \"warn\"; ttl_ms = 3600000; };");
	ck_assert_int_eq(config->lease.on_lost, ON_LOST_WARN);
	ck_assert_int_eq(config->lease.dead_ms, 72000000);
	ck_assert_int_eq(config->lease.freeze_margin_ms, 600000);
	read_ok("lease = { ttl_ms = 100; };");
	ck_assert_int_eq(config->lease.dead_ms, 600000);
	ck_assert_int_eq(config->lease.freeze_margin_ms, 16);
}
END_TEST

START_TEST(sentinels)
{
	static const int acks[] = {0, 1, 1, 2, 2, 3};

	write_bytes(in_base("password"), "open sesame\n", 12);
	ck_assert_int_eq(chmod(in_base("password"), 0640), 0);
	read_ok("store = { sentinels = ( \"10.0.0.1\", \"s2:7\", \"[::1]:8\" ); master = \"my.master-1\"; replicas = "
		"4;\n"
		"  sentinel_user = \"me\"; sentinel_password_file = \"%s/password\"; };");
	ck_assert_ptr_null(config->store.socket);
	ck_assert_ptr_null(config->store.address.host);
	ck_assert_uint_eq(config->store.sentinel_count, 3);
	ck_assert_str_eq(config->store.sentinels[0].host, "10.0.0.1");
	ck_assert_int_eq(config->store.sentinels[0].port, 26379);
	ck_assert_str_eq(config->store.sentinels[1].host, "s2");
	ck_assert_int_eq(config->store.sentinels[1].port, 7);
	ck_assert_str_eq(config->store.sentinels[2].host, "::1");
	ck_assert_int_eq(config->store.sentinels[2].port, 8);
	ck_assert_str_eq(config->store.master, "my.master-1");
	ck_assert_str_eq(config->store.sentinel_user, "me");
	ck_assert_str_eq(config->store.sentinel_password, "open sesame");
	ck_assert_int_eq(config->store.replicas, 4);
	read_ok("store = { sentinels = [ \"a\" ]; master = \"m\"; replicas = 1; };"); /* an array will do */
	ck_assert_uint_eq(config->store.sentinel_count, 1);
	read_ok("store = { server = \"a\"; replicas = 64; };");
	ck_assert_int_eq(config->store.replicas, 64);
	for (config->store.replicas = 0; config->store.replicas < 6; config->store.replicas++)
		ck_assert_int_eq(config_acknowledgements(&config->store), acks[config->store.replicas]);
}
END_TEST

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

START_TEST(server_syntax)
{
	const struct server *s = &servers[_i];
	char text[256];

	snprintf(text, sizeof(text), "store = { server = \"%s\"; };", s->text);
	read_ok(text);
	ck_assert_pstr_eq(config->store.socket, s->socket);
	ck_assert_pstr_eq(config->store.address.host, s->host);
	ck_assert_int_eq(config->store.address.port, s->port);
}
END_TEST

#define AS_SERVER "; expected host:port, [IPv6 address]:port or unix:/path"
static const struct refusal {
	const char *text;
	int line;
	const char *message;
} refusals[] = {
	/* What libconfig finds. */
	{"\n\nhost = ;", 3, "syntax error; expected name = value;"},
	{"lease = {\nttl_ms = 1000\n", 3, "syntax error"},
	{"x", 1, "syntax error"},
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
	{"lease = {\n\n ttl = 1000; };", 3, "unknown setting lease.ttl; did you mean ttl_ms?"},
	{"lease = { ttl_sm = 1000; };", 1, "unknown setting lease.ttl_sm; did you mean ttl_ms?"},
	{"lease = { On_lost = \"freeze\"; };", 1, "unknown setting lease.On_lost; did you mean on_lost?"},
	{"zzzzzzzz = 1;", 1, "unknown setting zzzzzzzz; expected one of host, allow_break, store, lease, protect"},
	{"a4294967296 = 1;", 1,
	 "unknown setting a4294967296; expected one of host, allow_break, store, lease, protect"},
	{"x = 1;", 1, "unknown setting x; expected one of host, allow_break, store, lease, protect"},
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
	{"store = {\nserver = \"redis://x\"; };", 2, "store.server is \"redis://x\": it is not a URL" AS_SERVER},
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
	 "store.sentinels contains \"a:b\": the port is not a number from 1 to 65535; expected host:port or [IPv6"},
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
	{"store = { sentinels = ( \"a\" ); master = \"b\"; };", 1, "store.replicas is missing; expected how many"},
	{"store = { sentinels = ( \"a\" ); master = \"b\";\nreplicas = 0; };", 2, "store.replicas is 0; expected how"},
	{"store = { replicas = 65; };", 1, "store.replicas is 65; expected 0 to 64"},
	{"store = {\nmaster = \"b\"; };", 2, "store.master is there without store.sentinels; expected a list of their"},
	{"store = {\nsentinel_user = \"b\"; };", 2, "store.sentinel_user is there without store.sentinels"},
	{"store = {\nsentinel_password_file = \"/b\"; };", 2,
	 "store.sentinel_password_file is there without store.sent"},
	{"store = { sentinels = ( \"a\" ); master = \"b\"; replicas = 1;\nsentinel_user = \"me\"; };", 2,
	 "store.sentinel_user is there without store.sentinel_password_file; expected both"},
	{"store = { sentinels = ( \"a\" ); master = \"b\"; replicas = 1;\nsentinel_password_file = \"p\"; };", 2,
	 "store.sentinel_password_file is \"p\"; expected an absolute path"},
	/* Rules. */
	{"protect = ( { path = \"/a\";\non_lost = \"stop\"; } );", 2,
	 "on_lost is \"stop\"; expected \"freeze\", \"kill\" or \"warn\""},
	{"protect = ( { path = \"/a\";\nunstoppable = \"kill\"; } );", 2,
	 "unstoppable is \"kill\"; expected \"warn\" or \"refuse\""},
	{"protect = ( { path = \"/a\";\nat_least_ms = -1; } );", 2, "at_least_ms is -1; expected 0 to 2592000000"},
	{"protect = ( { path = \"/a\";\nat_least_ms = 2592000001L; } );", 2,
	 "at_least_ms is 2592000001; expected 0 to 2592000000"},
	{"protect = ( { path = \"/a\";\nat_least_ms = \"1 min\"; } );", 2,
	 "at_least_ms is a string; expected a whole number"},
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

START_TEST(refused)
{
	const struct refusal *r = &refusals[_i];

	expect_refusal(r->text, r->line, r->message);
}
END_TEST

/* Text that looks like a mistake to scan.c and is none. */
START_TEST(not_refused)
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
END_TEST

START_TEST(bytes_refused)
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
END_TEST

START_TEST(files_refused)
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
END_TEST

START_TEST(passwords_refused)
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
	ck_assert_str_eq(config->store.password, "x");
	write_bytes(in_base("password"), "no newline", 10);
	read_ok(text);
	ck_assert_str_eq(config->store.password, "no newline");
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
END_TEST

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
START_TEST(what_rules_say_of_loss)
{
	read_ok("protect = ( { path = \"/d/a\"; on_lost = \"kill\"; unstoppable = \"refuse\"; }, { path = \"/d/b\"; "
		"unstoppable = \"warn\"; }, { tree = \"/d\"; on_lost = \"freeze\"; } );\n"
		"lease = { on_lost = \"warn\"; };");
	ck_assert_int_eq(config_on_lost(config, "/d/a"), ON_LOST_KILL);
	ck_assert_int_eq(config_on_lost(config, "/d/b"), ON_LOST_WARN);
	ck_assert_int_eq(config_on_lost(config, "/d/c"), ON_LOST_FREEZE);
	ck_assert_int_eq(config_on_lost(config, "/e"), ON_LOST_WARN);
	ck_assert(config_rule(config, "/d/a")->refuse_unstoppable);
	ck_assert(!config_rule(config, "/d/b")->refuse_unstoppable);
	ck_assert(!config_rule(config, "/d/c")->refuse_unstoppable);
	ck_assert_ptr_null(config_rule(config, "/e"));
}
END_TEST

/* The first rule that matches says it; the lease group has none. */
START_TEST(what_rules_say_of_rests)
{
	read_ok("protect = ( { path = \"/d/a\"; at_least_ms = 60000; }, { path = \"/d/b\"; at_least_ms = 0; }, "
		"{ path = \"/d/c\"; }, { tree = \"/d\"; at_least_ms = 2592000000L; } );\n");
	ck_assert_int_eq(config_at_least_ms(config, "/d/a"), 60000);
	ck_assert_int_eq(config_at_least_ms(config, "/d/b"), 0);
	ck_assert_int_eq(config_at_least_ms(config, "/d/c"), 0);
	ck_assert_int_eq(config_at_least_ms(config, "/d/d"), INT64_C(2592000000));
	ck_assert_int_eq(config_at_least_ms(config, "/e"), 0);
}
END_TEST

START_TEST(example_is_complete)
{
	struct config_store store;
	struct config_lease lease;

	expect_in_example(config_top_rows);
	expect_in_example(config_store_rows);
	expect_in_example(config_lease_rows);
	expect_in_example(config_rule_rows);

	read_ok("");
	lease = config->lease;
	store = config->store;
	store.address.host = strdup(store.address.host);
	write_bytes(file, example, strlen(example));
	config_free(config);
	config = NULL;
	ck_assert_msg(config_load(file, &config, why, sizeof(why)) == 0, "%s", why);
	ck_assert_mem_eq(&lease, &config->lease, sizeof(lease));
	ck_assert_str_eq(store.address.host, config->store.address.host);
	ck_assert_int_eq(store.address.port, config->store.address.port);
	ck_assert_int_eq(store.database, config->store.database);
	ck_assert_int_eq(store.replicas, config->store.replicas);
	ck_assert_int_eq(store.connect_ms, config->store.connect_ms);
	ck_assert_uint_eq(config->rule_count, 0);
	free(store.address.host);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config");
	TCase *tests = tcase_create("reading");
	SRunner *runner = srunner_create(suite);
	int failed;

	read_example();
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, defaults);
	tcase_add_test(tests, values);
	tcase_add_test(tests, sentinels);
	tcase_add_loop_test(tests, server_syntax, 0, sizeof(servers) / sizeof(servers[0]));
	tcase_add_loop_test(tests, refused, 0, sizeof(refusals) / sizeof(refusals[0]));
	tcase_add_test(tests, not_refused);
	tcase_add_test(tests, bytes_refused);
	tcase_add_test(tests, files_refused);
	tcase_add_test(tests, passwords_refused);
	tcase_add_test(tests, what_rules_say_of_loss);
	tcase_add_test(tests, what_rules_say_of_rests);
	tcase_add_test(tests, example_is_complete);
	suite_add_tcase(suite, tests);

	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
