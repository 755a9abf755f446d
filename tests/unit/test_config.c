/* Reading the configuration: values and defaults, every refusal with its line, rules and lock names. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/internal.h"
#include "wire/place.h"

static char base[64], file[96], why[PAGE_MESSAGE_BYTES];
static struct config *config;

/* A path below base; valid until four more were asked for. */
static const char *in_base(const char *name)
{
	static char paths[4][PATH_MAX];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, PATH_MAX, "%s/%s", base, name);
	return path;
}

static void setup(void)
{
	strcpy(base, "/dev/shm/dflock-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
	strcpy(file, in_base("c.conf"));
	ck_assert_int_eq(chdir(base), 0);
	config = NULL;
}

static void teardown(void)
{
	char command[128];

	config_free(config);
	ck_assert_int_eq(chdir("/"), 0);
	snprintf(command, sizeof(command), "rm -rf '%s'", base);
	ck_assert_int_eq(system(command), 0);
}

static void write_bytes(const char *path, const char *bytes, size_t len)
{
	FILE *f = fopen(path, "w");

	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(bytes, 1, len, f), len);
	ck_assert_int_eq(fclose(f), 0);
}

/* Writes the configuration; %s in text stands for base. */
static void write_config(const char *text)
{
	char *all = NULL;
	size_t len;
	FILE *f = open_memstream(&all, &len);

	ck_assert_ptr_nonnull(f);
	for (const char *c = text; *c; c++) {
		if (c[0] == '%' && c[1] == 's') {
			fputs(base, f);
			c++;
		} else {
			putc(*c, f);
		}
	}
	fclose(f);
	write_bytes(file, all, len);
	free(all);
}

static void read_ok(const char *text)
{
	config_free(config);
	config = NULL;
	write_config(text);
	ck_assert_msg(config_load(file, &config, why, sizeof(why)) == 0, "%s", why);
}

/* line 0: the message names no line. */
static void expect_refusal(const char *text, int line, const char *message)
{
	char expected[PAGE_MESSAGE_BYTES + 128];
	struct config *none = NULL;

	write_config(text);
	ck_assert_msg(config_load(file, &none, why, sizeof(why)) < 0, "accepted: %s", text);
	ck_assert_ptr_null(none);
	if (line)
		snprintf(expected, sizeof(expected), "%s:%d: %s", file, line, message);
	else
		snprintf(expected, sizeof(expected), "%s: %s", file, message);
	ck_assert_msg(strncmp(why, expected, strlen(expected)) == 0, "\nexpected %s\nfound    %s", expected, why);
	ck_assert_ptr_null(strchr(why, '\n'));
}

