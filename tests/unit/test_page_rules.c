/* Rules of the shared page against paths. */
#include "wire/page.h"
#include "tests/unit/suite.h"

static const struct match {
	enum page_rule_kind kind;
	const char *pattern, *path;
	bool expected;
} matches[] = {
	{PAGE_RULE_PATH, "/a/b", "/a/b", true},
	{PAGE_RULE_PATH, "/a/b", "/a/bc", false},
	{PAGE_RULE_PATH, "/a/b", "/a/b/c", false},
	{PAGE_RULE_PATH, "/a/*", "/a/b", false},
	{PAGE_RULE_PATH, "/a/*", "/a/*", true},

	{PAGE_RULE_TREE, "/a", "/a/b", true},
	{PAGE_RULE_TREE, "/a", "/a/b/c/.d", true},
	{PAGE_RULE_TREE, "/a", "/a", false},
	{PAGE_RULE_TREE, "/a", "/a/", false},
	{PAGE_RULE_TREE, "/a", "/ab", false},
	{PAGE_RULE_TREE, "/a*", "/ab/c", false},
	{PAGE_RULE_TREE, "/", "/a", true},
	{PAGE_RULE_TREE, "/", "/", false},
	{PAGE_RULE_TREE, "", "/a", false},

	{PAGE_RULE_GLOB, "/a/b", "/a/b", true},
	{PAGE_RULE_GLOB, "/a/b", "/a/bc", false},
	{PAGE_RULE_GLOB, "/a/*", "/a/b", true},
	{PAGE_RULE_GLOB, "/a/*", "/a/", true},
	{PAGE_RULE_GLOB, "/a/*", "/a", false},
	{PAGE_RULE_GLOB, "/a/*", "/a/b/c", false},
	{PAGE_RULE_GLOB, "/a/*/c", "/a/b/c", true},
	{PAGE_RULE_GLOB, "/*/*/c", "/a/b/c", true},
	{PAGE_RULE_GLOB, "/a*/c", "/a/c", true},
	{PAGE_RULE_GLOB, "/*c/d", "/bcbc/d", true},
	{PAGE_RULE_GLOB, "/*c/d", "/bcb/d", false},
	{PAGE_RULE_GLOB, "/*.lock", "/a.lock.lock", true},
	{PAGE_RULE_GLOB, "/*.lock", "/a.locks", false},
	{PAGE_RULE_GLOB, "/*.lock*", "/a.locks", true},
	{PAGE_RULE_GLOB, "/**b", "/aab", true},
	{PAGE_RULE_GLOB, "/a*b*c", "/a1b2b3c", true},
	{PAGE_RULE_GLOB, "/?", "/a", true},
	{PAGE_RULE_GLOB, "/?", "/", false},
	{PAGE_RULE_GLOB, "/?", "/ab", false},
	{PAGE_RULE_GLOB, "/a?b", "/a/b", false},

	/* A leading dot is matched by a dot only. */
	{PAGE_RULE_GLOB, "/*.lock", "/.lock", false},
	{PAGE_RULE_GLOB, "/*", "/.a", false},
	{PAGE_RULE_GLOB, "/?a", "/.a", false},
	{PAGE_RULE_GLOB, "/[.]a", "/.a", false},
	{PAGE_RULE_GLOB, "/[!b]a", "/.a", false},
	{PAGE_RULE_GLOB, "/.*", "/.a", true},
	{PAGE_RULE_GLOB, "/\\.*", "/.a", true},
	{PAGE_RULE_GLOB, "/a/*/b", "/a/.x/b", false},
	{PAGE_RULE_GLOB, "/a*b", "/a.b", true},
	{PAGE_RULE_GLOB, "/a?b", "/a.b", true},

	/* Brackets. */
	{PAGE_RULE_GLOB, "/[abc]", "/b", true},
	{PAGE_RULE_GLOB, "/[a-c]x", "/bx", true},
	{PAGE_RULE_GLOB, "/[a-c]x", "/dx", false},
	{PAGE_RULE_GLOB, "/[^a-c]x", "/bx", false},
	{PAGE_RULE_GLOB, "/[^a-c]x", "/dx", true},
	{PAGE_RULE_GLOB, "/a[!b]c", "/a/c", false},
	{PAGE_RULE_GLOB, "/[]a]", "/]", true},
	{PAGE_RULE_GLOB, "/[!]a]", "/]", false},
	{PAGE_RULE_GLOB, "/[!]a]", "/b", true},
	{PAGE_RULE_GLOB, "/[a-]", "/-", true},
	{PAGE_RULE_GLOB, "/[-a]", "/-", true},
	{PAGE_RULE_GLOB, "/[\\]]", "/]", true},
	{PAGE_RULE_GLOB, "/[a\\-z]", "/b", false},
	{PAGE_RULE_GLOB, "/[a\\-z]", "/-", true},
	{PAGE_RULE_GLOB, "/[c-a]", "/b", false},
	{PAGE_RULE_GLOB, "/*[0-9]", "/a1b2", true},
	{PAGE_RULE_GLOB, "/[\x80-\xff]", "/\xc3", true},
	{PAGE_RULE_GLOB, "/[a", "/[a", true},
	{PAGE_RULE_GLOB, "/[a", "/a", false},
	{PAGE_RULE_GLOB, "/[a/b]", "/[a/b]", true},
	{PAGE_RULE_GLOB, "/[a-/b]", "/[a-/b]", true},
	{PAGE_RULE_GLOB, "/[", "/[", true},
	{PAGE_RULE_GLOB, "/[!", "/[!", true},

	/* Plain characters. */
	{PAGE_RULE_GLOB, "/\\*", "/*", true},
	{PAGE_RULE_GLOB, "/\\[a]", "/[a]", true},
	{PAGE_RULE_GLOB, "/\\\\", "/\\", true},
	{PAGE_RULE_GLOB, "/a\\", "/a\\", true},
	{PAGE_RULE_GLOB, "", "", true},
	{PAGE_RULE_GLOB, "*", "", true},
};

TEST_EACH(rules_match, ROWS(matches))
{
	const struct match *m = &matches[_i];

	ck_assert_msg(page_rule_matches(m->kind, m->pattern, m->path) == m->expected, "%d: %s against %s: expected %d",
		      m->kind, m->pattern, m->path, m->expected);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A matcher that tries every way to share out the letters would need years for this. */
TEST(glob_ends_soon)
{
	char pattern[4096] = "/", path[4096] = "/";
	double start = now_s();

	for (size_t i = 1; i + 2 < sizeof(pattern); i += 2)
		memcpy(pattern + i, "*a", 3);
	strcpy(pattern + strlen(pattern) - 1, "b");
	memset(path + 1, 'a', sizeof(path) - 2);
	ck_assert(!page_rule_matches(PAGE_RULE_GLOB, pattern, path));
	ck_assert_double_lt(now_s() - start, 5.0);
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
