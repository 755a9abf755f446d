/* What two hosts name or protect differently; and rules as text, also text that is hostile. */
#include "config/differ.h"
#include "config/ruleset.h"
#include "tests/unit/suite.h"

#define MAX 8

/* Rules as in a configuration file, but resolved as they stand: "path /a/f x; tree /b" (the name may be left out);
 * a fourth word is a redis_key, "-" none, and a fifth a store. */
static struct config *made(const char *rules)
{
	struct config *parsed;
	char list[1024], *rest = list, *one, text[2048] = "2\n";

	snprintf(list, sizeof(list), "%s", rules);
	while ((one = strsep(&rest, ";"))) {
		char kind[8], pattern[200], name[200] = "", key[40] = "", store[40] = "";
		size_t fixed;

		if (sscanf(one, " %7s %199s %199s %39s %39s", kind, pattern, name, key, store) < 2)
			continue;
		if (strcmp(key, "-") == 0)
			*key = '\0';
		fixed = strcmp(pattern, "/") == 0 ? 0 : strlen(pattern);
		if (strcmp(kind, "glob") == 0)
			for (fixed = strcspn(pattern, "*?[\\"); pattern[fixed] != '/';)
				fixed--;
		sprintf(text + strlen(text), "%s\t%zu\t%s\t%.*s\t%s%s%s%s\n", kind, fixed, pattern,
			*name ? (int)strlen(name) : (int)fixed, *name ? name : pattern, *key ? "string " : "", key,
			*store ? "\t" : "", store);
	}
	ck_assert_msg(ruleset_parse(text, strlen(text), &parsed) == 0, "%s", text);
	return parsed;
}

static const char *one_text(const struct config *mine, const struct config *others, const struct difference *d)
{
	static char text[512];
	char here[100], there[100];
	differ_show_names(mine, d->here, here, sizeof(here));
	differ_show_names(others, d->there, there, sizeof(there));
	snprintf(text, sizeof(text), "%s %s %s; ", d->keyed ? "keyed" : "renamed", here, there);
	return text;
}

static const struct row {
	const char *here, *there,
		*found; /* each with "; " behind it; "N alone": so many lock names that only one of them has */
} rows[] = {
	{"", "", ""},
	{"path /a/f", "path /a/f", ""},
	/* Another name for the same path. */
	{"path /a/f app", "path /a/f apps", "renamed app apps; "},
	{"tree /srv/app app", "tree /srv/app apps", "renamed app/... apps/...; "},
	{"glob /l/*.lock a", "glob /l/*.lock b", "renamed a/*.lock b/*.lock; "},
	{"path /run/lock/f /var/lock/f", "path /run/lock/f", "renamed /var/lock/f /run/lock/f; "},
	/* Another rule, and the same or another name. */
	{"path /a/f", "tree /a", ""},
	{"path /a/f", "glob /a/*", ""},
	{"path /a/f x", "glob /a/*", "renamed x /a/*; "},
	{"tree /srv/app app", "tree /srv", "renamed app/... /srv/...; "},
	{"tree /srv/app", "tree /srv", ""},
	{"tree /", "path /a/f", ""},
	{"tree /", "path /a/f x", "renamed /... x; "},
	{"path /a/[ab]?*", "path /a/[ab]?*", ""}, /* a path rule: these are plain characters */
	{"glob /a/[!a-w]?.\\* n", "glob /a/* m", "renamed n/[!a-w]?.\\* m/*; "},
	/* One name, another path: a tree that is mounted elsewhere, /var/lock and /run/lock. */
	{"path /run/lock/f /var/lock/f", "path /var/lock/f", ""},
	{"tree /srv/app app", "tree /mnt/app app", ""},
	{"tree /srv/app app", "path /mnt/x app/x.lock", ""},
	{"glob /a/*.lock app", "path /b/f app/f.lock", ""},
	/* Another redis_key, or none. */
	{"path /a/f x k", "path /a/f x k", ""},
	{"path /a/f x k", "path /b/f x k", ""},
	{"path /a/f x k", "path /a/f x l", "keyed x x; "},
	{"path /a/f x k", "path /b/g x", "keyed x x; "},
	{"tree /a x", "path /b/f x/f k", "keyed x/... x/f; "},
	{"path /a/f x k", "path /b/f y k", ""},
	/* One name in two stores. */
	{"path /a/f x - pay", "path /a/f x - pay", ""},
	{"path /a/f x - pay", "path /a/f x", "renamed x (store pay) x; "},
	{"path /a/f x - pay", "path /a/f x - hot", "renamed x (store pay) x (store hot); "},
	{"path /a/f x - pay", "path /a/f y - pay", "renamed x (store pay) y (store pay); "},
	{"tree /a x - pay", "path /b/f x/x", "renamed x/... (store pay) x/x; "}, /* in another place */
	{"path /b b - b; path /a/f x - a", "path /a/f x - a; path /b b - b", ""},
	{"path /a/f x k pay", "path /a/f x k", "renamed x (store pay) x; "},
	/* Hosts without a common name run other jobs. */
	{"path /a/f x", "path /b/g y", ""},
	{"path /a/f x", "", ""},
	/* Those with one do not. */
	{"path /a/f x; path /a/g y", "path /a/f x", "1 alone"},
	{"path /a/f x", "path /a/f x; tree /b y", "1 alone"},
	{"path /srv/app/f; path /a", "path /srv/ap/f; path /a", "2 alone"},
	{"path /a/f x; path /a/g y", "path /b/f x; path /a/g z", "renamed y z; "},
	/* A rule that an earlier one hides says nothing. */
	{"tree /a x; path /a/f y", "tree /a x", ""},
	{"tree /a x; path /b z", "path /a/f y; tree /a x; path /b z", "renamed x/... y; "},
};