START_TEST(defaults)
{
	char own[256];

	read_ok("");
	ck_assert_str_eq(config->path, file);
	ck_assert_int_eq(gethostname(own, sizeof(own)), 0);
	ck_assert_str_eq(config->host, own);
	ck_assert_ptr_null(config->store.socket);
	ck_assert_str_eq(config->store.host, "127.0.0.1");
	ck_assert_int_eq(config->store.port, 6379);
	ck_assert_ptr_null(config->store.user);
	ck_assert_ptr_null(config->store.password);
	ck_assert_int_eq(config->store.database, 0);
	ck_assert_int_eq(config->store.connect_ms, 5000);
	ck_assert_int_eq(config->lease.ttl_ms, 30000);
	ck_assert_int_eq(config->lease.linger_ms, 1000);
	ck_assert_int_eq(config->lease.pin_ms, 1000);
	ck_assert_int_eq(config->lease.probe_ms, 200);
	ck_assert_int_eq(config->lease.store_wait_ms, 30000);
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
		"lease = { ttl_ms = 100; linger_ms = 0; pin_ms = 10; probe_ms = 11; store_wait_ms = 12; fair_ms = 13;\n"
		"          freeze_margin_ms = 44; dead_ms = 2000; sweep_ms = 2592000000L; idle_ms = 0L;\n"
		"          on_lost = \"kill\"; };\n"
		"protect = ();\n");
	ck_assert_int_eq(place_config_id(file, &id), 0);
	ck_assert_mem_eq(&config->id, &id, sizeof(id));
	ck_assert_str_eq(config->host, "worker_1.example-x");
	ck_assert_str_eq(config->store.host, "::1");
	ck_assert_int_eq(config->store.port, 7000);
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
	ck_assert_pstr_eq(config->store.host, s->host);
	ck_assert_int_eq(config->store.port, s->port);
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
	{"zzzzzzzz = 1;", 1, "unknown setting zzzzzzzz; expected one of host, store, lease, protect"},
	{"x = 1;", 1, "unknown setting x; expected one of host, store, lease, protect"},
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
	{"lease = { idle_ms = 9223372036854775807L; };", 1, "lease.idle_ms is 9223372036854775807; expected 0 to 86400000"},
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
	{"protect = ( { path = \"/a\";\nname = \"\\x7f\"; } );", 2, "name contains a control character (byte 1 is 0x7f)"},
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
	{"store = { server = \"unix:redis.sock\"; };", 1, "store.server is \"unix:redis.sock\": the socket's path is not abs"},
	{"store = { server = \"/run/redis.sock\"; };", 1, "store.server is \"/run/redis.sock\": a socket's path needs unix:"},
	{"store = { server = \"unix:/234567890123456789012345678901234567890123456789012345678901234567890123456789"
	 "0123456789012345678901234567x\"; };", 1, "store.server is \"unix:/234"},
	/* The password. */
	{"store = {\nuser = \"me\"; };", 2, "store.user is there without store.password_file; expected both"},
	{"store = {\npassword_file = \"p\"; };", 2, "store.password_file is \"p\"; expected an absolute path"},
	{"store = {\npassword_file = \"/dev/null\"; };", 2, "store.password_file /dev/null is not a regular file"},
	/* Rules. */
	{"protect = ( { path = \"/a\"; },\n { } );", 2, "this rule has neither path nor tree; expected one of the two"},
	{"protect = (\n{ path = \"/a\"; tree = \"/b\"; } );", 2, "this rule has both path and tree; expected one of the two"},
	{"protect = ( {\npath = \"a\"; } );", 2, "path is \"a\": expected an absolute path without . and .. in it"},
	{"protect = ( { path = \"\"; } );", 1, "path is empty"},
	{"protect = ( { tree = \"../a\"; } );", 1, "tree is \"../a\": expected an absolute path"},
	{"protect = ( { tree = \"~/a\"; } );", 1, "tree is \"~/a\": expected an absolute path"},
	{"protect = ( { path = \"/a/../b\"; } );", 1, "path is \"/a/../b\": expected an absolute path without . and .."},
	{"protect = ( { path = \"/a/.\"; } );", 1, "path is \"/a/.\": expected an absolute path without . and .."},
	{"protect = ( { path = \"//\"; } );", 1, "path is \"//\": the root directory is no file; expected tree"},
	{"protect = ( { path = \"/a/[b\"; } );", 1, "path is \"/a/[b\": a [ has no ] before the next /"},
	{"protect = ( { path = \"/a/[b/]\"; } );", 1, "path is \"/a/[b/]\": a [ has no ] before the next /"},
	{"protect = ( { path = \"/a/[b\\\\\"; } );", 1, "path is \"/a/[b\\\": a [ has no ]"},
	{"protect = ( { path = \"/a/[[:alpha:]]\"; } );", 1, "path is \"/a/[[:alpha:]]\": classes such as [:alpha:]"},
	{"protect = ( { path = \"/a/*\\\\\"; } );", 1, "path is \"/a/*\\\": it ends with a backslash"},
	{"protect = ( { path = \"/a\";\nname = \"b/\"; } );", 2, "name is \"b/\"; expected no / at its end"},
	{"protect = ( { path = \"/a\";\nname = \"\"; } );", 2, "name is empty"},
	{"protect = ( { tree = \"%s/c.conf\"; } );", 1, "tree /dev/shm/dflock-test-"},
	{"protect = ( { path = \"/no/such\"; },\n{ tree = \"/no/such\"; },\n{ path = \"//no/such/\"; name = \"x\"; } );", 3,
	 "/no/such is in the rule of line 1 already; expected it once"},
};

START_TEST(refused)
{
	const struct refusal *r = &refusals[_i];

	expect_refusal(r->text, r->line, r->message);
}
END_TEST

/* What looks like a mistake to scan.c and is none. */
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
	memset(big, '\n', CONFIG_FILE_BYTES + 1);
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

