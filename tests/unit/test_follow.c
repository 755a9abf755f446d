/* May a configuration take another's place by itself? Rules, old and new, and the word for each refusal. */
#include "tests/unit/config_file.h"

#define STORE "store = { server = \"a\"; };"

static const struct change {
	const char *old, *fresh; /* what stands between protect = ( and ); */
	const char *why;         /* a part of the reason; NULL: it is taken over */
} changes[] = {
	/* The same rules, and more after them. */
	{"{ path = \"/a/f\"; }", "{ path = \"/a/f\"; }", NULL},
	{"", "{ tree = \"/a\"; }", NULL},
	{"{ tree = \"/a\"; }", "{ tree = \"/a\"; }, { tree = \"/\"; name = \"all\"; }", NULL},
	{"{ path = \"/a/f\"; }", "{ path = \"/a/f\"; name = \"/a/f\"; }", NULL}, /* the reason without such a text */
	/* Gone, or under another name. */
	{"{ path = \"/a/f\"; }", "", "path \"/a/f\" is not protected as \"/a/f\" any more"},
	{"{ path = \"/a/f\"; }, { tree = \"/b\"; }", "{ path = \"/a/f\"; }", "tree \"/b\" is not protected"},
	{"{ path = \"/a/f\"; }", "{ path = \"/a/f\"; name = \"x\"; }", "path \"/a/f\" is not protected as \"/a/f\""},
	{"{ tree = \"/a\"; name = \"x\"; }", "{ tree = \"/a\"; name = \"y\"; }", "as \"x\""},
	{"{ path = \"/a/f\"; }", "{ tree = \"/a\"; }", "is not protected as"}, /* it is, but that is not looked for */
	{"{ path = \"/a/*\"; }", "{ tree = \"/a\"; }", "is not protected as"},
	{"{ path = \"/a/?\"; }", "{ path = \"/a/*\"; }", "is not protected as"},
	/* A rule before the old one: it matches no file of that, or gives the same name. */
	{"{ path = \"/a/f\"; }", "{ path = \"/a/g\"; name = \"x\"; }, { path = \"/a/f\"; }", NULL},
	{"{ path = \"/a/f\"; }", "{ path = \"/a/*\"; name = \"x\"; }, { path = \"/a/f\"; }",
	 "path \"/a/*\" (line 3) now stands before"},
	{"{ path = \"/a/f\"; }", "{ path = \"/a/*\"; }, { path = \"/a/f\"; }", NULL},
	{"{ path = \"/a/f\"; }", "{ path = \"/a/g*\"; name = \"x\"; }, { path = \"/a/f\"; }", NULL},
	{"{ path = \"/a/f\"; }", "{ tree = \"/a\"; name = \"x\"; }, { path = \"/a/f\"; }", "tree \"/a\" (line 3)"},
	{"{ path = \"/a/f\"; }", "{ tree = \"/a\"; }, { path = \"/a/f\"; }", NULL},
	{"{ path = \"/a/f\"; name = \"x/f\"; }",
	 "{ tree = \"/a\"; name = \"x\"; }, { path = \"/a/f\"; name = \"x/f\"; }", NULL},
	{"{ tree = \"/a\"; }", "{ path = \"/a/b/f\"; name = \"x\"; }, { tree = \"/a\"; }",
	 "now stands before tree \"/a\""},
	{"{ tree = \"/a\"; }", "{ path = \"/a/b/f\"; }, { tree = \"/a\"; }", NULL},
	{"{ tree = \"/a\"; }", "{ path = \"/ab\"; name = \"x\"; }, { tree = \"/a\"; }", NULL},
	{"{ tree = \"/a\"; }", "{ tree = \"/ab\"; name = \"x\"; }, { tree = \"/a\"; }", NULL},
	{"{ tree = \"/a\"; }", "{ tree = \"/a/b\"; name = \"x\"; }, { tree = \"/a\"; }",
	 "tree \"/a/b\" (line 3) now stands"},
	{"{ tree = \"/a\"; }", "{ tree = \"/a/b\"; }, { tree = \"/a\"; }", NULL},
	{"{ tree = \"/a\"; name = \"x\"; }", "{ tree = \"/a/b\"; name = \"x/b\"; }, { tree = \"/a\"; name = \"x\"; }",
	 NULL},
	{"{ tree = \"/a\"; name = \"x\"; }", "{ tree = \"/a/b\"; name = \"x/c\"; }, { tree = \"/a\"; name = \"x\"; }",
	 "may name"},
	{"{ tree = \"/a\"; name = \"x\"; }", "{ tree = \"/a/b\"; name = \"x\"; }, { tree = \"/a\"; name = \"x\"; }",
	 "may name"},
	{"{ tree = \"/a/b\"; }", "{ tree = \"/a\"; name = \"x\"; }, { tree = \"/a/b\"; }", "may name"},
	{"{ tree = \"/a/b\"; }", "{ tree = \"/\"; name = \"x\"; }, { tree = \"/a/b\"; }", "may name"},
	{"{ tree = \"/a/b\"; }", "{ tree = \"/\"; }, { tree = \"/a/b\"; }", NULL},
	{"{ tree = \"/a/b\"; name = \"x/a/b\"; }",
	 "{ tree = \"/\"; name = \"x\"; }, { tree = \"/a/b\"; name = \"x/a/b\"; }", NULL},
	{"{ tree = \"/a\"; }", "{ path = \"/a/*\"; name = \"x\"; }, { tree = \"/a\"; }", "may name"},
	{"{ tree = \"/a\"; }", "{ path = \"/a/*\"; }, { tree = \"/a\"; }", NULL},
	{"{ path = \"/a/*/f\"; }", "{ tree = \"/a/b\"; name = \"x\"; }, { path = \"/a/*/f\"; }", "may name"},
	{"{ path = \"/a/*/f\"; }", "{ path = \"/a/b*/f\"; name = \"x\"; }, { path = \"/a/*/f\"; }", "may name"},
	{"{ path = \"/a/*.x\"; }", "{ path = \"/a/*.y\"; name = \"x\"; }, { path = \"/a/*.x\"; }",
	 "may name"}, /* not found out */
	{"{ path = \"/a/*.x\"; }", "{ path = \"/b/*.x\"; name = \"x\"; }, { path = \"/a/*.x\"; }", NULL},
	/* The fixed part of a glob is what stands before its first name with a wildcard. */
	{"{ path = \"/a/\\\\[b/f*\"; }", "{ tree = \"/a/c\"; name = \"x\"; }, { path = \"/a/\\\\[b/f*\"; }",
	 "may name"},
	{"{ path = \"/a/\\\\[b/f*\"; }", "{ tree = \"/b\"; name = \"x\"; }, { path = \"/a/\\\\[b/f*\"; }", NULL},
	/* Less is done for a lost lease, or against a holder that cannot be stopped. */
	{"{ path = \"/a/f\"; }", "{ path = \"/a/f\"; on_lost = \"warn\"; }", "on_lost = \"warn\""},
	{"{ path = \"/a/f\"; }", "{ path = \"/a/f\"; on_lost = \"kill\"; }", NULL},
	{"{ path = \"/a/f\"; on_lost = \"warn\"; }", "{ path = \"/a/f\"; }", NULL},
	{"{ path = \"/a/f\"; unstoppable = \"refuse\"; }", "{ path = \"/a/f\"; }", "unstoppable = \"warn\""},
	{"{ path = \"/a/f\"; }", "{ path = \"/a/f\"; unstoppable = \"refuse\"; }", NULL},
	{"{ path = \"/a/f\"; at_least_ms = 5; }", "{ path = \"/a/f\"; }", "no at_least_ms"},
	{"{ path = \"/a/f\"; at_least_ms = 5; }", "{ path = \"/a/f\"; at_least_ms = 4; }", NULL},
	{"{ path = \"/a/f\"; }", "{ path = \"/a/f\"; at_least_ms = 5; }", NULL},
	{"{ path = \"/a/f\"; redis_key = \"k\"; }", "{ path = \"/a/f\"; }", "another redis_key or none"},
	{"{ path = \"/a/f\"; redis_key = \"k\"; }", "{ path = \"/a/f\"; redis_key = \"l\"; }", "another redis_key"},
	{"{ path = \"/a/f\"; redis_key = \"k\"; }",
	 "{ path = \"/a/f\"; redis_key = \"k\"; redis_key_format = \"redisson\"; }", "another redis_key"},
	{"{ path = \"/a/f\"; }", "{ path = \"/a/f\"; redis_key = \"k\"; }", NULL},
	{"{ path = \"/a/f\"; redis_key = \"k\"; }", "{ tree = \"/a\"; }, { path = \"/a/f\"; redis_key = \"k\"; }",
	 "do less"},
	/* Holders would be ended. */
	{"{ path = \"/a/f\"; }", "{ path = \"/a/f\"; kill_after_ms = 5000; }", "new or shorter"},
	{"{ path = \"/a/f\"; kill_after_ms = 5000; }", "{ path = \"/a/f\"; kill_after_ms = 4000; }", "new or shorter"},
	{"{ path = \"/a/f\"; kill_after_ms = 5000; }", "{ path = \"/a/f\"; kill_after_ms = 6000; }", NULL},
	{"{ path = \"/a/f\"; kill_after_ms = 5000; }", "{ path = \"/a/f\"; }", NULL},
	{"{ path = \"/a/f\"; }", "{ path = \"/a/f\"; warn_after_ms = 5; }", NULL},
	{"{ path = \"/a/f\"; }", "{ tree = \"/a\"; kill_after_ms = 5000; }, { path = \"/a/f\"; }", "do less"},
	{"{ path = \"/a/f\"; on_refused = \"busy\"; }", "{ path = \"/a/f\"; }", "no on_refused"},
	{"{ path = \"/a/f\"; on_refused = \"busy\"; }", "{ path = \"/a/f\"; on_refused = \"wait\"; }", "no on_refused"},
	{"{ path = \"/a/f\"; on_refused = \"wait\"; }", "{ path = \"/a/f\"; }", NULL},
	{"{ path = \"/a/f\"; }", "{ path = \"/a/f\"; on_refused = \"busy\"; }", NULL},
	{"{ path = \"/a/f\"; }", "{ tree = \"/a\"; on_lost = \"warn\"; }, { path = \"/a/f\"; }", "do less"},
	{"{ path = \"/a/f\"; }", "{ tree = \"/b\"; on_lost = \"warn\"; }, { path = \"/a/f\"; }", NULL},
	/* Moved. */
	{"{ path = \"/a/f\"; }, { tree = \"/b\"; }", "{ tree = \"/b\"; }, { path = \"/a/f\"; }", "was moved"},
	{"{ path = \"/a/f\"; name = \"x\"; }, { tree = \"/a\"; }",
	 "{ tree = \"/a\"; }, { path = \"/a/f\"; name = \"x\"; }", "was moved"},
	{"{ path = \"/a/f\"; name = \"x\"; }, { tree = \"/a\"; }",
	 "{ path = \"/a/f\"; name = \"x\"; }, { path = \"/b\"; }, { tree = \"/a\"; }", NULL},
	{"{ path = \"/a/f\"; name = \"x\"; }, { tree = \"/a\"; }",
	 "{ path = \"/a/f\"; name = \"x\"; }, { path = \"/a/g\"; name = \"y\"; }, { tree = \"/a\"; }",
	 "path \"/a/g\" (line 3)"},
};

