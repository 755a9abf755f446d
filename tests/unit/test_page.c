/* The shared page: which paths its rules match, what it answers, with hostile contents, and with a writer at work. */
#include <pthread.h>
#include <fcntl.h>
#include <sched.h>

#include "procfs/procfs.h"
#include "tests/unit/suite.h"
#include "wire/page.h"

/* --- rules against paths --- */

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

/* --- a page with three rules --- */

static struct page *page;
static const struct wire_config_id id = {.dev = 1, .ino = 2, .size = 3, .mtime_ns = 4, .ctime_ns = 5};
static const struct page_config mine = {.id = {.dev = 1, .ino = 2, .size = 3, .mtime_ns = 4, .ctime_ns = 5},
					.path_hash = 6};

static void put(enum page_rule_kind kind, const char *pattern)
{
	size_t used = page->rules_bytes;
	ck_assert_int_eq(page_rule_append(page->rules, PAGE_RULES_BYTES, &used, kind, WIRE_ON_REFUSED_REFUSE, pattern),
			 0);
	page->rules_bytes = (uint32_t)used;
}

static void setup(void)
{
	page = calloc(1, sizeof(*page));
	ck_assert_ptr_nonnull(page);
	page->magic = PAGE_MAGIC;
	page->version = PAGE_VERSION;
	page->state = PAGE_RULES;
	page->config = id;
	put(PAGE_RULE_PATH, "/run/lock/a");
	put(PAGE_RULE_GLOB, "/srv/*.lock");
	put(PAGE_RULE_TREE, "/mnt/share");
}

static void teardown(void) { free(page); }
FIXTURE(setup, teardown)

static enum page_answer says(const struct page_config *config, const char *path)
{
	return page_ask(page, config, path, NULL);
}

static const struct {
	const char *path;
	enum page_answer answer;
	enum page_rule_kind kind; /* for messages: which rule it is */
	const char *pattern;
} questions[] = {
	{"/run/lock/a", PAGE_SAYS_YES, PAGE_RULE_PATH, "/run/lock/a"},
	{"/srv/x.lock", PAGE_SAYS_YES, PAGE_RULE_GLOB, "/srv/*.lock"},
	{"/mnt/share/x", PAGE_SAYS_YES, PAGE_RULE_TREE, "/mnt/share"},
	{"/run/lock/b", PAGE_SAYS_NO, 0, NULL},
	{"", PAGE_SAYS_NO, 0, NULL},
};

TEST_EACH(page_answers, ROWS(questions))
{
	char message[PAGE_MESSAGE_BYTES];
	struct page_found found;

	page->config_hash = mine.path_hash;
	ck_assert_int_eq(says(&mine, questions[_i].path), questions[_i].answer);
	ck_assert_int_eq(page_ask(page, &mine, questions[_i].path, message), questions[_i].answer);
	ck_assert_int_eq(page_find_rule(page, &mine, questions[_i].path, &found), questions[_i].pattern != NULL);
	if (questions[_i].pattern) {
		ck_assert_int_eq(found.kind, questions[_i].kind);
		ck_assert_str_eq(found.pattern, questions[_i].pattern);
	}
	page->rules_bytes = 0;
	ck_assert_int_eq(says(&mine, questions[_i].path), PAGE_SAYS_NO);
}

static enum wire_on_refused on_refused(const struct page_config *config, const char *path)
{
	struct page_found found;
	return page_find_rule(page, config, path, &found) ? found.on_refused : WIRE_ON_REFUSED_REFUSE;
}

/* The writer goes on when the reader sleeps. */
static void *end_writing(void *arg)
{
	char name[64];
	struct procfs_stat stat = {.state = 'R'};

	snprintf(name, sizeof(name), "/proc/self/task/%d/stat", *(pid_t *)arg);
	while (procfs_stat_read(AT_FDCWD, name, &stat) && stat.state != 'S')
		sched_yield();
	__atomic_store_n(&page->seq, page->seq + 1, __ATOMIC_RELEASE);
	return NULL;
}

