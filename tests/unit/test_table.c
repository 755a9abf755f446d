/*
 * keeper/guard/table*.c: the table of leases. What the parent and the next keeper see when a keeper dies at any store; what
 * damage, other boots and other versions do; what happens without room; and that a parent that reads while the keeper writes
 * never sees half a lease.
 */
#include "keeper/guard/table.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "keeper/guard/table_earlier.h"
#include "keeper/guard/table_file.h"
#include "keeper/guard/table_notes.h"
#include "keeper/guard/table_text.h"
#include "keeper/guard/table_words.h"

#define HOST  "box-0123456789abcdef"
#define OTHER "box-fedcba9876543210"
#define MOST  16 /* entries that a test looks at */
#define NEVER (-1)

/* --- stores: in place of table_words.c --- */

static jmp_buf death;
static int until_death = NEVER; /* stores that are still done */
static unsigned long stores;

static void before_store(void)
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
	before_store();
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

void table_put32(uint32_t *word, uint32_t value)
{
	before_store();
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

void table_put_bytes(void *to, const void *from, size_t count)
{
	before_store();
	memcpy(to, from, count / 2);
	before_store();
	memcpy((char *)to + count / 2, (const char *)from + count / 2, count - count / 2);
}

void table_set_bits(uint64_t *word, uint64_t bits)
{
	before_store();
	__atomic_or_fetch(word, bits, __ATOMIC_ACQ_REL);
}

void table_clear_bits(uint64_t *word, uint64_t bits)
{
	before_store();
	__atomic_and_fetch(word, ~bits, __ATOMIC_ACQ_REL);
}

bool table_swap64(uint64_t *word, uint64_t old, uint64_t value)
{
	before_store();
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
static char folder[64], why[256];
static struct table parent, keeper;

static void clear_folder(void)
{
	static const char *const names[] = {TABLE_NAME, TABLE_TEXT_NAME, TABLE_BAD_NAME, "elsewhere"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (unlinkat(dir_fd, names[i], 0) != 0)
			unlinkat(dir_fd, names[i], AT_REMOVEDIR);
}

static void make_folder(void)
{
	snprintf(folder, sizeof(folder), "/dev/shm/dflock-table-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	dir_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	full = false;
	until_death = NEVER;
	parent.fd = parent.text.fd = -1;
	keeper = parent;
}

static void remove_folder(void)
{
	table_text_close(&keeper);
	table_close(&parent);
	clear_folder();
	close(dir_fd);
	rmdir(folder);
}

static void new_parent(void)
{
	table_text_close(&keeper);
	table_close(&parent);
	ck_assert_int_eq(table_open(&parent, dir_fd, why, sizeof(why)), 0);
	keeper = parent;
}

/* As after fork(): the same memory, and a text area of its own. */
static void new_keeper(void)
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

static bool on_entry(void *arg, const struct table_entry *e)
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

static struct told *take_up(void)
{
	static struct told told;

	told.count = 0;
	ck_assert_int_eq(table_take_up(&keeper, on_entry, &told, &told.damaged), 0);
	return &told;
}

static void begin(void)
{
	clear_folder();
	new_parent();
	ck_assert_str_eq(why, "");
	ck_assert_uint_eq(take_up()->count, 0);
}

static const char *token_of(unsigned n)
{
	static char tokens[4][STORE_TOKEN_BYTES];
	static unsigned next;
	char *token = tokens[next++ % 4];

	snprintf(token, STORE_TOKEN_BYTES, "%032u", n);
	return token;
}

static const char *path_of(unsigned n)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "/srv/%0*u", (int)(n * 200 + 1) % 4000, n);
	return path;
}

/* The lease of number n: asked for a part, and granted more. */
static struct store_range asked(unsigned n)
{
	return (struct store_range){
		.space = n % 2 ? WIRE_RECORD : WIRE_FLOCK, .mode = WIRE_EXCLUSIVE, .from = n + 10, .to = n + 20};
}

static struct store_range granted(unsigned n)
{
	return (struct store_range){
		.space = n % 2 ? WIRE_RECORD : WIRE_FLOCK, .mode = WIRE_EXCLUSIVE, .from = n + 5, .to = n + 25};
}

static struct holders_file file_of(unsigned n)
{
	return (struct holders_file){.dev = 7, .ino = 1000 + n, .kernel_dev = 8, .kernel_ino = 2000 + n};
}

static uint32_t ask(struct table *t, unsigned n)
{
	struct table_lease lease = {.token = token_of(n),
				    .name = "jobs/x",
				    .path = path_of(n),
				    .file = file_of(n),
				    .range = asked(n),
				    .uid = 500 + n,
				    .on_lost = ON_LOST_FREEZE};
	uint32_t slot = TABLE_NO_SLOT;

	ck_assert_int_eq(table_ask(t, &lease, &slot), 0);
	return slot;
}

static void grant(struct table *t, uint32_t slot, unsigned n)
{
	struct store_range range = granted(n);
	struct holders_file file = file_of(n);

	table_grant(t, slot, 100 + n, &range, &file);
}

static uint32_t held(struct table *t, unsigned n)
{
	uint32_t slot = ask(t, n);

	grant(t, slot, n);
	return slot;
}

/* --- a keeper that dies at every store --- */

/* What others know of a lease. */
struct known {
	bool acquire_sent, told, shrink_sent, release_sent, gone, lost, killed;
};
static struct known known[4];

static void live_and_return(unsigned n)
{
	uint32_t slot = ask(&keeper, n);

	known[n].acquire_sent = true;
	grant(&keeper, slot, n);
	known[n].told = true;
	table_doubt(&keeper, slot);
	table_confirm(&keeper, slot);
	table_hold(&keeper, slot);
	table_share(&keeper, slot);
	known[n].shrink_sent = true;
	table_return(&keeper, slot);
	known[n].release_sent = true;
	known[n].gone = true; /* the store has acknowledged it */
	table_vacate(&keeper, slot);
}

static void live_and_lose(unsigned n)
{
	uint32_t slot = ask(&keeper, n);

	known[n].acquire_sent = true;
	grant(&keeper, slot, n);
	known[n].told = true;
	table_doubt(&keeper, slot);
	known[n].lost = true; /* the store has said so; it would say so again */
	table_lose(&keeper, slot, TABLE_WHY_TAKEN);
	ck_assert(table_move(&parent, slot, TABLE_LOST, TABLE_ENDING));
	known[n].killed = true;
	ck_assert(table_move(&parent, slot, TABLE_ENDING, TABLE_FREE));
}

static void ask_in_vain(unsigned n)
{
	uint32_t slot = ask(&keeper, n);

	known[n].acquire_sent = true;
	table_return(&keeper, slot);
	known[n].release_sent = true;
	known[n].gone = true;
	table_vacate(&keeper, slot);
}

static void lives(void)
{
	char host[STORE_HOST_BYTES] = HOST;

	table_host(&keeper, host);
	table_set_incarnation(&keeper, "inc-1");
	live_and_return(0);
	live_and_lose(1);
	live_and_return(2); /* in the slot of others, with another text */
	table_set_incarnation(&keeper, "inc-2");
	ask_in_vain(3);
}

/* What the parent sees of lease n; TABLE_FREE: nothing that it has to do with. */
static enum table_state seen(unsigned n)
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

static void check_parent(void)
{
	for (unsigned n = 0; n < 4; n++) {
		const struct known *k = &known[n];
		enum table_state state = seen(n);

		if (k->told && !k->release_sent && !k->lost && !k->shrink_sent)
			ck_assert(state == TABLE_HELD || state == TABLE_UNSURE);
		if (k->lost && !k->killed)
			ck_assert(state == TABLE_UNSURE || state == TABLE_LOST || state == TABLE_ENDING);
		if (k->release_sent)
			ck_assert_int_eq(state, TABLE_FREE);
	}
}

static const struct table_entry *entry_of(const struct told *told, unsigned n)
{
	for (unsigned i = 0; i < told->count; i++)
		if (strcmp(told->tokens[i], token_of(n)) == 0) {
			ck_assert_str_eq(told->names[i], "jobs/x");
			ck_assert_str_eq(told->paths[i], path_of(n));
			return &told->entries[i];
		}
	return NULL;
}

static void check_next(const struct told *told)
{
	ck_assert_uint_eq(told->damaged, 0);
	for (unsigned n = 0; n < 4; n++) {
		const struct known *k = &known[n];
		const struct table_entry *e = entry_of(told, n);

		if (k->acquire_sent && !k->gone && !k->lost)
			ck_assert_ptr_nonnull(e);
		if (k->told && !k->shrink_sent && !k->lost)
			ck_assert(e->unsure && e->fence == 100 + n && e->range.from == n + 5 && e->range.to == n + 25 &&
				  e->uid == 500 + n && e->dev == 7 && e->ino == 1000 + n);
		if (e && e->unsure) /* nobody was told of anything else */
			ck_assert(e->fence == 100 + n && e->range.from == n + 5 && e->range.to == n + 25);
		if (e && e->unsure && k->shrink_sent)
			ck_assert_int_eq(e->range.mode, WIRE_SHARED);
		if (e && k->release_sent)
			ck_assert(!e->unsure);
		if (e && !k->acquire_sent)
			ck_assert(!e->unsure);
	}
}

/* The next keeper goes on, and what it does harms nothing of what there is. */
static void check_going_on(void)
{
	static struct told before;
	uint32_t slot;

	char host[STORE_HOST_BYTES] = OTHER;

	before = *take_up();
	check_next(&before);
	table_host(&keeper, host);
	ck_assert_msg(strcmp(host, HOST) == 0 || strcmp(host, OTHER) == 0, "the host is %s", host);
	ck_assert_msg(!*table_incarnation(&keeper) || strcmp(table_incarnation(&keeper), "inc-1") == 0 ||
			      strcmp(table_incarnation(&keeper), "inc-2") == 0,
		      "the incarnation is %s", table_incarnation(&keeper));
	slot = held(&keeper, 9);
	new_keeper();
	check_parent();
	ck_assert_uint_eq(take_up()->count, before.count + 1);
	check_next(take_up());
	table_return(&keeper, slot);
	table_vacate(&keeper, slot);
}

static void check_all(void)
{
	check_parent();
	new_keeper();
	check_parent();
	check_going_on();
	new_parent();
	ck_assert_str_eq(why, "");
	check_parent();
	for (uint32_t i = 0; i < table_used(&parent); i++)
		ck_assert_int_ne(table_state(&parent, i), TABLE_ENDING);
	check_going_on();
}

/* A process that is killed frees nothing, and its memory is gone: here it is the test's, and no leak. (For valgrind: check.supp.) */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

static void leaks_count(bool count)
{
	if (count && __lsan_enable)
		__lsan_enable();
	if (!count && __lsan_disable)
		__lsan_disable();
}

/* What `life` does, until it is killed at that store. False: it was not killed, for there are not so many stores. */
static bool killed_in(void (*life)(void), int store)
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

static bool die_at(int store)
{
	memset(known, 0, sizeof(known));
	begin();
	return killed_in(lives, store);
}

START_TEST(killed_at_every_store)
{
	int store = 0;

	for (; die_at(store); store++)
		check_all();
	ck_assert_int_gt(store, 100);
	check_all();
}
END_TEST

static void takes_up(void)
{
	take_up();
}

/* And the next keeper dies while it takes up what the first has left. */
START_TEST(killed_twice)
{
	for (int first = 0; die_at(first); first += 3)
		for (int second = 0, more = 1; more; second++) {
			die_at(first);
			new_keeper();
			more = killed_in(takes_up, second);
			check_all();
		}
}
END_TEST

static void opens(void)
{
	ck_assert_int_eq(table_open(&parent, dir_fd, why, sizeof(why)), 0);
}

START_TEST(parent_killed_at_every_store)
{
	for (int store = 0, more = 1; more; store++) {
		clear_folder();
		table_text_close(&keeper);
		table_close(&parent);
		more = killed_in(opens, store);
		new_parent();
		ck_assert_str_eq(why, "");
		ck_assert_uint_eq(take_up()->count, 0);
		held(&keeper, 1);
		new_parent();
		ck_assert_int_eq(seen(1), TABLE_UNSURE);
	}
}
END_TEST

/* --- what comes back --- */

START_TEST(host_stays)
{
	char host[STORE_HOST_BYTES] = HOST;

	begin();
	table_host(&keeper, host);
	ck_assert_str_eq(host, HOST);
	new_parent();
	strcpy(host, OTHER);
	table_host(&keeper, host);
	ck_assert_str_eq(host, HOST);
}
END_TEST

START_TEST(incarnation)
{
	uint32_t one, two;
	const struct told *told;

	begin();
	ck_assert_str_eq(table_incarnation(&keeper), "");
	table_set_incarnation(&keeper, "inc-1");
	one = held(&keeper, 1);
	two = held(&keeper, 2);
	table_set_incarnation(&keeper, "inc-1"); /* the same: nothing is forgotten */
	new_keeper();
	told = take_up();
	ck_assert(!entry_of(told, 1)->forgotten && !entry_of(told, 2)->forgotten);
	table_set_incarnation(&keeper, "inc-2");
	table_confirm(&keeper, two); /* that one was put back */
	new_keeper();
	told = take_up();
	ck_assert_str_eq(table_incarnation(&keeper), "inc-2");
	ck_assert(entry_of(told, 1)->forgotten && !entry_of(told, 2)->forgotten);
	table_confirm(&keeper, one);
	new_parent();
	ck_assert(!entry_of(take_up(), 1)->forgotten);
}
END_TEST

START_TEST(longest_strings)
{
	static char name[LOCK_NAME_BYTES + 1], path[PATH_MAX + 1];
	struct table_lease lease = {.token = token_of(1), .name = name, .path = path, .range = asked(1)};
	uint32_t slot;

	begin();
	memset(name, 'n', LOCK_NAME_BYTES - 1);
	memset(path, 'p', PATH_MAX - 1);
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), 0);
	new_keeper();
	ck_assert_str_eq(take_up()->names[0], name);
	ck_assert_str_eq(take_up()->paths[0], path);
	name[LOCK_NAME_BYTES - 1] = 'n';
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), -EINVAL);
	name[1] = '\0';
	path[PATH_MAX - 1] = 'p';
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), -EINVAL);
	path[0] = '\0';
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), -EINVAL);
	path[0] = 'p';
	path[1] = name[0] = '\0';
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), -EINVAL);
	ck_assert_uint_eq(take_up()->count, 1);
}
END_TEST