static void found_text(const struct config *here, const struct config *there, char text[2048])
{
	struct difference found[MAX];
	size_t count, alone;

	ck_assert_int_eq(differ_find(here, there, found, MAX, &count, &alone), 0);
	ck_assert_uint_le(count, MAX);
	*text = '\0';
	for (size_t i = 0; i < count; i++)
		strcat(text, one_text(here, there, &found[i]));
	if (alone)
		sprintf(text + strlen(text), "%zu alone", alone);
}

TEST_EACH(rules_compared, ROWS(rows))
{
	struct config *here = made(rows[_i].here), *there = made(rows[_i].there);
	char text[2048], back[2048];

	found_text(here, there, text);
	ck_assert_msg(strcmp(text, rows[_i].found) == 0, "(%s) and (%s): found \"%s\", expected \"%s\"", rows[_i].here,
		      rows[_i].there, text, rows[_i].found);
	/* The same from the other side. */
	found_text(there, here, back);
	ck_assert_msg((*text == '\0') == (*back == '\0'), "\"%s\" and \"%s\"", text, back);
	config_free(here);
	config_free(there);
}

TEST(more_than_there_is_room_for)
{
	struct config *here = made("path /a a; path /b b; path /c c; path /d d k"),
		      *there = made("path /a x; path /b y; path /c z; path /d d");
	struct difference found[2];
	size_t count, alone;

	ck_assert_int_eq(differ_find(here, there, found, 2, &count, &alone), 0);
	ck_assert_uint_ge(count, 4);
	ck_assert(!found[0].keyed && !found[1].keyed); /* those that let two programs run come first */
	config_free(here);
	config_free(there);
}

TEST(keys_and_stores_in_texts)
{
	char text[2048] = "2\npath\t2\t/a\tx\t\tpay\npath\t2\t/b\ty\t\nglob\t2\t/c/*\tz\t\thot\n"
			  "path\t2\t/d\tz\tstring k\tpay\npath\t2\t/e\tx\tredisson k %\n";
	static const char *const stores[] = {"pay", "", "hot", "pay", ""}, *const keys[] = {NULL, NULL, NULL,
											    "string k", "redisson k %"};
	struct config *parsed;
	char *again;

	ck_assert_int_eq(ruleset_parse(text, strlen(text), &parsed), 0);
	for (int i = 0; i < 5; i++) {
		ck_assert_str_eq(parsed->stores[parsed->rules[i].store].name, stores[i]);
		ck_assert_pstr_eq(parsed->rules[i].redis_key, keys[i]);
	}
	again = ruleset_text(parsed);
	ck_assert_str_eq(again, text);
	free(again);
	config_free(parsed);
	/* As many as a configuration can have; the default is one of them. */
	for (int i = 1, len = 2; i <= CONFIG_MAX_MEMBERS; i++) {
		len += sprintf(text + len, "path\t2\t/a\tx\t\ts%d\n", i);
		ck_assert_int_eq(ruleset_parse(text, (size_t)len, &parsed), i < CONFIG_MAX_MEMBERS ? 0 : -EINVAL);
		config_free(parsed);
	}
}

TEST(too_many_to_compare)
{
	struct config many = {.rule_count = 1000};
	struct difference found[1];
	size_t count, alone;
	ck_assert_int_eq(differ_find(&many, &many, found, 1, &count, &alone), -E2BIG);
}

