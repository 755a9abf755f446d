/* Rules of the shared page against paths. */
#include "wire/page.h"
#include "tests/unit/suite.h"

static const struct match {
	enum page_rule_kind kind;
	const char *pattern, *yes, *no; /* paths, with a blank between them */
} matches[] = {
	{PAGE_RULE_PATH, "/a/b", "/a/b", "/a/bc /a/ /a/b/c"},
	{PAGE_RULE_PATH, "/a/*", "/a/*", "/a/b"},
	{PAGE_RULE_TREE, "/a", "/a/b /a/b/c/.d /a/.hidden", "/a /a/ /ab /ab/c"},
	{PAGE_RULE_TREE, "/a*", "", "/ab/c"},
	{PAGE_RULE_TREE, "/", "/a /a/b", "/"},
	{PAGE_RULE_TREE, "", "", "/a"},
	{PAGE_RULE_GLOB, "/a/b", "/a/b", "/a/bc"},
	{PAGE_RULE_GLOB, "/a/*", "/a/b /a/", "/a /a/b/c"},
	{PAGE_RULE_GLOB, "/a/*/c", "/a/b/c", "/a/b/b/c"},
	{PAGE_RULE_GLOB, "/*/*/c", "/a/b/c", ""},
	{PAGE_RULE_GLOB, "/a*/c", "/a/c", ""},
	{PAGE_RULE_GLOB, "/*c/d", "/bcbc/d", "/bcb/d"},
	{PAGE_RULE_GLOB, "/*.lock", "/a.lock /a.lock.lock", "/a.locks /.lock"},
	{PAGE_RULE_GLOB, "/*.lock*", "/a.locks", ""},
	{PAGE_RULE_GLOB, "/**b", "/aab", ""},
	{PAGE_RULE_GLOB, "/a*b*c", "/a1b2b3c", "/a1b2b3"},
	{PAGE_RULE_GLOB, "/?", "/a", "/ /ab"},
	{PAGE_RULE_GLOB, "/a?b", "/a.b", "/a/b"},
	/* A leading dot is matched by a dot only. */
	{PAGE_RULE_GLOB, "/*", "", "/.a"},
	{PAGE_RULE_GLOB, "/?a", "", "/.a"},
	{PAGE_RULE_GLOB, "/[.]a", "", "/.a"},
	{PAGE_RULE_GLOB, "/[!b]a", "", "/.a"},
	{PAGE_RULE_GLOB, "/.*", "/.a", ""},
	{PAGE_RULE_GLOB, "/\\.*", "/.a", ""},
	{PAGE_RULE_GLOB, "/a/*/b", "", "/a/.x/b"},
	{PAGE_RULE_GLOB, "/a*b", "/a.b", ""},
	/* Brackets. */
	{PAGE_RULE_GLOB, "/[abc]", "/b", "/d"},
	{PAGE_RULE_GLOB, "/[a-c]x", "/bx", "/dx"},
	{PAGE_RULE_GLOB, "/[!a-c]x", "/dx", ""},
	{PAGE_RULE_GLOB, "/[^a-c]x", "/dx", "/bx"},
	{PAGE_RULE_GLOB, "/a[!b]c", "", "/a/c"},
	{PAGE_RULE_GLOB, "/[]a]", "/]", ""},
	{PAGE_RULE_GLOB, "/[!]a]", "/b", "/]"},
	{PAGE_RULE_GLOB, "/[a-]", "/-", ""},
	{PAGE_RULE_GLOB, "/[-a]", "/-", ""},
	{PAGE_RULE_GLOB, "/[\\]]", "/]", ""},
	{PAGE_RULE_GLOB, "/[a\\-z]", "/-", "/b"},
	{PAGE_RULE_GLOB, "/[c-a]", "", "/b"},
	{PAGE_RULE_GLOB, "/[0-9][0-9]*", "/17x", ""},
	{PAGE_RULE_GLOB, "/*[0-9]", "/a1b2", ""},
	{PAGE_RULE_GLOB, "/[\x80-\xff]", "/\xc3", ""},
	{PAGE_RULE_GLOB, "/[a", "/[a", "/a"},
	{PAGE_RULE_GLOB, "/[a/b]", "/[a/b]", ""},
	{PAGE_RULE_GLOB, "/[a-/b]", "/[a-/b]", ""},
	{PAGE_RULE_GLOB, "/[", "/[", ""},
	{PAGE_RULE_GLOB, "/[!", "/[!", ""},
	/* Plain characters. */
	{PAGE_RULE_GLOB, "/\\*", "/*", "/a"},
	{PAGE_RULE_GLOB, "/\\[a]", "/[a]", ""},
	{PAGE_RULE_GLOB, "/\\\\", "/\\", ""},
	{PAGE_RULE_GLOB, "/a\\", "/a\\", ""},
};

static void expect_matches(const struct match *m, const char *paths, bool expected)
{
	char list[128], *rest = list, *path;
	strcpy(list, paths);
	while ((path = strsep(&rest, " ")))
		ck_assert_msg(!*path || page_rule_matches(m->kind, m->pattern, path) == expected,
			      "%d: %s against %s: expected %d", m->kind, m->pattern, path, expected);
}

TEST_EACH(rules_match, ROWS(matches))
{
	expect_matches(&matches[_i], matches[_i].yes, true);
	expect_matches(&matches[_i], matches[_i].no, false);
	ck_assert(page_rule_matches(PAGE_RULE_GLOB, "", "") && page_rule_matches(PAGE_RULE_GLOB, "*", ""));
}

/* A matcher that tries every way to share out the letters would need years for this. */
TEST(glob_ends_soon)
{
	char pattern[4096] = "/", path[4096] = "/";
	time_t start = time(NULL);
	for (size_t i = 1; i + 2 < sizeof(pattern); i += 2)
		memcpy(pattern + i, "*a", 3);
	strcpy(pattern + strlen(pattern) - 1, "b");
	memset(path + 1, 'a', sizeof(path) - 2);
	ck_assert(!page_rule_matches(PAGE_RULE_GLOB, pattern, path));
	ck_assert_int_lt(time(NULL) - start, 6);
}

TEST(append_fills_to_the_end)
{
	_Alignas(8) unsigned char rules[32];
	size_t used = 0;

	/* 8 bytes of header, 7 letters and a NUL; then 8 and 8 with padding; then nothing more. */
	ck_assert_int_eq(
		page_rule_append(rules, sizeof(rules), &used, PAGE_RULE_PATH, WIRE_ON_REFUSED_REFUSE, "/234567"), 0);
	ck_assert_uint_eq(used, 16);
	ck_assert_int_eq(
		page_rule_append(rules, sizeof(rules), &used, PAGE_RULE_TREE, WIRE_ON_REFUSED_REFUSE, "/2345678"),
		-ENOSPC);
	ck_assert_uint_eq(used, 16);
	memset(rules + used, 0xff, sizeof(rules) - used);
	ck_assert_int_eq(page_rule_append(rules, sizeof(rules), &used, PAGE_RULE_TREE, WIRE_ON_REFUSED_REFUSE, "/"), 0);
	ck_assert_uint_eq(used, 32);
	ck_assert_mem_eq(rules + 16 + 8, "/\0\0\0\0\0\0\0", 8);
	ck_assert_int_eq(page_rule_append(rules, sizeof(rules), &used, PAGE_RULE_PATH, WIRE_ON_REFUSED_REFUSE, ""),
			 -ENOSPC);
}