/* The same slot has ever longer texts: the area does not grow without bounds. */
START_TEST(texts_of_all_lengths)
{
	struct stat st;

	begin();
	for (unsigned n = 0; n < 5000; n++) {
		uint32_t slot = held(&keeper, n % 20);

		ck_assert_uint_eq(slot, 0);
		if (n % 500 == 0) {
			new_keeper();
			ck_assert_ptr_nonnull(entry_of(take_up(), n % 20));
		}
		table_return(&keeper, slot);
		table_vacate(&keeper, slot);
	}
	ck_assert_int_eq(fstatat(dir_fd, TABLE_TEXT_NAME, &st, 0), 0);
	ck_assert_int_le(st.st_size, 64 * 1024);
}
END_TEST

START_TEST(all_slots)
{
	struct table_lease lease = {.token = token_of(1), .name = "n", .path = "/p", .range = asked(0)};
	struct stat st;
	uint32_t slot;

	begin();
	ck_assert_int_eq(fstatat(dir_fd, TABLE_NAME, &st, 0), 0);
	ck_assert_int_lt(st.st_size, 400 * 1024); /* a keeper that has little needs little */
	for (uint32_t i = 0; i < TABLE_SLOTS; i++) {
		ck_assert_int_eq(table_ask(&keeper, &lease, &slot), 0);
		ck_assert_uint_eq(slot, i);
	}
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), -ENFILE);
	ck_assert_uint_eq(table_used(&parent), TABLE_SLOTS); /* the file has grown under it */
	ck_assert_int_eq(table_state(&parent, TABLE_SLOTS - 1), TABLE_ASKED);
	table_vacate(&keeper, 777);
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), 0);
	ck_assert_uint_eq(slot, 777);
	new_parent();
	ck_assert_uint_eq(table_used(&parent), TABLE_SLOTS);
	ck_assert(!table_in_use(&parent));
}
END_TEST

