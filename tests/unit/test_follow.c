/* May a configuration take another's place by itself? Rules, stores and settings, old and new, and the word for each refusal. */
#include "tests/unit/config_file.h"

#define STORE             "store = { server = 'a'; };"
#define PATH(path)        "{ path = '" path "'; }"
#define TREE(tree)        "{ tree = '" tree "'; }"
#define NAMED(what, name) "{ " what "; name = '" name "'; }"
#define FILE_X            NAMED("path = '/a/f'", "x")
#define TREE_X            NAMED("tree = '/a'", "x")

static const struct change {
	const char *old, *fresh; /* what stands between protect = ( and ); */
	const char *why;         /* a part of the reason; NULL: it is taken over */
} changes[] = {
	/* The same rules, and more after them. */
	{PATH("/a/f"), PATH("/a/f"), NULL},
	{"", TREE("/a"), NULL},
	{TREE("/a"), TREE("/a") ", " NAMED("tree = '/'", "all"), NULL},
	{PATH("/a/f"), NAMED("path = '/a/f'", "/a/f"), NULL}, /* the reason without such a text */
	/* Gone, or under another name. */
	{PATH("/a/f"), "", "path \"/a/f\" is not protected as \"/a/f\" any more"},
	{PATH("/a/f") ", " TREE("/b"), PATH("/a/f"), "tree \"/b\" is not protected"},
	{PATH("/a/f"), FILE_X, "path \"/a/f\" is not protected as \"/a/f\""},
	{PATH("/a/f"), TREE("/a"), "is not protected as"}, /* it is, but that is not looked for */
	{PATH("/a/?"), PATH("/a/*"), "is not protected as"},
	/* A rule before the old one: it matches no file of that, or gives the same name. */
	{PATH("/a/f"), NAMED("path = '/a/g'", "x") ", " PATH("/a/f"), NULL},
	{PATH("/a/f"), NAMED("path = '/a/*'", "x") ", " PATH("/a/f"), "path \"/a/*\" (line 3) now stands before"},
	{PATH("/a/f"), PATH("/a/*") ", " PATH("/a/f"), NULL},
	{PATH("/a/f"), NAMED("path = '/a/g*'", "x") ", " PATH("/a/f"), NULL},
	{PATH("/a/f"), TREE_X ", " PATH("/a/f"), "tree \"/a\" (line 3)"},
	{NAMED("path = '/a/f'", "x/f"), TREE_X ", " NAMED("path = '/a/f'", "x/f"), NULL},
	{TREE("/a"), NAMED("path = '/a/b/f'", "x") ", " TREE("/a"), "now stands before tree \"/a\""},
	{TREE("/a"), PATH("/a/b/f") ", " TREE("/a"), NULL},
	{TREE("/a"), NAMED("path = '/ab'", "x") ", " TREE("/a"), NULL},
	{TREE("/a"), NAMED("tree = '/ab'", "x") ", " TREE("/a"), NULL},
	{TREE("/a"), NAMED("tree = '/a/b'", "x") ", " TREE("/a"), "tree \"/a/b\" (line 3) now stands"},
	{TREE_X, NAMED("tree = '/a/b'", "x/b") ", " TREE_X, NULL},
	{TREE_X, NAMED("tree = '/a/b'", "x/c") ", " TREE_X, "may name"},
	{TREE_X, NAMED("tree = '/a/b'", "x") ", " TREE_X, "may name"},
	{TREE("/a/b"), TREE_X ", " TREE("/a/b"), "may name"},
	{TREE("/a/b"), NAMED("tree = '/'", "x") ", " TREE("/a/b"), "may name"},
	{TREE("/a/b"), TREE("/") ", " TREE("/a/b"), NULL},
	{NAMED("tree = '/a/b'", "x/a/b"), NAMED("tree = '/'", "x") ", " NAMED("tree = '/a/b'", "x/a/b"), NULL},
	{TREE("/a"), NAMED("path = '/a/*'", "x") ", " TREE("/a"), "may name"},
	{PATH("/a/*/f"), NAMED("path = '/a/b*/f'", "x") ", " PATH("/a/*/f"), "may name"},
	{PATH("/a/*.x"), NAMED("path = '/a/*.y'", "x") ", " PATH("/a/*.x"), "may name"}, /* not found out */
	{PATH("/a/*.x"), NAMED("path = '/b/*.x'", "x") ", " PATH("/a/*.x"), NULL},
	/* The fixed part of a glob is what stands before its first name with a wildcard. */
	{PATH("/a/\\\\[b/f*"), NAMED("tree = '/a/c'", "x") ", " PATH("/a/\\\\[b/f*"), "may name"},
	{PATH("/a/\\\\[b/f*"), NAMED("tree = '/b'", "x") ", " PATH("/a/\\\\[b/f*"), NULL},
	/* Moved. */
	{PATH("/a/f") ", " TREE("/b"), TREE("/b") ", " PATH("/a/f"), "was moved"},
	{FILE_X ", " TREE("/a"), FILE_X ", " PATH("/b") ", " TREE("/a"), NULL},
	{FILE_X ", " TREE("/a"), FILE_X ", " NAMED("path = '/a/g'", "y") ", " TREE("/a"), "path \"/a/g\" (line 3)"},
	/* A rule before it does less for its file, or ends its holders. */
	{"{ path = '/a/f'; redis_key = 'k'; }", TREE("/a") ", { path = '/a/f'; redis_key = 'k'; }", "do less"},
	{PATH("/a/f"), "{ tree = '/a'; kill_after_ms = 5000; }, " PATH("/a/f"), "do less"},
	{PATH("/a/f"), "{ tree = '/a'; on_lost = 'warn'; }, " PATH("/a/f"), "do less"},
	{PATH("/a/f"), "{ tree = '/b'; on_lost = 'warn'; }, " PATH("/a/f"), NULL},
};