/* One rule for `setting`, which is in base, read. */
static const struct rule *rule_of(const char *setting, const char *path, const char *name)
{
	char text[PATH_MAX + 256];

	snprintf(text, sizeof(text), "protect = ( { %s = \"%%s/%s\"; %s%s%s } );", setting, path, name ? "name = \"" : "",
		 name ? name : "", name ? "\";" : "");
	read_ok(text);
	ck_assert_uint_eq(config->rule_count, 1);
	return &config->rules[0];
}

static void expect_name(const char *path, const char *expected)
{
	char name[LOCK_NAME_BYTES] = "";
	int rc = config_lock_name(config, path, name);

	if (expected)
		ck_assert_msg(rc == 0 && strcmp(name, expected) == 0, "%s: %d, %s", path, rc, name);
	else
		ck_assert_int_eq(rc, -ENOENT);
}

/* link is a link to real, as /var/lock is one to /run/lock. */
static void make_link(void)
{
	ck_assert_int_eq(mkdir(in_base("real"), 0700), 0);
	ck_assert_int_eq(symlink("real", in_base("link")), 0);
}

START_TEST(path_rules)
{
	const struct rule *rule;

	make_link();
	rule = rule_of("path", "link//x.lock", NULL);
	ck_assert_int_eq(rule->kind, PAGE_RULE_PATH);
	ck_assert_int_eq(rule->line, 1);
	ck_assert_str_eq(rule->pattern, in_base("real/x.lock"));
	expect_name(in_base("real/x.lock"), in_base("link/x.lock"));
	expect_name(in_base("link/x.lock"), NULL);

	rule_of("path", "link/x.lock", "report");
	expect_name(in_base("real/x.lock"), "report");
}
END_TEST

START_TEST(path_rules_through_links)
{
	make_link();
	/* The file itself is a link. */
	write_bytes(in_base("real/file"), "", 0);
	ck_assert_int_eq(symlink("real/file", in_base("alias")), 0);
	ck_assert_str_eq(rule_of("path", "alias", NULL)->pattern, in_base("real/file"));
	expect_name(in_base("real/file"), in_base("alias"));
	/* Links to what is not there yet: open(O_CREAT) would make the target. */
	ck_assert_int_eq(symlink("../link/new", in_base("real/one")), 0);
	ck_assert_int_eq(symlink(in_base("link/one"), in_base("two")), 0);
	ck_assert_str_eq(rule_of("path", "two", NULL)->pattern, in_base("real/new"));
	ck_assert_int_eq(symlink("nowhere//", in_base("dangling")), 0);
	ck_assert_str_eq(rule_of("path", "dangling/a/b", NULL)->pattern, in_base("nowhere/a/b"));
	/* Below a file nothing exists. */
	ck_assert_str_eq(rule_of("path", "real/file/x", NULL)->pattern, in_base("real/file/x"));
	ck_assert_str_eq(rule_of("path", "no/such/dir/x", NULL)->pattern, in_base("no/such/dir/x"));

	ck_assert_int_eq(symlink("loop", in_base("loop")), 0);
	expect_refusal("protect = (\n{ path = \"%s/loop/x\"; } );", 2, "/dev/shm/dflock-test-");
	ck_assert_ptr_nonnull(strstr(why, "/loop/x cannot be resolved: Too many levels of symbolic links"));
	ck_assert_int_eq(symlink("no/such/../dir", in_base("up")), 0);
	expect_refusal("protect = ( { path = \"%s/up/x\"; } );", 1, "/dev/shm/dflock-test-");
}
END_TEST