static struct config *made(const char *text)
{
	struct config *c = NULL;

	write_config(text);
	ck_assert_msg(config_load(file, &c, why, sizeof(why)) == 0, "%s", why);
	return c;
}

static struct config *with_rules(const char *rules)
{
	char text[2048];

	snprintf(text, sizeof(text), STORE "\nprotect = (\n%s\n);", rules);
	return made(text);
}

static void expect(const struct config *old, const struct config *fresh, const char *expected)
{
	bool follows;

	why[0] = '\0';
	follows = config_follows(old, fresh, why, sizeof(why));
	ck_assert_msg(follows == !expected, "%s, said \"%s\"", follows ? "taken over" : "waits", why);
	ck_assert_msg(!expected || strstr(why, expected), "\"%s\" is not in \"%s\"", expected, why);
}

FIXTURE(setup, teardown)

TEST_EACH(rules_changed, ROWS(changes))
{
	struct config *old = with_rules(changes[_i].old), *fresh = with_rules(changes[_i].fresh);

	expect(old, fresh, changes[_i].why);
	config_free(old);
	config_free(fresh);
}

/* A configuration that is taken over gives every path the name and store that it had: small random lists, all short paths. */
TEST(what_follows_keeps_all_names)
{
	static const char *const kinds[][2] = {{"path", ""}, {"tree", ""}, {"path", "*"}, {"path", "/*"}};
	static const char *const dirs[] = {"a", "b", "a/a", "a/b", "b/a", "b/a/b"};
	static const char *const names[] = {"", "name = \"/a\";", "name = \"/a/b\";", "name = \"x\";",
					    "name = \"x/a\";"};
	static const char *const paths[] = {"/a",     "/b",     "/a/a",   "/a/b",     "/b/a",     "/b/b",     "/a/a/a",
					    "/a/a/b", "/a/b/a", "/a/b/b", "/b/a/a",   "/b/a/b",   "/b/a/b/a", "/aa",
					    "/ab",    "/a/aa",  "/b/ab",  "/b/a/b/b", "/a/a/b/a", "/a/b/a/b", "/bb"};
	unsigned seed = 7, taken = 0, waits = 0;
	char rules[5][160], lists[2][1024];
	static const char *const stores[] = {"", "", "", "store = \"s\";"};

	for (int round = 0; round < suite_rounds(4000); round++) {
		size_t count = 1 + rand_r(&seed) % 3, more = rand_r(&seed) % 3;
		struct config *old = NULL, *fresh = NULL;

		for (size_t i = 0; i < count + more; i++) {
			const char *const *kind = kinds[rand_r(&seed) % 4];

			snprintf(rules[i], sizeof(rules[i]), "{ %s = \"/%s%s\"; %s %s }", kind[0],
				 dirs[rand_r(&seed) % 6], kind[1], names[rand_r(&seed) % 5], stores[rand_r(&seed) % 4]);
		}
		lists[0][0] = lists[1][0] = '\0';
		for (size_t i = 0; i < count; i++)
			sprintf(lists[0] + strlen(lists[0]), "%s%s", i ? ", " : "", rules[i]);
		/* The new ones go anywhere between, and sometimes the order changes. */
		for (size_t i = 0, left = more, turned = rand_r(&seed) % 4 == 0; i < count || left;) {
			bool add = left && (i == count || rand_r(&seed) % 2);
			const char *rule = add ? rules[count + --left] : rules[turned ? count - 1 - i : i];

			i += !add;
			sprintf(lists[1] + strlen(lists[1]), "%s%s", lists[1][0] ? ", " : "", rule);
		}
		for (int i = 0; i < 2; i++) {
			char text[1200];

			snprintf(
				text, sizeof(text),
				"store = { server = \"d\"; }; stores = { s = { server = \"s\"; }; }; protect = ( %s );",
				lists[i]);
			write_config(text);
			(void)!config_load(file, i ? &fresh : &old, why, sizeof(why)); /* twins are refused */
		}
		if (old && fresh && config_follows(old, fresh, why, sizeof(why))) {
			for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
				char before[LOCK_NAME_BYTES], now[LOCK_NAME_BYTES];

				if (config_lock_name(old, paths[i], before) < 0)
					continue;
				ck_assert_msg(config_lock_name(fresh, paths[i], now) == 0 && !strcmp(before, now) &&
						      config_rule(old, paths[i])->store ==
							      config_rule(fresh, paths[i])->store,
					      "%s: (%s) to (%s)", paths[i], lists[0], lists[1]);
			}
			taken++;
		} else if (old && fresh) {
			waits++;
		}
		config_free(old);
		config_free(fresh);
	}
	ck_assert_uint_gt(taken, suite_rounds(300));
	ck_assert_uint_gt(waits, suite_rounds(300));
}

