/*
 * A page with three rules, in memory: setup() and teardown() are the fixtures of the tests that ask it.
 */
#ifndef DFLOCK_TESTS_UNIT_PAGE_FIXTURE_H
#define DFLOCK_TESTS_UNIT_PAGE_FIXTURE_H

#include <check.h>
#include <stdlib.h>

#include "wire/page.h"

static struct page *page;
static const struct wire_config_id id = {.dev = 1, .ino = 2, .size = 3, .mtime_ns = 4, .ctime_ns = 5};
static const struct page_config mine = {.id = {.dev = 1, .ino = 2, .size = 3, .mtime_ns = 4, .ctime_ns = 5},
					.path_hash = 6};

static inline void put(enum page_rule_kind kind, const char *pattern)
{
	size_t used = page->rules_bytes;

	ck_assert_int_eq(page_rule_append(page->rules, PAGE_RULES_BYTES, &used, kind, WIRE_ON_REFUSED_REFUSE, pattern),
			 0);
	page->rules_bytes = (uint32_t)used;
}

static inline void setup(void)
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

static inline void teardown(void) { free(page); }

#endif