START_TEST(glob_rules)
{
	const struct rule *rule;

	make_link();
	rule = rule_of("path", "link/*.lock", NULL);
	ck_assert_int_eq(rule->kind, PAGE_RULE_GLOB);
	ck_assert_str_eq(rule->pattern, in_base("real/*.lock"));
	ck_assert_uint_eq(rule->fixed_len, strlen(in_base("real")));
	expect_name(in_base("real/a.lock"), in_base("link/a.lock"));
	expect_name(in_base("real/a.loc"), NULL);
	expect_name(in_base("real/.lock"), NULL);

	rule_of("path", "link/*/b?/c", "jobs");
	expect_name(in_base("real/a/b1/c"), "jobs/a/b1/c");
	rule_of("path", "link/[0-9]", "n");
	expect_name(in_base("real/7"), "n/7");

	/* Wildcard characters in what a link leads to mean themselves. */
	ck_assert_int_eq(mkdir(in_base("a*[b]\\"), 0700), 0);
	ck_assert_int_eq(symlink("a*[b]\\", in_base("odd")), 0);
	rule = rule_of("path", "odd/*", "odd");
	ck_assert_str_eq(rule->pattern, in_base("a\\*\\[b]\\\\/*"));
	expect_name(in_base("a*[b]\\/x"), "odd/x");
	expect_name(in_base("ab[b]\\/x"), NULL);
	/* As do those behind a backslash. */
	rule = rule_of("path", "a\\\\*\\\\[b]", NULL);
	ck_assert_int_eq(rule->kind, PAGE_RULE_GLOB);
	expect_name(in_base("a*[b]"), in_base("a*[b]"));

	read_ok("protect = ( { path = \"/*.lock\"; } );");
	ck_assert_str_eq(config->rules[0].pattern, "/*.lock");
	expect_name("/x.lock", "/x.lock");
	read_ok("protect = ( { path = \"/*.lock\"; name = \"top\"; } );");
	expect_name("/x.lock", "top/x.lock");
}
END_TEST

START_TEST(tree_rules)
{
	const struct rule *rule;

	make_link();
	rule = rule_of("tree", "link/", NULL);
	ck_assert_int_eq(rule->kind, PAGE_RULE_TREE);
	ck_assert_str_eq(rule->pattern, in_base("real"));
	expect_name(in_base("real/a/.b"), in_base("link/a/.b"));
	expect_name(in_base("real"), NULL);
	expect_name(in_base("really"), NULL);
	rule_of("tree", "link", "share");
	expect_name(in_base("real/a/b"), "share/a/b");
	/* A star in a tree is a star. */
	rule_of("tree", "no*", NULL);
	expect_name(in_base("no*/a"), in_base("no*/a"));
	expect_name(in_base("nox/a"), NULL);

	read_ok("protect = ( { tree = \"/\"; } );");
	expect_name("/a/b", "/a/b");
	expect_name("/", NULL);
	read_ok("protect = ( { tree = \"/\"; name = \"all\"; } );");
	expect_name("/a/b", "all/a/b");
}
END_TEST

START_TEST(first_rule_counts)
{
	read_ok("protect = (\n"
		"  { path = \"/no/such/a\"; name = \"a\"; },\n"
		"  { path = \"/no/such/*\"; name = \"glob\"; },\n"
		"  { tree = \"/no/such\"; name = \"tree\"; }\n"
		");\n");
	ck_assert_int_eq(config->rules[2].line, 4);
	expect_name("/no/such/a", "a");
	expect_name("/no/such/b", "glob/b");
	expect_name("/no/such/b/c", "tree/b/c");
	expect_name("/no/suchx", NULL);
}
END_TEST

START_TEST(lock_name_limits)
{
	char path[LOCK_NAME_BYTES + 64], name[LOCK_NAME_BYTES], text[4 * LOCK_NAME_BYTES];

	read_ok("protect = ( { tree = \"/no/such\"; name = \"12345678\"; } );");
	memset(path, 'x', sizeof(path));
	memcpy(path, "/no/such/", 9);
	path[LOCK_NAME_BYTES - 1] = '\0';
	ck_assert_int_eq(config_lock_name(config, path, name), 0);
	ck_assert_uint_eq(strlen(name), LOCK_NAME_BYTES - 1);
	path[LOCK_NAME_BYTES - 1] = 'x';
	path[LOCK_NAME_BYTES] = '\0';
	ck_assert_int_eq(config_lock_name(config, path, name), -ENAMETOOLONG);

	/* A file's name in the rule. */
	for (size_t i = 200; i < LOCK_NAME_BYTES; i += 200)
		path[i] = '/';
	snprintf(text, sizeof(text), "protect = ( {\n path = \"%s\"; } );", path);
	expect_refusal(text, 2, "the lock name is 1024 bytes long; expected at most 1023: give it a name");
	path[LOCK_NAME_BYTES - 1] = '\0';
	snprintf(text, sizeof(text), "protect = ( { path = \"%s\"; } );", path);
	read_ok(text);
	snprintf(text, sizeof(text), "protect = ( { path = \"/a\";\n name = \"%sx\"; } );", path);
	expect_refusal(text, 2, "the lock name is 1024 bytes long; expected at most 1023");

	snprintf(text, sizeof(text), "protect = ( { path = \"/%0*d\"; } );", PATH_MAX - 300, 0);
	expect_refusal(text, 1, "/000000");
	ck_assert_ptr_nonnull(strstr(why, "cannot be resolved: File name too long"));
}
END_TEST