START_TEST(in_use)
{
	uint32_t slot;

	begin();
	slot = ask(&keeper, 1);
	ck_assert(!table_in_use(&parent));
	grant(&keeper, slot, 1);
	ck_assert(table_in_use(&parent));
	table_lose(&keeper, slot, TABLE_WHY_TAKEN);
	ck_assert(table_in_use(&parent));
	table_move(&parent, slot, TABLE_LOST, TABLE_FREE);
	ck_assert(!table_in_use(&parent));
	slot = held(&keeper, 1);
	table_set_on_lost(&keeper, slot, ON_LOST_WARN);
	table_lose(&keeper, slot, TABLE_WHY_TAKEN); /* nobody is to be killed for it */
	ck_assert(!table_in_use(&parent) && table_state(&parent, slot) == TABLE_FREE);
}
END_TEST

/* --- damage --- */

/* A lease with damage in one byte: the other one is whole, and the damaged one is either as it was, or lost. */
static void check_damaged(uint64_t ino)
{
	const struct told *told;
	const struct table_entry *e;
	bool lost = false;

	new_keeper();
	told = take_up();
	ck_assert(entry_of(told, 2)->unsure && entry_of(told, 2)->fence == 102);
	e = entry_of(told, 1);
	if (!told->damaged) {
		ck_assert(e && e->unsure && e->fence == 101 && e->range.from == 6 && e->range.to == 26 &&
			  e->ino == 1001);
		return;
	}
	ck_assert_ptr_null(e);
	ck_assert(table_in_use(&parent));
	table_lose_damaged(&keeper);
	for (uint32_t i = 0; i < table_used(&parent); i++) {
		struct table_view view;

		table_view(&parent, i, &view);
		if (view.state == TABLE_LOST)
			ck_assert(view.from == 0 && view.to == WIRE_EOF);
		lost = lost || (view.state == TABLE_LOST && (!ino || view.file.ino == ino));
	}
	ck_assert(lost);
	new_keeper();
	told = take_up(); /* which is no news to the next one */
	ck_assert_uint_eq(told->damaged, 0);
	ck_assert_uint_eq(told->count, 1);
}

