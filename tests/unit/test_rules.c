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
static void make_link(void)
{
	ck_assert_int_eq(mkdir(in_base("real"), 0700), 0);
	ck_assert_int_eq(symlink("real", in_base("link")), 0);
}

FIXTURE_ONCE(read_example, NULL)
FIXTURE(setup, teardown)

TEST(path_of)
{
	char path[PATH_MAX], expected[PATH_MAX];

	read_ok("protect = ( { path = \"%s/one.lock\"; name = \"one\"; }, { path = \"%s/g/*.lock\"; name = \"g\"; }, "
		"{ tree = \"%s/tree\"; name = \"t\"; } );");
	ck_assert_int_eq(config_path_of(config, "one", path), 0);
	snprintf(expected, sizeof(expected), "%s", in_base("one.lock"));
	ck_assert_str_eq(path, expected);
	ck_assert_int_eq(config_path_of(config, "t/a/b", path), 0);
	snprintf(expected, sizeof(expected), "%s", in_base("tree/a/b"));
	ck_assert_str_eq(path, expected);
	ck_assert_int_eq(config_path_of(config, "g/x.lock", path), 0);
	snprintf(expected, sizeof(expected), "%s", in_base("g/x.lock"));
	ck_assert_str_eq(path, expected);
	ck_assert_int_eq(config_path_of(config, "g/x", path), -ENOENT); /* the rule does not match it */
	ck_assert_int_eq(config_path_of(config, "one.lock", path), -ENOENT);
	ck_assert_int_eq(config_path_of(config, "", path), -ENOENT);
}

TEST(path_rules)
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

TEST(path_rules_through_links)
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

TEST(glob_rules)
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

TEST(tree_rules)
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
