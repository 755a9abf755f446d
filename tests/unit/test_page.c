/* Rules against paths, and the shared page: answers, hostile contents, a writer at work. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "wire/page.h"

static const struct match {
	enum page_rule_kind kind;
	const char *pattern, *path;
	bool expected;
} matches[] = {
	{PAGE_RULE_PATH, "/a/b", "/a/b", true},
	{PAGE_RULE_PATH, "/a/b", "/a/bc", false},
	{PAGE_RULE_PATH, "/a/b", "/a/", false},
	{PAGE_RULE_PATH, "/a/b", "/a/b/c", false},
	{PAGE_RULE_PATH, "/a/*", "/a/b", false},
	{PAGE_RULE_PATH, "/a/*", "/a/*", true},

	{PAGE_RULE_TREE, "/a", "/a/b", true},
	{PAGE_RULE_TREE, "/a", "/a/b/c/.d", true},
	{PAGE_RULE_TREE, "/a", "/a/.hidden", true},
	{PAGE_RULE_TREE, "/a", "/a", false},
	{PAGE_RULE_TREE, "/a", "/a/", false},
	{PAGE_RULE_TREE, "/a", "/ab", false},
	{PAGE_RULE_TREE, "/a", "/ab/c", false},
	{PAGE_RULE_TREE, "/a*", "/ab/c", false},
	{PAGE_RULE_TREE, "/", "/a", true},
	{PAGE_RULE_TREE, "/", "/a/b", true},
	{PAGE_RULE_TREE, "/", "/", false},
	{PAGE_RULE_TREE, "", "/a", false},

	{PAGE_RULE_GLOB, "/a/b", "/a/b", true},
	{PAGE_RULE_GLOB, "/a/b", "/a/bc", false},
	{PAGE_RULE_GLOB, "/a/bc", "/a/b", false},
	{PAGE_RULE_GLOB, "/a/*", "/a/b", true},
	{PAGE_RULE_GLOB, "/a/*", "/a/", true},
	{PAGE_RULE_GLOB, "/a/*", "/a", false},
	{PAGE_RULE_GLOB, "/a/*", "/a/b/c", false},
	{PAGE_RULE_GLOB, "/a/*/c", "/a/b/c", true},
	{PAGE_RULE_GLOB, "/a/*/c", "/a/b/b/c", false},
	{PAGE_RULE_GLOB, "/*/*/c", "/a/b/c", true},
	{PAGE_RULE_GLOB, "/a*/c", "/a/c", true},
	{PAGE_RULE_GLOB, "/*c/d", "/bcbc/d", true},
	{PAGE_RULE_GLOB, "/*c/d", "/bcb/d", false},
	{PAGE_RULE_GLOB, "/*.lock", "/a.lock", true},
	{PAGE_RULE_GLOB, "/*.lock", "/a.lock.lock", true},
	{PAGE_RULE_GLOB, "/*.lock", "/a.locks", false},
	{PAGE_RULE_GLOB, "/*.lock*", "/a.locks", true},
	{PAGE_RULE_GLOB, "/**b", "/aab", true},
	{PAGE_RULE_GLOB, "/a*b*c", "/a1b2b3c", true},
	{PAGE_RULE_GLOB, "/a*b*c", "/a1b2b3", false},
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
	{PAGE_RULE_GLOB, "/[abc]", "/d", false},
	{PAGE_RULE_GLOB, "/[a-c]x", "/bx", true},
	{PAGE_RULE_GLOB, "/[a-c]x", "/dx", false},
	{PAGE_RULE_GLOB, "/[!a-c]x", "/dx", true},
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
	{PAGE_RULE_GLOB, "/[0-9][0-9]*", "/17x", true},
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
	{PAGE_RULE_GLOB, "/\\*", "/a", false},
	{PAGE_RULE_GLOB, "/\\[a]", "/[a]", true},
	{PAGE_RULE_GLOB, "/\\\\", "/\\", true},
	{PAGE_RULE_GLOB, "/a\\", "/a\\", true},
	{PAGE_RULE_GLOB, "", "", true},
	{PAGE_RULE_GLOB, "*", "", true},
};