START_TEST(damaged_at_every_byte)
{
	for (size_t at = 0; at < sizeof(struct table_slot); at++) {
		uint32_t slot;
		bool is_ino = at >= offsetof(struct table_slot, ino) && at < offsetof(struct table_slot, ino) + 8;

		begin();
		slot = held(&keeper, 1);
		held(&keeper, 2);
		((char *)&keeper.slots[slot])[at] ^= (char)0xff;
		check_damaged(is_ino ? 0 : 1001);
	}
}
END_TEST

START_TEST(damaged_text)
{
	for (size_t at = 0; at < 128; at++) {
		uint32_t slot;

		begin();
		slot = held(&keeper, 1);
		held(&keeper, 2);
		keeper.text.map[keeper.slots[slot].text_at * TEXT_UNIT + at] ^= (char)0xff;
		check_damaged(1001);
	}
}
END_TEST

static const struct wrong {
	const char *what;
	size_t at, bytes;
	uint64_t value;
} wrongs[] = {
#define WRONG(field, value)                                                                                            \
	{                                                                                                              \
#field, offsetof(struct table_slot, field), sizeof(((struct table_slot *)0)->field), (value)           \
	}
	WRONG(text_at, 0),
	WRONG(text_at, UINT32_MAX),
	WRONG(text_room, UINT32_MAX),
	WRONG(text_room, 0),
	WRONG(from, UINT64_MAX),
	WRONG(to, 0),
	WRONG(to, 1ull << 63),
	WRONG(space, WIRE_SPACES),
	WRONG(space, UINT32_MAX),
	WRONG(fence, 0),
	WRONG(sum, 0),
	WRONG(word, UINT64_MAX),
	WRONG(word, 0xff),
	WRONG(uid, 0),
};