TEST(what_is_not_finished)
{
	struct config *empty = made(""), *host = made("host = \"x\";"), *none = made("protect = ();");
	struct config *rules = with_rules("{ tree = \"/a\"; }"), *store = made(STORE);

	expect(rules, empty, "it has neither store nor protect");
	expect(rules, host, "it has neither store nor protect");
	expect(store, empty, "it has neither store nor protect");
	expect(none, empty, "it has neither store nor protect");
	expect(rules, store, "tree \"/a\" is not protected");
	expect(rules, none, "tree \"/a\" is not protected");
	expect(empty, rules, NULL);
	expect(empty, host, NULL);
	config_free(empty);
	config_free(host);
	config_free(none);
	config_free(rules);
	config_free(store);
}

TEST(settings_of_leases)
{
	struct config *plain = made(""), *warn = made("lease = { on_lost = \"warn\"; }; protect = ();");
	struct config *kill = made("lease = { on_lost = \"kill\"; linger_ms = 7; }; protect = ();");

	expect(plain, warn, "on_lost");
	expect(kill, warn, "on_lost");
	expect(warn, kill, NULL);
	expect(plain, kill, NULL);
	expect(warn, warn, NULL);
	config_free(plain);
	config_free(warn);
	config_free(kill);
}

static const struct {
	const char *text;
	bool same;
} stores[] = {
	{"host = \"h\"; store = { server = \"a\"; };", true},
	{"host = \"h\"; store = { server = \"a:6379\"; database = 0; };", true},
	{"host = \"h\"; store = { server = \"a\"; }; lease = { pin_ms = 20; };", true},
	{"host = \"h\"; store = { server = \"b\"; };", false},
	{"host = \"h\"; store = { server = \"a:1\"; };", false},
	{"host = \"h\"; store = { server = \"a\"; database = 1; };", false},
	{"host = \"h\"; store = { server = \"a\"; replicas = 1; };", false},
	{"host = \"h\"; store = { server = \"a\"; connect_ms = 100; };", false},
	{"host = \"h\"; store = { cluster = ( \"a\" ); replicas = 1; };", false},
	{"host = \"h\"; store = { sentinels = ( \"a\" ); master = \"m\"; replicas = 1; };", false},
	{"host = \"h\"; store = { server = \"redis://a\"; };", true},
	{"host = \"h\"; store = { server = \"rediss://a\"; };", false},
	{"host = \"g\"; store = { server = \"a\"; };", false},
	{"host = \"h\"; store = { server = \"a\"; }; lease = { ttl_ms = 29000; };", false},
	{"host = \"h\"; store = { server = \"a\"; }; lease = { sweep_ms = 86400001; };", false},
};

TEST_EACH(same_store, ROWS(stores))
{
	struct config *old = made(stores[0].text), *fresh = made(stores[_i].text);

	ck_assert_int_eq(config_same_store(old, fresh), stores[_i].same);
	ck_assert_int_eq(config_same_store(fresh, old), stores[_i].same);
	config_free(old);
	config_free(fresh);
}
