/* Rules: what they resolve to, which paths they match, under which lock name. */
#include "tests/unit/config_file.h"

/* One rule for `setting`, which is in base, read. */
static const struct rule *rule_of(const char *setting, const char *path, const char *name)
{
	char text[PATH_MAX + 256];

	snprintf(text, sizeof(text), "protect = ( { %s = \"%%s/%s\"; %s%s%s } );", setting, path,
		 name ? "name = \"" : "", name ? name : "", name ? "\";" : "");
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
static void make_links(void)
{
	ck_assert_int_eq(mkdir(in_base("real"), 0700) + mkdir(in_base("a*[b]\\"), 0700), 0);
	write_bytes(in_base("real/file"), "", 0);
	ck_assert_int_eq(symlink("real", in_base("link")), 0);
	ck_assert_int_eq(symlink("real/file", in_base("alias")), 0);
	ck_assert_int_eq(symlink("../link/new", in_base("real/one")), 0);
	ck_assert_int_eq(symlink(in_base("link/one"), in_base("two")), 0);
	ck_assert_int_eq(symlink("nowhere//", in_base("dangling")), 0);
	ck_assert_int_eq(symlink("a*[b]\\", in_base("odd")), 0);
}

FIXTURE_ONCE(read_example, NULL)
FIXTURE(setup, teardown)

TEST(path_of)
{
	static const char *const good[][2] = {{"one", "one.lock"}, {"t/a/b", "tree/a/b"}, {"g/x.lock", "g/x.lock"}},
				 *const none[] = {"g/x", "one.lock", ""};
	char path[PATH_MAX];

	read_ok("protect = ( { path = \"%s/one.lock\"; name = \"one\"; }, { path = \"%s/g/*.lock\"; name = \"g\"; }, "
		"{ tree = \"%s/tree\"; name = \"t\"; } );");
	for (int i = 0; i < ROWS(good); i++) {
		ck_assert_int_eq(config_path_of(config, good[i][0], path), 0);
		ck_assert_str_eq(path, in_base(good[i][1]));
	}
	for (int i = 0; i < ROWS(none); i++)
		ck_assert_int_eq(config_path_of(config, none[i], path), -ENOENT);
}

/* A rule, how it matches, and paths with their names ("-": it is not protected). All is in base, also a name that begins with "./". */
static const struct {
	const char *setting, *path, *name;
	enum page_rule_kind kind;
	const char *pattern, *names;
} resolved[] = {
	{"path", "link//x.lock", NULL, PAGE_RULE_PATH, "real/x.lock", "real/x.lock ./link/x.lock link/x.lock -"},
	{"path", "link/x.lock", "report", PAGE_RULE_PATH, "real/x.lock", "real/x.lock report"},
	/* The file itself is a link. */
	{"path", "alias", NULL, PAGE_RULE_PATH, "real/file", "real/file ./alias"},
	/* Links to what is not there yet: open(O_CREAT) would make the target. */
	{"path", "two", NULL, PAGE_RULE_PATH, "real/new", ""},
	{"path", "dangling/a/b", NULL, PAGE_RULE_PATH, "nowhere/a/b", ""},
	/* Below a file nothing exists. */
	{"path", "real/file/x", NULL, PAGE_RULE_PATH, "real/file/x", ""},
	{"path", "no/such/dir/x", NULL, PAGE_RULE_PATH, "no/such/dir/x", ""},
	{"path", "link/*.lock", NULL, PAGE_RULE_GLOB, "real/*.lock",
	 "real/a.lock ./link/a.lock real/a.loc - real/.lock -"},
	{"path", "link/*/b?/c", "jobs", PAGE_RULE_GLOB, "real/*/b?/c", "real/a/b1/c jobs/a/b1/c"},
	{"path", "link/[0-9]", "n", PAGE_RULE_GLOB, "real/[0-9]", "real/7 n/7"},
	/* Wildcard characters in what a link leads to mean themselves, as do those behind a backslash. */
	{"path", "odd/*", "odd", PAGE_RULE_GLOB, "a\\*\\[b]\\\\/*", "a*[b]\\/x odd/x ab[b]\\/x -"},
	{"path", "a\\\\*\\\\[b]", NULL, PAGE_RULE_GLOB, "a\\*\\[b]", "a*[b] ./a*[b]"},
	{"tree", "link/", NULL, PAGE_RULE_TREE, "real", "real/a/.b ./link/a/.b real - really -"},
	{"tree", "link", "share", PAGE_RULE_TREE, "real", "real/a/b share/a/b"},
	/* A star in a tree is a star. */
	{"tree", "no*", NULL, PAGE_RULE_TREE, "no*", "no*/a ./no*/a nox/a -"},
};

TEST_EACH(what_rules_resolve_to, ROWS(resolved))
{
	char path[64], name[64];
	int used = 0;

	make_links();
	const struct rule *rule = rule_of(resolved[_i].setting, resolved[_i].path, resolved[_i].name);

	ck_assert_int_eq(rule->kind, resolved[_i].kind);
	ck_assert_int_eq(rule->line, 1);
	ck_assert_str_eq(rule->pattern, in_base(resolved[_i].pattern));
	if (rule->kind == PAGE_RULE_GLOB && strncmp(resolved[_i].pattern, "real/", 5) == 0)
		ck_assert_str_eq(rule->pattern + rule->fixed_len, resolved[_i].pattern + 4);
	for (const char *at = resolved[_i].names; sscanf(at, "%63s %63s%n", path, name, &used) == 2; at += used)
		expect_name(in_base(path), *name == '-' ? NULL : *name == '.' ? in_base(name + 2) : name);
}

TEST(links_that_lead_nowhere)
{
	ck_assert_int_eq(symlink("loop", in_base("loop")), 0);
	expect_refusal("protect = (\n{ path = \"%s/loop/x\"; } );", 2, "/dev/shm/dflock-test-");
	ck_assert_ptr_nonnull(strstr(why, "/loop/x cannot be resolved: Too many levels of symbolic links"));
	ck_assert_int_eq(symlink("no/such/../dir", in_base("up")), 0);
	expect_refusal("protect = ( { path = \"%s/up/x\"; } );", 1, "/dev/shm/dflock-test-");
}

/* At the top there is no folder before the wildcard, or the file. */
static const char *const at_the_top[][3] = {
	{"path = \"/*.lock\"", "/x.lock", "/x.lock"},
	{"path = \"/*.lock\"; name = \"top\"", "/x.lock", "top/x.lock"},
	{"tree = \"/\"", "/a/b", "/a/b"},
	{"tree = \"/\"; name = \"all\"", "/a/b", "all/a/b"},
};

TEST_EACH(rules_at_the_top, ROWS(at_the_top))
{
	char text[64];

	snprintf(text, sizeof(text), "protect = ( { %s; } );", at_the_top[_i][0]);
	read_ok(text);
	expect_name(at_the_top[_i][1], at_the_top[_i][2]);
	expect_name("/", NULL);
}

TEST(first_rule_counts)
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

TEST(lock_name_limits)
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

TEST(rules_must_fit_the_page)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	ck_assert_ptr_nonnull(f);
	fputs("protect = (\n", f);
	/* 40 bytes each in the page, and fewer in the file. The page keeps room for the rule of `dflock lock`. */
	for (int i = 0; i < 28000; i++)
		fprintf(f, "%s{path=\"/no/such/f12345678/%05d\";}\n", i ? "," : "", i);
	fputs(");", f);
	fclose(f);
	ck_assert_uint_lt(len, CONFIG_FILE_BYTES);
	expect_refusal(text, 1 + (PAGE_RULES_BYTES - PATH_MAX - sizeof(struct page_rule)) / 40 + 1,
		       "the rules up to here need more than 1048576 bytes; expected fewer");
	free(text);
}

/* The example's rules, without the marks that make them comments, and with commas between them. */
TEST(example_rules_are_valid)
{
	char *rules = strstr(example, "protect = ("), *stores = strstr(example, "// stores = {"), *end, *all = NULL;

	ck_assert_ptr_nonnull(rules);
	ck_assert_ptr_nonnull(stores);
	for (char *mark = rules; (mark = strstr(mark, "// "));)
		memcpy(mark, strchr(rules, '{') < mark ? ", " : "  ", 2);
	for (end = stores; strncmp(end, "// ", 3) == 0; end = strchr(end, '\n') + 1)
		memcpy(end, "  ", 2);
	ck_assert_int_gt(asprintf(&all, "store = {};\n%.*s%s", (int)(end - stores), stores, rules), 0);
	read_ok(all);
	free(all);
	ck_assert_uint_eq(config->rule_count, 8);
	ck_assert_uint_eq(config->store_count, 3);
	ck_assert_uint_eq(config_rule(config, "/srv/pay/lock")->store, 1);
	ck_assert_str_eq(config->rules[1].name, "report");
	expect_name("/mnt/share/a/b", "share/a/b");
}
