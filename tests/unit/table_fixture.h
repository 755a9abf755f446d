/*
 * A runtime directory with a table of leases, a parent and a keeper of it, for the tests of keeper/guard/table*.c. The stores
 * of table_words.c are these here, so that a test can kill a keeper at each of them; and so is posix_fallocate(), for a file
 * system that is full. make_folder() and remove_folder() are the fixture.
 *
 * Lease number n is asked for with a part of the range that is granted, and has a file, a token, a path and a fence of its own.
 */
#ifndef DFLOCK_TESTS_UNIT_TABLE_FIXTURE_H
#define DFLOCK_TESTS_UNIT_TABLE_FIXTURE_H

#include <limits.h>
#include <setjmp.h>
#include <sys/syscall.h>

#include "keeper/guard/table.h"
#include "keeper/guard/table_file.h"
#include "keeper/guard/table_text.h"
#include "keeper/guard/table_words.h"
#include "tests/unit/base_folder.h"

#define HOST  "box-0123456789abcdef"
#define OTHER "box-fedcba9876543210"
#define MOST  16 /* entries that a test looks at */
#define NEVER (-1)

/* --- stores: in place of table_words.c --- */

static jmp_buf death;
static int until_death = NEVER; /* stores that are still done */
static unsigned long stores;

static inline void own_store(void)
{
	stores++;
	if (until_death == 0) {
		until_death = NEVER;
		longjmp(death, 1);
	}
	if (until_death > 0)
		until_death--;
}