START_TEST(nonsense)
{
	const struct wrong *w = &wrongs[_i];
	uint32_t slot;

	begin();
	slot = held(&keeper, 1);
	held(&keeper, 2);
	memcpy((char *)&keeper.slots[slot] + w->at, &w->value, w->bytes);
	check_damaged(1001);
}
END_TEST

/* Two slots that say that they have the same piece: the lease whose text it is keeps it, and no new lease writes there. */
START_TEST(shared_piece)
{
	uint32_t one, two, three;

	begin();
	one = held(&keeper, 1);
	two = held(&keeper, 2);
	three = held(&keeper, 3);
	table_vacate(&keeper, three);
	keeper.slots[three].text_at = keeper.slots[one].text_at;
	keeper.slots[three].text_room = keeper.slots[one].text_room;
	new_keeper();
	ck_assert_uint_eq(take_up()->count, 2);
	ck_assert_uint_eq(held(&keeper, 0), three); /* whose text is shorter */
	new_keeper();
	ck_assert_uint_eq(take_up()->count, 3);
	ck_assert_uint_eq(take_up()->damaged, 0);
	(void)two;
}
END_TEST

START_TEST(text_area_gone)
{
	const struct told *told;

	begin();
	held(&keeper, 1);
	ask(&keeper, 2);
	ck_assert_int_eq(unlinkat(dir_fd, TABLE_TEXT_NAME, 0), 0);
	new_keeper();
	told = take_up();
	ck_assert_uint_eq(told->count, 0); /* nobody was told of what was only asked for */
	ck_assert_uint_eq(told->damaged, 1);
	held(&keeper, 3);
	table_lose_damaged(&keeper);
	ck_assert_int_eq(table_state(&parent, 0), TABLE_LOST);
	new_keeper();
	ck_assert_uint_eq(take_up()->count, 1);
}
END_TEST

/* That of an earlier table has the same slots, and other leases. */
START_TEST(text_area_of_another_table)
{
	begin();
	held(&keeper, 1);
	ck_assert_int_eq(unlinkat(dir_fd, TABLE_NAME, 0), 0);
	new_parent();
	ck_assert_uint_eq(take_up()->count, 0);
	held(&keeper, 2);
	new_parent();
	ck_assert_ptr_nonnull(entry_of(take_up(), 2));
	parent.head->id++;
	new_keeper();
	ck_assert_uint_eq(take_up()->damaged, 1);
}
END_TEST

START_TEST(head_that_says_too_much)
{
	begin();
	held(&keeper, 1);
	parent.head->used = UINT32_MAX;
	parent.head->first = UINT32_MAX;
	parent.head->caller_count = UINT32_MAX;
	memset(parent.head->host, 'h', sizeof(parent.head->host));
	memset(parent.head->incarnations, 'i', sizeof(parent.head->incarnations));
	ck_assert_uint_lt(table_used(&parent), TABLE_SLOTS); /* no slot is looked at that the file has no room for */
	ck_assert(table_in_use(&parent));
	ck_assert(!table_has_caller(&parent, &(struct table_caller){.pid = 1}));
	new_parent();
	ck_assert_str_eq(why, "");
	parent.head->used = 0; /* or too little */
	new_parent();
	ck_assert_ptr_nonnull(entry_of(take_up(), 1));
	ck_assert_str_eq(parent.head->host, "");
	ck_assert_str_eq(table_incarnation(&keeper), "");
	held(&keeper, 2);
}
END_TEST