TEST(text_and_back)
{
	struct rule rules[] = {
		{.kind = PAGE_RULE_PATH, .pattern = "/a b/%\n\xff", .name = "", .fixed_len = 8},
		{.kind = PAGE_RULE_GLOB, .pattern = "/\\[x/y*", .name = "n m", .fixed_len = 3},
		{.kind = PAGE_RULE_TREE, .pattern = "/", .name = "all", .fixed_len = 0},
	};
	struct config from = {.rules = rules, .rule_count = 3}, *to;
	char *text = ruleset_text(&from), digest[RULESET_DIGEST_BYTES];

	ck_assert_str_eq(text, "2\npath\t8\t/a b/%?\xff\t\t\nglob\t3\t/\\[x/y*\tn m\t\ntree\t0\t/\tall\t\n");
	ck_assert_int_eq(ruleset_parse(text, strlen(text), &to), 0);
	ck_assert_uint_eq(to->rule_count, 3);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(to->rules[i].kind, rules[i].kind);
		ck_assert_str_eq(to->rules[i].pattern, i ? rules[i].pattern : "/a b/%?\xff");
		ck_assert_str_eq(to->rules[i].name, rules[i].name);
		ck_assert_uint_eq(to->rules[i].fixed_len, rules[i].fixed_len);
	}
	ruleset_digest(text, digest);
	ck_assert_uint_eq(strspn(digest, "0123456789abcdef"), 16);
	config_free(to);
	free(text);
}

/* Rules, each the only line of a text. */
static const char *const nonsense[] = {
	"path", "path\t2\t/a\tx", "file\t2\t/a\tx\t", "path\tx\t/a\tx\t", "path\t\t/a\tx\t", "path\t3\t/a\tx\t",
	"path\t1\ta\tx\t", "path\t2\t/a\t\tx\t", "path\t2\t/a\tx\t\ty\tz", "path\t-2\t/a\tx\t", "path\t2\t/a\tx\t\n",
	"glob\t9999999\t/a/*\tx\t", "glob\t99999\t/a/*\tx\t", "glob\t4\t/a/*\tx\t", "glob\t1\t/a/*\tx\t",
	"glob\t3\t/a\\\tx\t", "glob\t5\t/a/*/b\tx\t", "tree\t1\t/\tx\t", "tree\t1\t/a\tx\t", "path\t2\t/a\tx\t\r",
	/* Keys. */
	"path\t2\t/a\tx\tk", "path\t2\t/a\tx\tstring ", "path\t2\t/a\tx\tlist k",
	"path\t2\t/a\tx\tstring k\tpay\tmore"};

static void expect_refused(const char *text, size_t len)
{
	struct config *to;
	ck_assert_msg(ruleset_parse(text, len, &to) == -EINVAL, "%s", text);
	ck_assert_ptr_null(to);
}

TEST_EACH(nonsense_is_refused, ROWS(nonsense))
{
	char text[128];
	snprintf(text, sizeof(text), "2\n%s\n", nonsense[_i]);
	expect_refused(text, strlen(text));
}

TEST(other_texts_are_refused)
{
	static const char *const texts[] = {"", "2", "1\n", "2\npath\t2\t/a\tx\t"};
	char text[RULESET_BYTES + 1], path[6000] = "2\npath\t5000\t/";

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		expect_refused(texts[i], strlen(texts[i]));
	memset(text, 'a', sizeof(text));
	expect_refused(text, sizeof(text));
	expect_refused("2\n\0", 3);
	memset(path + 13, 'a', 4999);
	strcat(path, "\tx\t\n");
	expect_refused(path, strlen(path));
}

/* Whatever the text is, parsing and comparing end, and touch nothing else (run with the sanitizers, or valgrind). */
TEST(random_texts)
{
	static const char alphabet[] = "/ab*?[]\\!%20 \t\n";
	unsigned seed = 11, good = 0;

	for (int round = 0; round < suite_rounds(200000); round++) {
		static const char *const heads[] = {"path\t", "glob\t", "tree\t"};
		char text[256] = "2\n";
		size_t len = 2;
		struct config *to;

		for (int rules = 1 + rand_r(&seed) % 3; rules; rules--) {
			len += (size_t)sprintf(text + len, "%s%d\t/", heads[rand_r(&seed) % 3], rand_r(&seed) % 6);
			for (int i = rand_r(&seed) % 8; i; i--)
				text[len++] = alphabet[rand_r(&seed) % (sizeof(alphabet) - 1)];
			len += (size_t)sprintf(text + len, "\t%c\t%s\n", "xyz"[rand_r(&seed) % 3],
					       rand_r(&seed) % 3 ? "" : "\ts");
		}
		if (ruleset_parse(text, len, &to) == 0) {
			struct config *other = made("tree / x; path /a x");
			struct difference found[MAX];
			size_t count, alone;

			good++;
			ck_assert_int_eq(differ_find(to, other, found, MAX, &count, &alone), 0);
			ck_assert_int_eq(differ_find(other, to, found, MAX, &count, &alone), 0);
			config_free(other);
			config_free(to);
		}
	}
	ck_assert_uint_gt(good, (unsigned)suite_rounds(1000));
}