/* Of one file, in its rule. */
static const struct change settings[] = {
	/* Less is done for a lost lease, or against a holder that cannot be stopped. */
	{"", "on_lost = 'warn';", "on_lost = \"warn\""},
	{"", "on_lost = 'kill';", NULL},
	{"on_lost = 'warn';", "", NULL},
	{"unstoppable = 'refuse';", "", "unstoppable = \"warn\""},
	{"", "unstoppable = 'refuse';", NULL},
	{"at_least_ms = 5;", "", "no at_least_ms"},
	{"at_least_ms = 5;", "at_least_ms = 4;", NULL},
	{"", "at_least_ms = 5;", NULL},
	{"redis_key = 'k';", "", "another redis_key or none"},
	{"redis_key = 'k';", "redis_key = 'l';", "another redis_key"},
	{"redis_key = 'k';", "redis_key = 'k'; redis_key_format = 'redisson';", "another redis_key"},
	{"", "redis_key = 'k';", NULL},
	{"on_refused = 'busy';", "", "no on_refused"},
	{"on_refused = 'busy';", "on_refused = 'wait';", "no on_refused"},
	{"on_refused = 'wait';", "", NULL},
	{"", "on_refused = 'busy';", NULL},
	/* Holders would be ended. */
	{"", "kill_after_ms = 5000;", "new or shorter"},
	{"kill_after_ms = 5000;", "kill_after_ms = 4000;", "new or shorter"},
	{"kill_after_ms = 5000;", "kill_after_ms = 6000;", NULL},
	{"kill_after_ms = 5000;", "", NULL},
	{"", "warn_after_ms = 5;", NULL},
};