/* --- files that are not ours --- */

START_TEST(other_boot)
{
	begin();
	held(&keeper, 1);
	parent.head->boot[3] ^= 1;
	new_parent();
	ck_assert_str_eq(why, "");
	ck_assert(!table_in_use(&parent));
	ck_assert_uint_eq(take_up()->count, 0);
	ck_assert_int_eq(faccessat(dir_fd, TABLE_BAD_NAME, F_OK, 0), -1);
}
END_TEST

START_TEST(other_version)
{
	begin();
	held(&keeper, 1);
	parent.head->version++;
	new_parent();
	ck_assert_ptr_nonnull(strstr(why, "of another version"));
	ck_assert_uint_eq(take_up()->count, 0);
	ck_assert_int_eq(faccessat(dir_fd, TABLE_BAD_NAME, F_OK, 0), 0);
}
END_TEST

START_TEST(other_time_namespace)
{
	int64_t now = clock_now_ns();

	begin();
	held(&keeper, 1);
	table_renewed(&keeper, now + 1000000 * NS_PER_MS, now + 2000000 * NS_PER_MS);
	table_pinned(&keeper, now - 5);
	new_parent();
	ck_assert_int_eq(parent.head->freeze_at_ns, now + 1000000 * NS_PER_MS);
	parent.head->time_ino++;
	new_parent();
	ck_assert_str_eq(why, "");
	ck_assert_int_eq(seen(1), TABLE_UNSURE);
	ck_assert_int_le(parent.head->freeze_at_ns, clock_now_ns()); /* nothing is sure by a clock that nobody knows */
	ck_assert_int_eq(table_pins_until(&parent, 12345), 12345);
	ck_assert_ptr_nonnull(entry_of(take_up(), 1));
}
END_TEST

static void write_file(const char *name, const void *data, size_t bytes, mode_t mode)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

	ck_assert_int_eq(write(fd, data, bytes), (ssize_t)bytes);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
}

static void put_foreign(const char *name, int kind)
{
	static char text[70000];

	unlinkat(dir_fd, name, 0);
	memset(text, 'x', sizeof(text));
	if (kind == 0)
		write_file(name, text, sizeof(text), 0600);
	else if (kind == 1)
		write_file(name, text, 5, 0600);
	else if (kind == 2)
		write_file(name, "", 0, 0666);
	else if (kind == 3)
		ck_assert_int_eq(symlinkat("elsewhere", dir_fd, name), 0);
	else if (kind == 4)
		ck_assert_int_eq(mkfifoat(dir_fd, name, 0600), 0);
}

START_TEST(foreign_files)
{
	begin();
	put_foreign(TABLE_NAME, _i);
	put_foreign(TABLE_TEXT_NAME, _i);
	new_parent();
	ck_assert_str_ne(why, "");
	ck_assert_uint_eq(take_up()->count, 0);
	held(&keeper, 1);
	ck_assert_int_eq(faccessat(dir_fd, "elsewhere", F_OK, 0), -1);
	put_foreign(TABLE_TEXT_NAME, _i); /* while there are leases */
	new_parent();
	ck_assert_str_eq(why, "");
	ck_assert_uint_eq(take_up()->damaged, 1);
}
END_TEST

START_TEST(cannot_put_aside)
{
	begin();
	put_foreign(TABLE_NAME, 0);
	ck_assert_int_eq(mkdirat(dir_fd, TABLE_BAD_NAME, 0700), 0);
	table_text_close(&keeper);
	table_close(&parent);
	ck_assert_int_eq(table_open(&parent, dir_fd, why, sizeof(why)), -EISDIR);
}
END_TEST

/* --- no room --- */

START_TEST(no_room)
{
	struct table_lease lease = {.token = token_of(1), .name = "n", .path = "/p", .range = asked(0)};
	unsigned count = 0;
	uint32_t slot, first;
	int ret;

	begin();
	first = held(&keeper, 1);
	full = true;
	for (ret = 0; ret == 0; count++)
		ret = table_ask(&keeper, &lease, &slot);
	ck_assert_int_eq(ret, -ENOSPC);
	ck_assert_uint_gt(count, 100); /* what there is room for is used */
	lease.path = path_of(5);
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), -ENOSPC);
	/* Everything else goes on, and nothing needs room. */
	table_doubt(&keeper, first);
	table_hold(&keeper, first);
	table_share(&keeper, first);
	table_return(&keeper, first);
	table_vacate(&keeper, first);
	lease.path = "/p";
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), 0);
	ck_assert_uint_eq(slot, first);
	full = false;
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), 0);
}
END_TEST