TEST(a_refused_call_waits_for_the_writer)
{
	struct page_rule *first = (struct page_rule *)page->rules;
	pid_t me = gettid();
	pthread_t writer;

	page->config_hash = mine.path_hash;
	first->on_refused = WIRE_ON_REFUSED_WAIT;
	page->seq |= 1;
	ck_assert_int_eq(says(&mine, "/run/lock/a"), PAGE_SAYS_NOTHING);
	ck_assert_int_eq(pthread_create(&writer, NULL, end_writing, &me), 0);
	ck_assert_int_eq(on_refused(&mine, "/run/lock/a"), WIRE_ON_REFUSED_WAIT);
	pthread_join(writer, NULL);
}

TEST(what_a_refused_call_gets)
{
	struct page_rule *first = (struct page_rule *)page->rules;
	struct page_config other = mine;

	other.path_hash++;
	page->config_hash = mine.path_hash;
	ck_assert_int_eq(on_refused(&mine, "/run/lock/a"), WIRE_ON_REFUSED_REFUSE);
	first->on_refused = WIRE_ON_REFUSED_WAIT;
	ck_assert_int_eq(on_refused(&mine, "/run/lock/a"), WIRE_ON_REFUSED_WAIT);
	ck_assert_int_eq(on_refused(&mine, "/mnt/share/x"), WIRE_ON_REFUSED_REFUSE);
	ck_assert_int_eq(on_refused(&mine, "/run/lock/b"), WIRE_ON_REFUSED_REFUSE);
	first->on_refused = WIRE_ON_REFUSED_VALUES;
	ck_assert_int_eq(on_refused(&mine, "/run/lock/a"), WIRE_ON_REFUSED_REFUSE);
	first->on_refused = WIRE_ON_REFUSED_BUSY;
	ck_assert_int_eq(on_refused(&mine, "/run/lock/a"), WIRE_ON_REFUSED_BUSY);
	/* Whatever has become of the file since, but not for another file. */
	page->config.ino++;
	ck_assert_int_eq(says(&mine, "/run/lock/a"), PAGE_SAYS_NOTHING);
	ck_assert_int_eq(on_refused(&mine, "/run/lock/a"), WIRE_ON_REFUSED_BUSY);
	page->state = PAGE_INVALID;
	ck_assert_int_eq(on_refused(&mine, "/run/lock/a"), WIRE_ON_REFUSED_BUSY);
	ck_assert_int_eq(on_refused(&other, "/run/lock/a"), WIRE_ON_REFUSED_REFUSE);
	page->version++;
	ck_assert_int_eq(on_refused(&mine, "/run/lock/a"), WIRE_ON_REFUSED_REFUSE);
}

/* Every file that a rule matches is below each directory of its path, and no other directory is claimed without
 * need. */