/* One name in another store is another lock. */
static const struct change of_stores[] = {
	{"{ path = '/a'; store = 'pay_1'; }", "{ path = '/a'; store = 'pay_1'; }, { tree = '/'; store = 'Hot-2'; }",
	 NULL},
	{"{ path = '/a'; store = 'pay_1'; }", "{ tree = '/'; store = 'pay_1'; }, { path = '/a'; store = 'pay_1'; }",
	 NULL},
	{"{ path = '/a'; store = 'pay_1'; }", PATH("/a"), "\"/a\" is not protected as \"/a\" in its store any more"},
	{"{ path = '/a'; store = 'pay_1'; }", "{ path = '/a'; store = 'Hot-2'; }", "is not protected as"},
	{"{ path = '/a'; store = 'pay_1'; }", TREE("/") ", { path = '/a'; store = 'pay_1'; }",
	 "may name its files anew"},
};

static struct config *made(const char *before, const char *rules, const char *after)
{
	struct config *c = NULL;
	char text[2048];
	snprintf(text, sizeof(text), "%s%s%s", before, rules, after);
	write_config(text);
	ck_assert_msg(config_load(file, &c, why, sizeof(why)) == 0, "%s", why);
	return c;
}

/* Both are freed. */
static void expect(struct config *old, struct config *fresh, const char *expected)
{
	bool follows;
	why[0] = '\0';
	follows = config_follows(old, fresh, why, sizeof(why));
	ck_assert_msg(follows == !expected, "%s, said \"%s\"", follows ? "taken over" : "waits", why);
	ck_assert_msg(!expected || strstr(why, expected), "\"%s\" is not in \"%s\"", expected, why);
	config_free(old);
	config_free(fresh);
}

static void expect_change(const char *before, const struct change *change, const char *after)
{
	expect(made(before, change->old, after), made(before, change->fresh, after), change->why);
}

FIXTURE(setup, teardown)

TEST_EACH(rules_changed, ROWS(changes)) { expect_change(STORE "\nprotect = (\n", &changes[_i], "\n);"); }
TEST_EACH(settings_changed, ROWS(settings)) { expect_change("protect = ( { path = '/a/f'; ", &settings[_i], "} );"); }
TEST_EACH(stores_changed, ROWS(of_stores)) { expect_change(THREE_STORES "protect = ( ", &of_stores[_i], " );"); }

/* The rules have the same index of their store. */
TEST(stores_moved)
{
	static const char rule[] = "protect = ( { path = '/a'; store = 'pay_1'; } );";
	expect(made(THREE_STORES, rule, ""),
	       made("store = { server = 'd'; }; stores = { a = { server = 'x'; }; pay_1 = { server = 'y'; }; };", rule,
		    ""),
	       "stores.pay_1 is not in it, or not where it was");
	expect(made(THREE_STORES, rule, ""),
	       made("store = { server = 'd'; }; stores = { pay_1 = { server = 'y'; }; };", rule, ""),
	       "stores.Hot-2 is not in it");
}