START_TEST(rules_match)
{
	const struct match *m = &matches[_i];

	ck_assert_msg(page_rule_matches(m->kind, m->pattern, m->path) == m->expected, "%d: %s against %s: expected %d",
		      m->kind, m->pattern, m->path, m->expected);
}
END_TEST

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A matcher that tries every way to share out the letters would need years for this. */
START_TEST(glob_ends_soon)
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
END_TEST

static struct page *page;
static const struct wire_config_id id = {.dev = 1, .ino = 2, .size = 3, .mtime_ns = 4, .ctime_ns = 5};
static const struct page_config mine = {.id = {.dev = 1, .ino = 2, .size = 3, .mtime_ns = 4, .ctime_ns = 5},
					.path_hash = 6};

static void put(enum page_rule_kind kind, const char *pattern)
{
	size_t used = page->rules_bytes;

	ck_assert_int_eq(page_rule_append(page->rules, PAGE_RULES_BYTES, &used, kind, pattern), 0);
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

static void teardown(void)
{
	free(page);
}

START_TEST(page_answers)
{
	char message[PAGE_MESSAGE_BYTES];

	ck_assert_int_eq(page_ask(page, &mine, "/run/lock/a", NULL), PAGE_SAYS_YES);
	ck_assert_int_eq(page_ask(page, &mine, "/srv/x.lock", message), PAGE_SAYS_YES);
	ck_assert_int_eq(page_ask(page, &mine, "/mnt/share/x", NULL), PAGE_SAYS_YES);
	ck_assert_int_eq(page_ask(page, &mine, "/run/lock/b", NULL), PAGE_SAYS_NO);
	ck_assert_int_eq(page_ask(page, &mine, "", NULL), PAGE_SAYS_NO);
	page->rules_bytes = 0;
	ck_assert_int_eq(page_ask(page, &mine, "/run/lock/a", NULL), PAGE_SAYS_NO);
}
END_TEST

/* Every file that a rule matches is below each directory of its path, and no other is claimed without need. */
START_TEST(below_a_directory)
{
	static const struct {
		enum page_rule_kind kind;
		const char *pattern, *directory;
		enum page_answer answer;
	} cases[] = {
		{PAGE_RULE_PATH, "/srv/jail/x", "/srv/jail", PAGE_SAYS_YES},
		{PAGE_RULE_PATH, "/srv/jail/x", "/srv", PAGE_SAYS_YES},
		{PAGE_RULE_PATH, "/srv/jail/x", "", PAGE_SAYS_YES},
		{PAGE_RULE_PATH, "/srv/jail/x", "/", PAGE_SAYS_YES},
		{PAGE_RULE_PATH, "/srv/jail", "/srv/jail", PAGE_SAYS_YES},
		{PAGE_RULE_PATH, "/srv/jail2/x", "/srv/jail", PAGE_SAYS_NO},
		{PAGE_RULE_PATH, "/srv/jai", "/srv/jail", PAGE_SAYS_NO},
		{PAGE_RULE_PATH, "/srv", "/srv/jail", PAGE_SAYS_NO},
		{PAGE_RULE_GLOB, "/srv/jail/*", "/srv/jail", PAGE_SAYS_YES},
		{PAGE_RULE_GLOB, "/srv/*/x", "/srv/jail", PAGE_SAYS_YES},
		{PAGE_RULE_GLOB, "/srv/[j]ail/x", "/srv/jail", PAGE_SAYS_YES},
		{PAGE_RULE_GLOB, "/srv/\\jail/x", "/srv/jail", PAGE_SAYS_YES},
		{PAGE_RULE_GLOB, "/srw/*", "/srv/jail", PAGE_SAYS_NO},
		{PAGE_RULE_GLOB, "/srv/jail-*", "/srv/jail", PAGE_SAYS_NO},
		{PAGE_RULE_PATH, "/srv/*/x", "/srv/jail", PAGE_SAYS_NO},
		{PAGE_RULE_TREE, "/srv", "/srv/jail", PAGE_SAYS_YES},
		{PAGE_RULE_TREE, "/srv/", "/srv/jail", PAGE_SAYS_YES},
		{PAGE_RULE_TREE, "/", "/srv/jail", PAGE_SAYS_YES},
		{PAGE_RULE_TREE, "/srv/jail/a", "/srv/jail", PAGE_SAYS_YES},
		{PAGE_RULE_TREE, "/srv/ja", "/srv/jail", PAGE_SAYS_NO},
		{PAGE_RULE_TREE, "/srv/jail2", "/srv/jail", PAGE_SAYS_NO},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		size_t used = 0;

		ck_assert_int_eq(
			page_rule_append(page->rules, sizeof(page->rules), &used, cases[i].kind, cases[i].pattern), 0);
		page->rules_bytes = (uint32_t)used;
		ck_assert_msg(page_ask_below(page, &mine, cases[i].directory) == cases[i].answer, "%s in %s",
			      cases[i].pattern, cases[i].directory);
	}
}
END_TEST

START_TEST(page_says_nothing)
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
			ck_assert_int_eq(page_ask(page, &of_other, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
		}
	}
	page->seq = 7;
	ck_assert_int_eq(page_ask(page, &mine, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
	page->seq = 8;
	page->state = PAGE_EMPTY;
	ck_assert_int_eq(page_ask(page, &mine, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
	page->state = 99;
	ck_assert_int_eq(page_ask(page, &mine, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
	page->state = PAGE_RULES;
	page->version++;
	ck_assert_int_eq(page_ask(page, &mine, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
	page->version--;
	page->magic ^= 1ull << 40;
	ck_assert_int_eq(page_ask(page, &mine, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
}
END_TEST

/* The rules of a file are in force whatever its state, for who has it, and for nobody else. */
START_TEST(page_speaks_of_its_file)
{
	struct page_config of_other = mine;

	page->config_hash = 6;
	of_other.id.ino++;
	ck_assert_int_eq(page_ask(page, &of_other, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
	of_other.young = true;
	ck_assert_int_eq(page_ask(page, &of_other, "/run/lock/a", NULL), PAGE_SAYS_YES);
	ck_assert_int_eq(page_ask(page, &of_other, "/run/lock/b", NULL), PAGE_SAYS_NO);
	of_other.path_hash++;
	ck_assert_int_eq(page_ask(page, &of_other, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
	of_other.path_hash = page->config_hash = 0; /* means that it is not known */
	ck_assert_int_eq(page_ask(page, &of_other, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
	page->config_hash = 6;
	of_other.young = false;
	page->seen = of_other.id; /* by whatever path */
	ck_assert_int_eq(page_ask(page, &of_other, "/run/lock/a", NULL), PAGE_SAYS_YES);
	/* Missing: no two files are the same for that. */
	of_other.id = page->seen = page->config = (struct wire_config_id){0};
	ck_assert_int_eq(page_ask(page, &of_other, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
	of_other.path_hash = 6;
	ck_assert_int_eq(page_ask(page, &of_other, "/run/lock/a", NULL), PAGE_SAYS_YES);
	/* An invalid one is refused in just that state. */
	page->state = PAGE_INVALID;
	page->config = page->seen = id;
	ck_assert_int_eq(page_ask(page, &mine, "/x", NULL), PAGE_SAYS_REFUSE);
	ck_assert_int_eq(page_ask(page, &of_other, "/x", NULL), PAGE_SAYS_NOTHING);
	of_other.id = page->seen = (struct wire_config_id){.ino = 77};
	of_other.young = true;
	ck_assert_int_eq(page_ask(page, &of_other, "/x", NULL), PAGE_SAYS_NOTHING);
}
END_TEST

START_TEST(page_refuses)
{
	char message[PAGE_MESSAGE_BYTES];
	struct page_config of_other = mine;

	page->state = PAGE_INVALID;
	strcpy(page->message, "/etc/dflock.conf:3: \x1b[31mwrong\n");
	ck_assert_int_eq(page_ask(page, &mine, "/x", message), PAGE_SAYS_REFUSE);
	ck_assert_str_eq(message, "/etc/dflock.conf:3: ?[31mwrong?");
	ck_assert_int_eq(page_ask(page, &mine, "/x", NULL), PAGE_SAYS_REFUSE);
	memset(page->message, 'x', sizeof(page->message));
	ck_assert_int_eq(page_ask(page, &mine, "/x", message), PAGE_SAYS_REFUSE);
	ck_assert_uint_eq(strlen(message), PAGE_MESSAGE_BYTES - 1);
	of_other.id.size++;
	ck_assert_int_eq(page_ask(page, &of_other, "/x", message), PAGE_SAYS_NOTHING);
}
END_TEST

START_TEST(page_distrusts_its_rules)
{
	struct page_rule *first = (struct page_rule *)page->rules;
	struct page_rule good = *first;
	static const uint32_t bad_bytes[] = {0, 1, 7, 8, 12, 17, PAGE_RULES_BYTES, UINT32_MAX, UINT32_MAX - 7};
	uint32_t end = page->rules_bytes;

	for (size_t i = 0; i < sizeof(bad_bytes) / sizeof(bad_bytes[0]); i++) {
		first->bytes = bad_bytes[i];
		ck_assert_int_eq(page_ask(page, &mine, "/mnt/share/x", NULL), PAGE_SAYS_NOTHING);
	}
	first->bytes = good.bytes;
	first->kind = PAGE_RULE_KINDS;
	ck_assert_int_eq(page_ask(page, &mine, "/mnt/share/x", NULL), PAGE_SAYS_NOTHING);
	first->kind = good.kind;
	page->rules_bytes = end - 8;
	ck_assert_int_eq(page_ask(page, &mine, "/x", NULL), PAGE_SAYS_NOTHING);
	page->rules_bytes = end + 8;
	ck_assert_int_eq(page_ask(page, &mine, "/x", NULL), PAGE_SAYS_NOTHING);
	page->rules_bytes = PAGE_RULES_BYTES + 8;
	ck_assert_int_eq(page_ask(page, &mine, "/x", NULL), PAGE_SAYS_NOTHING);
	page->rules_bytes = end;
	ck_assert_int_eq(page_ask(page, &mine, "/x", NULL), PAGE_SAYS_NO);
}
END_TEST

START_TEST(append_fills_to_the_end)
{
	_Alignas(8) unsigned char rules[32];
	size_t used = 0;

	/* 8 bytes of header, 7 letters and a NUL; then 8 and 8 with padding; then nothing more. */
	ck_assert_int_eq(page_rule_append(rules, sizeof(rules), &used, PAGE_RULE_PATH, "/234567"), 0);
	ck_assert_uint_eq(used, 16);
	ck_assert_int_eq(page_rule_append(rules, sizeof(rules), &used, PAGE_RULE_TREE, "/2345678"), -ENOSPC);
	ck_assert_uint_eq(used, 16);
	memset(rules + used, 0xff, sizeof(rules) - used);
	ck_assert_int_eq(page_rule_append(rules, sizeof(rules), &used, PAGE_RULE_TREE, "/"), 0);
	ck_assert_uint_eq(used, 32);
	ck_assert_mem_eq(rules + 16 + 8, "/\0\0\0\0\0\0\0", 8);
	ck_assert_int_eq(page_rule_append(rules, sizeof(rules), &used, PAGE_RULE_PATH, ""), -ENOSPC);
}
END_TEST

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

/* Whatever is in the page, the answer is one of the four. A sanitizer or a guard page tells of the rest: the
 * page lies before its allocation's end. */
START_TEST(random_pages)
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
END_TEST

/* Records at the very end of the rules, and a page that ends with its allocation. */
START_TEST(records_at_the_end)
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
		ck_assert_int_eq(page_ask(page, &mine, "/a/b/c/d/e/f/g/h/i", NULL),
				 kind == PAGE_RULE_TREE ? PAGE_SAYS_YES : PAGE_SAYS_NO);
		ck_assert_int_eq(page_ask(page, &mine, "/a/b/c/d/e/f/g/h", NULL),
				 kind == PAGE_RULE_TREE ? PAGE_SAYS_NO : PAGE_SAYS_YES);
		memcpy(last->pattern, "/a/b/c/d/e/f/g[\\", 16);
		ck_assert_int_eq(page_ask(page, &mine, "/a/b/c/d/e/f/g[x", NULL), PAGE_SAYS_NO);
	}
}
END_TEST

static bool enough;

/* Two configurations by turns; under the one /yes is protected, under the other /other is. */
static void *write_pages(void *arg)
{
	(void)arg;
	for (unsigned i = 0; !__atomic_load_n(&enough, __ATOMIC_ACQUIRE); i++) {
		size_t used = 0;
		uint32_t seq = page->seq;

		__atomic_store_n(&page->seq, seq + 1, __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		page->config = id;
		page->config.size += i % 2;
		for (int n = 0; n < 20; n++)
			page_rule_append(page->rules, PAGE_RULES_BYTES, &used, PAGE_RULE_GLOB, "/a*b*c*d*e");
		page_rule_append(page->rules, PAGE_RULES_BYTES, &used, PAGE_RULE_PATH, i % 2 ? "/other" : "/yes");
		page->rules_bytes = (uint32_t)used;
		__atomic_store_n(&page->seq, seq + 2, __ATOMIC_RELEASE);
		/* One processor for both (valgrind): let the reader see a page at rest, too. */
		sched_yield();
	}
	return NULL;
}

START_TEST(torn_reads_do_not_count)
{
	pthread_t writer;

	page->rules_bytes = 0;
	put(PAGE_RULE_PATH, "/yes");
	enough = false;
	ck_assert_int_eq(pthread_create(&writer, NULL, write_pages, NULL), 0);
	/* Both configurations were seen often; the test case's time limit is the deadline. */
	for (int answers = 0, others = 0; answers < 20000 || others < 20000;) {
		enum page_answer yes = page_ask(page, &mine, "/yes", NULL), no = page_ask(page, &mine, "/other", NULL);

		ck_assert_msg(yes == PAGE_SAYS_YES || yes == PAGE_SAYS_NOTHING, "a torn read: %d", yes);
		ck_assert_msg(no == PAGE_SAYS_NO || no == PAGE_SAYS_NOTHING, "a torn read: %d", no);
		answers += yes == PAGE_SAYS_YES;
		others += no == PAGE_SAYS_NOTHING;
	}
	__atomic_store_n(&enough, true, __ATOMIC_RELEASE);
	pthread_join(writer, NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("page");
	TCase *rules = tcase_create("rules"), *pages = tcase_create("pages");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_loop_test(rules, rules_match, 0, sizeof(matches) / sizeof(matches[0]));
	tcase_add_test(rules, glob_ends_soon);
	tcase_add_test(rules, append_fills_to_the_end);
	suite_add_tcase(suite, rules);

	tcase_add_checked_fixture(pages, setup, teardown);
	tcase_set_timeout(pages, 60);
	tcase_add_test(pages, page_answers);
	tcase_add_test(pages, below_a_directory);
	tcase_add_test(pages, page_says_nothing);
	tcase_add_test(pages, page_refuses);
	tcase_add_test(pages, page_speaks_of_its_file);
	tcase_add_test(pages, page_distrusts_its_rules);
	tcase_add_test(pages, random_pages);
	tcase_add_test(pages, records_at_the_end);
	tcase_add_test(pages, torn_reads_do_not_count);
	suite_add_tcase(suite, pages);

	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