TEST(below_a_directory)
{
	static const struct {
		enum page_rule_kind kind;
		const char *pattern;
		bool claimed; /* /srv/jail */
	} cases[] = {
		{PAGE_RULE_PATH, "/srv/jail/x", true},
		{PAGE_RULE_PATH, "/srv/jail", true},
		{PAGE_RULE_PATH, "/srv/jail2/x", false},
		{PAGE_RULE_PATH, "/srv/jai", false},
		{PAGE_RULE_PATH, "/srv", false},
		{PAGE_RULE_GLOB, "/srv/jail/*", true},
		{PAGE_RULE_GLOB, "/srv/*/x", true},
		{PAGE_RULE_GLOB, "/srv/[j]ail/x", true},
		{PAGE_RULE_GLOB, "/srv/\\jail/x", true},
		{PAGE_RULE_GLOB, "/srw/*", false},
		{PAGE_RULE_GLOB, "/srv/jail-*", false},
		{PAGE_RULE_PATH, "/srv/*/x", false},
		{PAGE_RULE_TREE, "/srv", true},
		{PAGE_RULE_TREE, "/srv/", true},
		{PAGE_RULE_TREE, "/", true},
		{PAGE_RULE_TREE, "/srv/jail/a", true},
		{PAGE_RULE_TREE, "/srv/ja", false},
		{PAGE_RULE_TREE, "/srv/jail2", false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		page->rules_bytes = 0;
		put(cases[i].kind, cases[i].pattern);
		ck_assert_msg(page_ask_below(page, &mine, "/srv/jail") ==
				      (cases[i].claimed ? PAGE_SAYS_YES : PAGE_SAYS_NO),
			      "%s", cases[i].pattern);
		if (i == 0) /* the first one: other directories of its path */
			ck_assert(page_ask_below(page, &mine, "/srv") == PAGE_SAYS_YES &&
				  page_ask_below(page, &mine, "") == PAGE_SAYS_YES &&
				  page_ask_below(page, &mine, "/") == PAGE_SAYS_YES);
	}
}

TEST(page_says_nothing)
{
	static const size_t words[] = {
		offsetof(struct wire_config_id, dev),      offsetof(struct wire_config_id, ino),
		offsetof(struct wire_config_id, size),     offsetof(struct wire_config_id, mtime_ns),
		offsetof(struct wire_config_id, ctime_ns),
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		for (int shift = 0; shift < 64; shift += 63) {
			struct page_config of_other = mine;

			*(uint64_t *)((char *)&of_other.id + words[i]) ^= 1ull << shift;
			ck_assert_int_eq(says(&of_other, "/run/lock/a"), PAGE_SAYS_NOTHING);
		}
	}
	for (int i = 0; i < 5; i++) {
		const struct page good = *page;

		page->seq = i == 0 ? 7 : 8;
		page->state = i == 1 ? PAGE_EMPTY : i == 2 ? 99 : PAGE_RULES;
		page->version += i == 3;
		page->magic ^= i == 4 ? 1ull << 40 : 0;
		ck_assert_int_eq(says(&mine, "/run/lock/a"), PAGE_SAYS_NOTHING);
		*page = good;
	}
}

/* The rules of a file are in force whatever its state, for programs that have it, and for no others. */
TEST(page_speaks_of_its_file)
{
	struct page_config of_other = mine;

	page->config_hash = 6;
	of_other.id.ino++;
	ck_assert_int_eq(says(&of_other, "/run/lock/a"), PAGE_SAYS_NOTHING);
	of_other.young = true;
	ck_assert_int_eq(says(&of_other, "/run/lock/a"), PAGE_SAYS_YES);
	ck_assert_int_eq(says(&of_other, "/run/lock/b"), PAGE_SAYS_NO);
	of_other.path_hash++;
	ck_assert_int_eq(says(&of_other, "/run/lock/a"), PAGE_SAYS_NOTHING);
	of_other.path_hash = page->config_hash = 0; /* means that it is not known */
	ck_assert_int_eq(says(&of_other, "/run/lock/a"), PAGE_SAYS_NOTHING);
	page->config_hash = 6;
	of_other.young = false;
	page->seen = of_other.id; /* by whatever path */
	ck_assert_int_eq(says(&of_other, "/run/lock/a"), PAGE_SAYS_YES);
	/* Missing files: that does not make two files the same. */
	of_other.id = page->seen = page->config = (struct wire_config_id){0};
	ck_assert_int_eq(says(&of_other, "/run/lock/a"), PAGE_SAYS_NOTHING);
	of_other.path_hash = 6;
	ck_assert_int_eq(says(&of_other, "/run/lock/a"), PAGE_SAYS_YES);
	/* An invalid file is refused in exactly that state. */
	page->state = PAGE_INVALID;
	page->config = page->seen = id;
	ck_assert_int_eq(says(&mine, "/x"), PAGE_SAYS_REFUSE);
	ck_assert_int_eq(says(&of_other, "/x"), PAGE_SAYS_NOTHING);
	of_other.id = page->seen = (struct wire_config_id){.ino = 77};
	of_other.young = true;
	ck_assert_int_eq(says(&of_other, "/x"), PAGE_SAYS_NOTHING);
}

TEST(page_refuses)
{
	char message[PAGE_MESSAGE_BYTES];
	struct page_config of_other = mine;

	page->state = PAGE_INVALID;
	strcpy(page->message, "/etc/dflock.conf:3: \x1b[31mwrong\n");
	ck_assert_int_eq(page_ask(page, &mine, "/x", message), PAGE_SAYS_REFUSE);
	ck_assert_str_eq(message, "/etc/dflock.conf:3: ?[31mwrong?");
	ck_assert_int_eq(says(&mine, "/x"), PAGE_SAYS_REFUSE);
	memset(page->message, 'x', sizeof(page->message));
	ck_assert_int_eq(page_ask(page, &mine, "/x", message), PAGE_SAYS_REFUSE);
	ck_assert_uint_eq(strlen(message), PAGE_MESSAGE_BYTES - 1);
	of_other.id.size++;
	ck_assert_int_eq(page_ask(page, &of_other, "/x", message), PAGE_SAYS_NOTHING);
}

/* --- hostile contents --- */

TEST(page_distrusts_its_rules)
{
	struct page_rule *first = (struct page_rule *)page->rules;
	struct page_rule good = *first;
	static const uint32_t bad_bytes[] = {0, 1, 7, 8, 12, 17, PAGE_RULES_BYTES, UINT32_MAX, UINT32_MAX - 7};
	uint32_t end = page->rules_bytes;

	for (size_t i = 0; i < sizeof(bad_bytes) / sizeof(bad_bytes[0]); i++) {
		first->bytes = bad_bytes[i];
		ck_assert_int_eq(says(&mine, "/mnt/share/x"), PAGE_SAYS_NOTHING);
	}
	first->bytes = good.bytes;
	first->kind = PAGE_RULE_KINDS;
	ck_assert_int_eq(says(&mine, "/mnt/share/x"), PAGE_SAYS_NOTHING);
	first->kind = good.kind;
	for (int i = 0; i < 3; i++) {
		page->rules_bytes = i == 0 ? end - 8 : i == 1 ? end + 8 : PAGE_RULES_BYTES + 8;
		ck_assert_int_eq(says(&mine, "/x"), PAGE_SAYS_NOTHING);
	}
	page->rules_bytes = end;
	ck_assert_int_eq(says(&mine, "/x"), PAGE_SAYS_NO);
}

/* splitmix64: the same numbers on every machine. */
static uint64_t seed;
static uint64_t random_number(void)
{
	uint64_t z = (seed += 0x9e3779b97f4a7c15ull);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* Bytes of patterns, so that the matcher gets somewhere. */
static void scribble(unsigned char *at, size_t n)
{
	static const char letters[] = "/ab*?[]!^-\\.";
	for (size_t i = 0; i < n; i++) {
		uint64_t r = random_number();
		at[i] = r % 4 ? (unsigned char)letters[(r >> 8) % (sizeof(letters) - 1)] : (unsigned char)(r >> 16);
	}
}

/* Whatever is in the page, the answer is one of the four. A sanitizer or a guard page finds reads outside: the page
 * ends where its allocation ends. */
TEST(random_pages)
{
	seed = 1;
	for (int round = 0; round < 20000; round++) {
		char path[64] = "/", message[PAGE_MESSAGE_BYTES];
		enum page_answer answer;
		size_t end = 16 + random_number() % 512;

		page->rules_bytes = random_number() % 8 ? (uint32_t)(end & ~7u) : (uint32_t)random_number();
		page->state = random_number() % 16 ? PAGE_RULES : (uint32_t)(random_number() % 4);
		scribble(page->rules, end);
		/* Mostly records that are whole, one after the other. */
		for (size_t at = 0; at + 16 <= end;) {
			struct page_rule *rule = (struct page_rule *)(page->rules + at);

			rule->bytes = random_number() % 16 ? 16 + 8 * (uint32_t)(random_number() % 8)
							   : (uint32_t)random_number();
			rule->kind = random_number() % 16 ? (uint32_t)(random_number() % 3) : (uint32_t)random_number();
			at += 16 + rule->bytes % 64 / 8 * 8;
		}
		scribble((unsigned char *)path + 1, random_number() % (sizeof(path) - 2));
		if (random_number() % 8 == 0)
			scribble((unsigned char *)page->message, sizeof(page->message));
		answer = page_ask(page, &mine, path, message);
		ck_assert_int_le(answer, PAGE_SAYS_NOTHING);
		if (answer == PAGE_SAYS_REFUSE)
			ck_assert_uint_lt(strnlen(message, sizeof(message)), sizeof(message));
	}
}

/* Records at the very end of the rules, and a page that ends with its allocation. */
TEST(records_at_the_end)
{
	size_t at = PAGE_RULES_BYTES - 24;
	struct page_rule *first = (struct page_rule *)page->rules, *last = (struct page_rule *)(page->rules + at);

	page->rules_bytes = PAGE_RULES_BYTES;
	memset(page->rules, '*', PAGE_RULES_BYTES);
	*first = (struct page_rule){.bytes = (uint32_t)at, .kind = PAGE_RULE_PATH};
	for (uint32_t kind = 0; kind < PAGE_RULE_KINDS; kind++) {
		*last = (struct page_rule){.bytes = 24, .kind = kind};
		/* No NUL in it: the pattern ends with the record. */
		memcpy(last->pattern, "/a/b/c/d/e/f/g/h", 16);
		ck_assert_int_eq(says(&mine, "/a/b/c/d/e/f/g/h/i"),
				 kind == PAGE_RULE_TREE ? PAGE_SAYS_YES : PAGE_SAYS_NO);
		ck_assert_int_eq(says(&mine, "/a/b/c/d/e/f/g/h"),
				 kind == PAGE_RULE_TREE ? PAGE_SAYS_NO : PAGE_SAYS_YES);
		memcpy(last->pattern, "/a/b/c/d/e/f/g[\\", 16);
		ck_assert_int_eq(says(&mine, "/a/b/c/d/e/f/g[x"), PAGE_SAYS_NO);
	}
}

static bool enough;

/* Two configurations by turns; under the one /yes is protected, under the other /other is. */
static void *write_pages(void *arg)
{
	for (unsigned i = 0; !__atomic_load_n(&enough, __ATOMIC_ACQUIRE); i++) {
		size_t used = 0;
		uint32_t seq = page->seq;

		__atomic_store_n(&page->seq, seq + 1, __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		page->config = id;
		page->config.size += i % 2;
		for (int n = 0; n < 20; n++)
			page_rule_append(page->rules, PAGE_RULES_BYTES, &used, PAGE_RULE_GLOB, WIRE_ON_REFUSED_REFUSE,
					 "/a*b*c*d*e");
		page_rule_append(page->rules, PAGE_RULES_BYTES, &used, PAGE_RULE_PATH, WIRE_ON_REFUSED_REFUSE,
				 i % 2 ? "/other" : "/yes");
		page->rules_bytes = (uint32_t)used;
		__atomic_store_n(&page->seq, seq + 2, __ATOMIC_RELEASE);
		/* One processor for both (valgrind): let the reader see a page at rest, too. */
		sched_yield();
	}
	return NULL;
}

TEST(torn_reads_do_not_count)
{
	pthread_t writer;

	page->rules_bytes = 0;
	put(PAGE_RULE_PATH, "/yes");
	enough = false;
	ck_assert_int_eq(pthread_create(&writer, NULL, write_pages, NULL), 0);
	/* Both configurations were seen often; the test case's time limit is the deadline. */
	for (int answers = 0, others = 0; answers < 20000 || others < 20000;) {
		enum page_answer yes = says(&mine, "/yes"), no = says(&mine, "/other");

		ck_assert_msg(yes == PAGE_SAYS_YES || yes == PAGE_SAYS_NOTHING, "a torn read: %d", yes);
		ck_assert_msg(no == PAGE_SAYS_NO || no == PAGE_SAYS_NOTHING, "a torn read: %d", no);
		answers += yes == PAGE_SAYS_YES;
		others += no == PAGE_SAYS_NOTHING;
	}
	__atomic_store_n(&enough, true, __ATOMIC_RELEASE);
	pthread_join(writer, NULL);
}