START_TEST(no_room_for_slots)
{
	struct table_lease lease = {.token = token_of(1), .name = "n", .path = "/p", .range = asked(0)};
	uint32_t slot;

	begin();
	for (unsigned i = 0; i < 1024; i++)
		ck_assert_int_eq(table_ask(&keeper, &lease, &slot), 0);
	full = true;
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), -ENOSPC);
	ck_assert_uint_eq(table_used(&parent), 1024);
	full = false;
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), 0);
	ck_assert_uint_eq(slot, 1024);
}
END_TEST

START_TEST(no_room_to_begin)
{
	clear_folder();
	full = true;
	ck_assert_int_eq(table_open(&parent, dir_fd, why, sizeof(why)), -ENOSPC);
	full = false;
	begin();
	held(&keeper, 1);
	full = true; /* what is there needs no room */
	new_keeper();
	full = false;
	ck_assert_ptr_nonnull(entry_of(take_up(), 1));
}
END_TEST

/* --- two processes --- */

START_TEST(hidden_is_of_one_lease)
{
	struct table_view view;
	uint32_t slot;

	begin();
	slot = held(&keeper, 1);
	ck_assert(!table_is_hidden(&keeper, slot) && !table_is_hidden(&keeper, TABLE_NO_SLOT));
	table_view(&parent, slot, &view);
	table_set_hidden(&parent, slot, view.generation, true);
	ck_assert(table_is_hidden(&keeper, slot));
	table_return(&keeper, slot);
	table_vacate(&keeper, slot);
	ck_assert_uint_eq(held(&keeper, 2), slot);
	ck_assert(!table_is_hidden(&keeper, slot));
	table_set_hidden(&parent, slot, view.generation, true); /* the search took long: it was about the earlier one */
	ck_assert(!table_is_hidden(&keeper, slot));
}
END_TEST

/* The parent is between word(FREE) and clearing the bit: the slot is passed by. */
START_TEST(freed_by_the_parent)
{
	uint32_t slot;

	begin();
	slot = held(&keeper, 1);
	table_lose(&keeper, slot, TABLE_WHY_TAKEN);
	ck_assert(!table_move(&parent, slot, TABLE_HELD, TABLE_ENDING));
	parent.slots[slot].word = table_word(TABLE_FREE, WIRE_EXCLUSIVE, 1);
	ck_assert_uint_ne(ask(&keeper, 2), slot);
	table_clear_bits(&parent.head->busy[slot / 64], 1ull << slot % 64);
	parent.head->first = 0;
	ck_assert_uint_eq(ask(&keeper, 3), slot);
	ck_assert_uint_eq(table_word_generation(parent.slots[slot].word), 2);
}
END_TEST

/* The keeper, at any instruction of the parent: each lease of the slot has another range, as its generation says. */
static void next_lease(int number)
{
	static unsigned n;
	struct store_range range = granted(n);
	struct holders_file file = file_of(n);
	struct table_lease lease = {.token = "0123456789abcdef0123456789abcdef",
				    .name = "n",
				    .path = "/p",
				    .file = file,
				    .range = asked(n)};
	uint32_t slot = TABLE_NO_SLOT;
	(void)number;

	if (n > 0) {
		table_return(&keeper, 0);
		table_vacate(&keeper, 0);
	}
	if (table_ask(&keeper, &lease, &slot) != 0 || slot != 0)
		abort();
	table_grant(&keeper, slot, 1, &range, &file);
	n++;
}

START_TEST(parent_reads_while_the_keeper_writes)
{
	const struct itimerval often = {.it_interval.tv_usec = 30, .it_value.tv_usec = 30}, off = {0};
	int64_t end = clock_now_ns() + 20000 * NS_PER_MS;
	struct table_view view = {0};

	begin();
	next_lease(0);
	signal(SIGALRM, next_lease);
	setitimer(ITIMER_REAL, &often, NULL);
	while (view.generation < 20000 && clock_now_ns() < end)
		for (int i = 0; i < 1000; i++) {
			table_view(&parent, 0, &view);
			uint64_t n = view.generation - 1;

			ck_assert_int_eq(view.state, TABLE_HELD);
			if (view.file.ino != 1000 + n || view.from != (int64_t)n + 5 || view.to != (int64_t)n + 25 ||
			    view.file.kernel_ino != 2000 + n || view.space != (n % 2 ? WIRE_RECORD : WIRE_FLOCK))
				ck_abort_msg("lease %llu has what is another's", (unsigned long long)n);
		}
	setitimer(ITIMER_REAL, &off, NULL);
	signal(SIGALRM, SIG_IGN); /* one may still be on its way */
	ck_assert_uint_gt(view.generation, 1000);
}
END_TEST