START_TEST(rules_must_fit_the_page)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	ck_assert_ptr_nonnull(f);
	fputs("protect = (\n", f);
	/* 40 bytes each in the page, and fewer in the file. */
	for (int i = 0; i < 28000; i++)
		fprintf(f, "%s{path=\"/no/such/f12345678/%05d\";}\n", i ? "," : "", i);
	fputs(");", f);
	fclose(f);
	ck_assert_uint_lt(len, CONFIG_FILE_BYTES);
	expect_refusal(text, 1 + PAGE_RULES_BYTES / 40 + 1, "the rules up to here need more than 1048576 bytes; expected fewer");
	free(text);
}
END_TEST

/* Every setting is in the example, and what it shows are the defaults. */
static char example[65536];

static void read_example(void)
{
	FILE *f = fopen("config/dflock.conf", "r");

	if (!f) {
		fprintf(stderr, "config/dflock.conf is not there; run this from the top folder\n");
		exit(EXIT_FAILURE);
	}
	example[fread(example, 1, sizeof(example) - 1, f)] = '\0';
	fclose(f);
}

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
	store.host = strdup(store.host);
	write_bytes(file, example, strlen(example));
	config_free(config);
	config = NULL;
	ck_assert_msg(config_load(file, &config, why, sizeof(why)) == 0, "%s", why);
	ck_assert_mem_eq(&lease, &config->lease, sizeof(lease));
	ck_assert_str_eq(store.host, config->store.host);
	ck_assert_int_eq(store.port, config->store.port);
	ck_assert_int_eq(store.database, config->store.database);
	ck_assert_int_eq(store.connect_ms, config->store.connect_ms);
	ck_assert_uint_eq(config->rule_count, 0);
	free(store.host);
}
END_TEST

/* The example's rules, without the marks that make them comments. */
START_TEST(example_rules_are_valid)
{
	char *rules = strstr(example, "protect = (");

	ck_assert_ptr_nonnull(rules);
	for (char *mark = rules; (mark = strstr(mark, "// "));)
		memset(mark, ' ', 2);
	read_ok(rules);
	ck_assert_uint_eq(config->rule_count, 4);
	ck_assert_str_eq(config->rules[1].name, "report");
	expect_name("/mnt/share/a/b", "share/a/b");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config");
	TCase *reading = tcase_create("reading"), *rules = tcase_create("rules");
	SRunner *runner = srunner_create(suite);
	int failed;

	read_example();
	tcase_add_checked_fixture(reading, setup, teardown);
	tcase_add_test(reading, defaults);
	tcase_add_test(reading, values);
	tcase_add_loop_test(reading, server_syntax, 0, sizeof(servers) / sizeof(servers[0]));
	tcase_add_loop_test(reading, refused, 0, sizeof(refusals) / sizeof(refusals[0]));
	tcase_add_test(reading, not_refused);
	tcase_add_test(reading, bytes_refused);
	tcase_add_test(reading, files_refused);
	tcase_add_test(reading, passwords_refused);
	tcase_add_test(reading, example_is_complete);
	suite_add_tcase(suite, reading);

	tcase_add_checked_fixture(rules, setup, teardown);
	tcase_add_test(rules, path_rules);
	tcase_add_test(rules, path_rules_through_links);
	tcase_add_test(rules, glob_rules);
	tcase_add_test(rules, tree_rules);
	tcase_add_test(rules, first_rule_counts);
	tcase_add_test(rules, lock_name_limits);
	tcase_add_test(rules, rules_must_fit_the_page);
	tcase_add_test(rules, example_rules_are_valid);
	suite_add_tcase(suite, rules);

	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
