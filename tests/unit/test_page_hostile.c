/* The shared page with hostile contents, and with a writer at work. */
#include <pthread.h>
#include <sched.h>

#include "tests/unit/page_fixture.h"
#include "tests/unit/suite.h"

FIXTURE(setup, teardown)

TEST(page_distrusts_its_rules)
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
		ck_assert_int_eq(page_ask(page, &mine, "/a/b/c/d/e/f/g/h/i", NULL),
				 kind == PAGE_RULE_TREE ? PAGE_SAYS_YES : PAGE_SAYS_NO);
		ck_assert_int_eq(page_ask(page, &mine, "/a/b/c/d/e/f/g/h", NULL),
				 kind == PAGE_RULE_TREE ? PAGE_SAYS_NO : PAGE_SAYS_YES);
		memcpy(last->pattern, "/a/b/c/d/e/f/g[\\", 16);
		ck_assert_int_eq(page_ask(page, &mine, "/a/b/c/d/e/f/g[x", NULL), PAGE_SAYS_NO);
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
		enum page_answer yes = page_ask(page, &mine, "/yes", NULL), no = page_ask(page, &mine, "/other", NULL);

		ck_assert_msg(yes == PAGE_SAYS_YES || yes == PAGE_SAYS_NOTHING, "a torn read: %d", yes);
		ck_assert_msg(no == PAGE_SAYS_NO || no == PAGE_SAYS_NOTHING, "a torn read: %d", no);
		answers += yes == PAGE_SAYS_YES;
		others += no == PAGE_SAYS_NOTHING;
	}
	__atomic_store_n(&enough, true, __ATOMIC_RELEASE);
	pthread_join(writer, NULL);
}