/* A configuration that is taken over gives every path the name and store that it had: small random lists, all short paths. */
TEST(what_follows_keeps_all_names)
{
	static const char *const kinds[][2] = {{"path", ""}, {"tree", ""}, {"path", "*"}, {"path", "/*"}};
	static const char *const dirs[] = {"a", "b", "a/a", "a/b", "b/a", "b/a/b"};
	static const char *const names[] = {"", "name = '/a';", "name = '/a/b';", "name = 'x';", "name = 'x/a';"};
	static const char *const paths[] = {"/a",     "/b",     "/a/a",   "/a/b",     "/b/a",     "/b/b",     "/a/a/a",
					    "/a/a/b", "/a/b/a", "/a/b/b", "/b/a/a",   "/b/a/b",   "/b/a/b/a", "/aa",
					    "/ab",    "/a/aa",  "/b/ab",  "/b/a/b/b", "/a/a/b/a", "/a/b/a/b", "/bb"};
	unsigned seed = 7, taken = 0, waits = 0;
	char rules[5][160], lists[2][1024];
	static const char *const stores[] = {"", "", "", "store = 's';"};

	for (int round = 0; round < suite_rounds(4000); round++) {
		size_t count = 1 + rand_r(&seed) % 3, more = rand_r(&seed) % 3;
		struct config *old = NULL, *fresh = NULL;

		for (size_t i = 0; i < count + more; i++) {
			const char *const *kind = kinds[rand_r(&seed) % 4];

			snprintf(rules[i], sizeof(rules[i]), "{ %s = '/%s%s'; %s %s }", kind[0],
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
			char text[sizeof(lists) + 128];

			snprintf(text, sizeof(text),
				 "store = { server = 'd'; }; stores = { s = { server = 's'; }; }; protect = ( %s );",
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

static const struct change wholes[] = {
	{"protect = ( { tree = '/a'; } );", "", "it has neither store nor protect"},
	{"protect = ( { tree = '/a'; } );", "host = 'x';", "it has neither store nor protect"},
	{STORE, "", "it has neither store nor protect"},
	{"protect = ();", "", "it has neither store nor protect"},
	{"protect = ( { tree = '/a'; } );", STORE, "tree \"/a\" is not protected"},
	{"protect = ( { tree = '/a'; } );", "protect = ();", "tree \"/a\" is not protected"},
	{"", "protect = ( { tree = '/a'; } );", NULL},
	{"", "host = 'x';", NULL},
	/* Settings of leases. */
	{"", "lease = { on_lost = 'warn'; }; protect = ();", "on_lost"},
	{"lease = { on_lost = 'kill'; };", "lease = { on_lost = 'warn'; }; protect = ();", "on_lost"},
	{"lease = { on_lost = 'warn'; };", "lease = { on_lost = 'kill'; linger_ms = 7; }; protect = ();", NULL},
	{"", "lease = { on_lost = 'kill'; }; protect = ();", NULL},
	{"lease = { on_lost = 'warn'; };", "lease = { on_lost = 'warn'; }; protect = ();", NULL},
};

TEST_EACH(all_of_it_changed, ROWS(wholes)) { expect_change("", &wholes[_i], ""); }

static const struct {
	const char *old, *fresh;
	bool same;
} servers[] = {
	{STORE, STORE, true},
	{STORE, "store = { server = 'a:6379'; database = 0; };", true},
	{STORE, STORE "lease = { pin_ms = 20; };", true},
	{STORE, "store = { server = 'redis://a'; };", true},
	{STORE, "store = { server = 'b'; };", false},
	{STORE, "store = { server = 'a:1'; };", false},
	{STORE, "store = { server = 'a'; database = 1; };", false},
	{STORE, "store = { server = 'a'; replicas = 1; };", false},
	{STORE, "store = { server = 'a'; connect_ms = 100; };", false},
	{STORE, "store = { cluster = ( 'a' ); replicas = 1; };", false},
	{STORE, "store = { sentinels = ( 'a' ); master = 'm'; replicas = 1; };", false},
	{STORE, "store = { server = 'rediss://a'; };", false},
	{STORE, "host = 'g';" STORE, false},
	{STORE, STORE "lease = { ttl_ms = 29000; };", false},
	{STORE, STORE "lease = { sweep_ms = 86400001; };", false},
	/* Several stores. */
	{THREE_STORES, THREE_STORES "protect = ( { path = '/a'; store = 'pay_1'; } );", true},
	{THREE_STORES, "store = { server = 'd'; };", false},
	{STORE "stores = { b = { server = 'b'; }; };", STORE "stores = { c = { server = 'b'; }; };", false},
	{STORE "stores = { b = { server = 'b'; }; };", STORE "stores = { b = { server = 'b:7'; }; };", false},
	{STORE "stores = { b = { postgresql = 'dbname=d'; }; };",
	 STORE "stores = { b = { postgresql = 'dbname=e'; }; };", false},
};

TEST_EACH(same_store, ROWS(servers))
{
	struct config *old = made(servers[_i].old, "", ""), *fresh = made(servers[_i].fresh, "", "");
	ck_assert_int_eq(config_same_store(old, fresh), servers[_i].same);
	ck_assert_int_eq(config_same_store(fresh, old), servers[_i].same);
	config_free(old);
	config_free(fresh);
}