void table_put64(uint64_t *word, uint64_t value)
{
	own_store();
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

void table_put32(uint32_t *word, uint32_t value)
{
	own_store();
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

void table_put_bytes(void *to, const void *from, size_t count)
{
	own_store();
	memcpy(to, from, count / 2);
	own_store();
	memcpy((char *)to + count / 2, (const char *)from + count / 2, count - count / 2);
}

void table_set_bits(uint64_t *word, uint64_t bits)
{
	own_store();
	__atomic_or_fetch(word, bits, __ATOMIC_ACQ_REL);
}

void table_clear_bits(uint64_t *word, uint64_t bits)
{
	own_store();
	__atomic_and_fetch(word, ~bits, __ATOMIC_ACQ_REL);
}

bool table_swap64(uint64_t *word, uint64_t old, uint64_t value)
{
	own_store();
	return __atomic_compare_exchange_n(word, &old, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static bool full; /* the file system */

int posix_fallocate(int fd, off_t at, off_t bytes)
{
	if (full)
		return ENOSPC;
	return syscall(SYS_fallocate, fd, 0, at, bytes) == 0 ? 0 : errno;
}

/* --- a runtime directory --- */

static int dir_fd;
static char why[256];
static struct table parent, keeper;

static inline void clear_folder(void)
{
	static const char *const names[] = {TABLE_NAME, TABLE_TEXT_NAME, TABLE_NEW_NAME, TABLE_BAD_NAME, "elsewhere"};
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (unlinkat(dir_fd, names[i], 0) != 0)
			unlinkat(dir_fd, names[i], AT_REMOVEDIR);
}

static inline void make_folder(void)
{
	base_make();
	dir_fd = base_open();
	full = false;
	until_death = NEVER;
	parent.fd = parent.text.fd = -1;
	keeper = parent;
}

static inline void remove_folder(void)
{
	table_text_close(&keeper);
	table_close(&parent);
	close(dir_fd);
	base_remove();
}

static inline void new_parent(void)
{
	table_text_close(&keeper);
	table_close(&parent);
	ck_assert_int_eq(table_open(&parent, dir_fd, why, sizeof(why)), 0);
	keeper = parent;
}

/* As after fork(): the same memory, and a text area of its own. */
static inline void new_keeper(void)
{
	table_text_close(&keeper);
	table_unsure(&parent);
	keeper = parent;
}

struct told {
	unsigned count, damaged;
	struct table_entry entries[MOST];
	char tokens[MOST][STORE_TOKEN_BYTES], names[MOST][LOCK_NAME_BYTES], paths[MOST][PATH_MAX];
};

static inline bool on_entry(void *arg, const struct table_entry *e)
{
	struct told *told = arg;
	ck_assert_uint_lt(told->count, MOST);
	told->entries[told->count] = *e;
	snprintf(told->tokens[told->count], STORE_TOKEN_BYTES, "%s", e->token);
	snprintf(told->names[told->count], LOCK_NAME_BYTES, "%s", e->name);
	snprintf(told->paths[told->count], PATH_MAX, "%s", e->path);
	told->count++;
	return true;
}

static inline struct told *take_up(void)
{
	static struct told told;
	told.count = 0;
	ck_assert_int_eq(table_take_up(&keeper, on_entry, &told, &told.damaged), 0);
	return &told;
}

static inline void begin(void)
{
	clear_folder();
	new_parent();
	ck_assert_str_eq(why, "");
	ck_assert_uint_eq(take_up()->count, 0);
}

static inline const char *token_of(unsigned n)
{
	static char tokens[4][STORE_TOKEN_BYTES];
	static unsigned next;
	char *token = tokens[next++ % 4];
	snprintf(token, STORE_TOKEN_BYTES, "%032u", n);
	return token;
}

static inline const char *path_of(unsigned n)
{
	static char path[PATH_MAX];
	snprintf(path, sizeof(path), "/srv/%0*u", (int)(n * 200 + 1) % 4000, n);
	return path;
}

/* The lease of number n: asked for a part, and granted more. */
static inline struct store_range asked(unsigned n)
{
	return (struct store_range){
		.space = n % 2 ? WIRE_RECORD : WIRE_FLOCK, .mode = WIRE_EXCLUSIVE, .from = n + 10, .to = n + 20};
}

static inline struct store_range granted(unsigned n)
{
	return (struct store_range){
		.space = n % 2 ? WIRE_RECORD : WIRE_FLOCK, .mode = WIRE_EXCLUSIVE, .from = n + 5, .to = n + 25};
}

static inline struct holders_file file_of(unsigned n)
{
	return (struct holders_file){.dev = 7, .ino = 1000 + n, .kernel_dev = 8, .kernel_ino = 2000 + n};
}

static inline uint32_t ask_in(struct table *t, unsigned n, unsigned member)
{
	struct table_lease lease = {.token = token_of(n),
				    .name = "jobs/x",
				    .path = path_of(n),
				    .file = file_of(n),
				    .range = asked(n),
				    .uid = 500 + n,
				    .member = member,
				    .on_lost = ON_LOST_FREEZE};
	uint32_t slot = TABLE_NO_SLOT;

	ck_assert_int_eq(table_ask(t, &lease, &slot), 0);
	return slot;
}

static inline uint32_t ask(struct table *t, unsigned n) { return ask_in(t, n, 0); }

static inline void grant(struct table *t, uint32_t slot, unsigned n)
{
	struct store_range range = granted(n);
	struct holders_file file = file_of(n);
	table_grant(t, slot, 100 + n, &range, &file);
}

static inline uint32_t held(struct table *t, unsigned n)
{
	uint32_t slot = ask(t, n);
	grant(t, slot, n);
	return slot;
}

/* What the parent sees of lease n; TABLE_FREE: nothing that it has to do with. */
static inline enum table_state seen(unsigned n)
{
	enum table_state found = TABLE_FREE;

	for (uint32_t i = 0; i < table_used(&parent); i++) {
		struct table_view view;

		table_view(&parent, i, &view);
		if (view.state == TABLE_FREE || view.state == TABLE_ASKED || view.state == TABLE_RETURNED ||
		    view.file.ino != 1000 + n)
			continue;
		ck_assert_int_eq(view.from, n + 5);
		ck_assert_int_eq(view.to, n + 25);
		ck_assert_int_eq(view.space, n % 2 ? WIRE_RECORD : WIRE_FLOCK);
		ck_assert_uint_eq(view.file.dev, 7);
		ck_assert_uint_eq(view.file.kernel_ino, 2000 + n);
		ck_assert_int_eq(found, TABLE_FREE);
		found = view.state;
	}
	return found;
}

static inline const struct table_entry *entry_of(const struct told *told, unsigned n)
{
	for (unsigned i = 0; i < told->count; i++)
		if (strcmp(told->tokens[i], token_of(n)) == 0) {
			ck_assert_str_eq(told->names[i], "jobs/x");
			ck_assert_str_eq(told->paths[i], path_of(n));
			return &told->entries[i];
		}
	return NULL;
}

/* A process that is killed frees nothing, and its memory is gone: here it is the test's, and no leak. (For valgrind: check.supp.) */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

static inline void leaks_count(bool count)
{
	if (count && __lsan_enable)
		__lsan_enable();
	if (!count && __lsan_disable)
		__lsan_disable();
}

/* What `life` does, until it is killed at that store. False: it was not killed, for there are not so many stores. */
static inline bool killed_in(void (*life)(void), int store)
{
	leaks_count(false);
	if (setjmp(death) != 0) {
		leaks_count(true);
		return true;
	}
	until_death = store;
	life();
	until_death = NEVER;
	leaks_count(true);
	return false;
}
FIXTURE(make_folder, remove_folder)

#endif