START_TEST(callers)
{
	struct table_caller one = {.pid = 11, .dev = 1, .ino = 2}, two = {.pid = 12, .dev = 1, .ino = 2};

	begin();
	table_renewed(&keeper, 100, 200);
	table_add_caller(&keeper, &one);
	table_add_caller(&keeper, &one);
	ck_assert(table_has_caller(&parent, &one) && !table_has_caller(&parent, &two));
	ck_assert_uint_eq(parent.head->caller_count, 1);
	table_renewed(&keeper, 300, 400); /* those were granted or refused since */
	table_add_caller(&keeper, &two);
	ck_assert(!table_has_caller(&parent, &one) && table_has_caller(&parent, &two));
	for (int32_t pid = 100; pid < 100 + 2 * TABLE_CALLERS; pid++)
		table_add_caller(&keeper, &(struct table_caller){.pid = pid});
	ck_assert_uint_eq(parent.head->caller_count, TABLE_CALLERS);
}
END_TEST

START_TEST(pins)
{
	begin();
	table_pinned(&keeper, 500);
	table_pinned(&keeper, 300);
	ck_assert_int_eq(table_pins_until(&keeper, 1000), 500); /* the last one counts */
	ck_assert_int_eq(table_pins_until(&keeper, 400), 400);
	new_parent();
	ck_assert_int_eq(table_pins_until(&keeper, 1000), 500);
}
END_TEST

START_TEST(has_lost)
{
	uint32_t slot;

	begin();
	slot = held(&keeper, 1);
	parent.head->parent = getppid();
	ck_assert(!table_has_lost(&keeper));
	table_lose(&keeper, slot, TABLE_WHY_TAKEN);
	ck_assert(table_has_lost(&keeper));
	ck_assert(table_has_lost_on(&keeper, 7, 1001, WIRE_RECORD));
	ck_assert(!table_has_lost_on(&keeper, 7, 1001, WIRE_FLOCK) &&
		  !table_has_lost_on(&keeper, 7, 1002, WIRE_RECORD));
	parent.head->parent++; /* it has died: nobody kills */
	ck_assert(!table_has_lost(&keeper) && !table_has_lost_on(&keeper, 7, 1001, WIRE_RECORD));
	parent.head->parent--;
	table_move(&parent, slot, TABLE_LOST, TABLE_ENDING);
	ck_assert(table_has_lost(&keeper));
	table_move(&parent, slot, TABLE_ENDING, TABLE_FREE);
	ck_assert(!table_has_lost(&keeper));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("table");
	TCase *crash = tcase_create("crash"), *rest = tcase_create("rest");
	SRunner *runner;
	int failed;

	tcase_set_timeout(crash, 300);
	tcase_set_timeout(rest, 120);
	tcase_add_checked_fixture(crash, make_folder, remove_folder);
	tcase_add_checked_fixture(rest, make_folder, remove_folder);
	tcase_add_test(crash, killed_at_every_store);
	tcase_add_test(crash, killed_twice);
	tcase_add_test(crash, parent_killed_at_every_store);
	tcase_add_test(rest, host_stays);
	tcase_add_test(rest, incarnation);
	tcase_add_test(rest, longest_strings);
	tcase_add_test(rest, texts_of_all_lengths);
	tcase_add_test(rest, all_slots);
	tcase_add_test(rest, in_use);
	tcase_add_test(rest, damaged_at_every_byte);
	tcase_add_test(rest, damaged_text);
	tcase_add_loop_test(rest, nonsense, 0, sizeof(wrongs) / sizeof(*wrongs));
	tcase_add_test(rest, shared_piece);
	tcase_add_test(rest, text_area_gone);
	tcase_add_test(rest, text_area_of_another_table);
	tcase_add_test(rest, head_that_says_too_much);
	tcase_add_test(rest, other_boot);
	tcase_add_test(rest, other_version);
	tcase_add_test(rest, other_time_namespace);
	tcase_add_loop_test(rest, foreign_files, 0, 5);
	tcase_add_test(rest, cannot_put_aside);
	tcase_add_test(rest, no_room);
	tcase_add_test(rest, no_room_for_slots);
	tcase_add_test(rest, no_room_to_begin);
	tcase_add_test(rest, hidden_is_of_one_lease);
	tcase_add_test(rest, freed_by_the_parent);
	tcase_add_test(rest, parent_reads_while_the_keeper_writes);
	tcase_add_test(rest, callers);
	tcase_add_test(rest, pins);
	tcase_add_test(rest, has_lost);
	suite_add_tcase(suite, crash);
	suite_add_tcase(suite, rest);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
