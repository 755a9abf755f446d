/* wire/tally.c: entries, held locks, and contents that a hostile process wrote. */
#include <limits.h>

#include "wire/tally.h"
#include "tests/unit/suite.h"

static struct tally *tally;

static void setup(void)
{
	tally = aligned_alloc(64, sizeof(*tally));
	ck_assert_ptr_nonnull(tally);
	memset(tally, 0, sizeof(*tally));
	tally_init(tally);
}

static void teardown(void) { free(tally); }
FIXTURE(setup, teardown)

static struct tally_entry *find(const char *program, const char *path, enum wire_space space)
{
	const struct tally_key key = {.program = program, .path = path, .space = space};
	return tally_find(tally, &key);
}

static size_t ready(void)
{
	struct tally_line line;
	size_t n = 0;
	for (size_t i = 0; i < TALLY_ENTRIES; i++)
		n += tally_read(tally, i, &line);
	return n;
}

TEST(entries)
{
	struct tally_entry *one = find("flock", "/a", WIRE_FLOCK);
	struct tally_line line;
	char path[PATH_MAX];

	ck_assert_ptr_nonnull(one);
	ck_assert_ptr_eq(find("flock", "/a", WIRE_FLOCK), one);
	ck_assert_ptr_ne(find("flock", "/b", WIRE_FLOCK), one);
	ck_assert_ptr_ne(find("flock", "/a", WIRE_RECORD), one);
	ck_assert_ptr_ne(find("flocks", "/a", WIRE_FLOCK), one);
	ck_assert_uint_eq(ready(), 4);
	tally_add(one, TALLY_CALLS, 2);
	tally_add_time(one, TALLY_WAITED_NS, 5);
	tally_add_time(one, TALLY_WAITED_NS, 9);
	tally_add_time(one, TALLY_WAITED_NS, 7);
	tally_add_time(one, TALLY_WAITED_NS, -7);
	ck_assert(tally_read(tally, (size_t)(one - tally->entries), &line));
	ck_assert_str_eq(line.program, "flock");
	ck_assert_str_eq(line.path, "/a");
	ck_assert_uint_eq(line.counts[TALLY_CALLS], 2);
	ck_assert_uint_eq(line.counts[TALLY_WAITED_NS], 21);
	ck_assert_uint_eq(line.counts[TALLY_WAITED_MAX_NS], 9);
	/* A program's name may be longer than the kernel's; it is found again all the same. */
	memset(path, 'x', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	one = find("a program with a long name", path, WIRE_FLOCK);
	ck_assert_ptr_nonnull(one);
	ck_assert_ptr_eq(find("a program with a long name", path, WIRE_FLOCK), one);
}

/* Another process was killed, or is stopped, while it made the entry. */
TEST(never_made)
{
	struct tally_entry *one = find("flock", "/a", WIRE_FLOCK), *other;
	one->state = TALLY_BEING_MADE;
	other = find("flock", "/a", WIRE_FLOCK);
	ck_assert_ptr_nonnull(other);
	ck_assert_ptr_ne(other, one);
	ck_assert_uint_eq(ready(), 1);
}

/* Of short names, and of the longest. */
TEST_EACH(too_many_files, 2)
{
	char path[PATH_MAX];
	size_t found = 0;

	memset(path, 'x', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	for (int i = 0; i < 2 * TALLY_ENTRIES; i++) {
		path[snprintf(path, 16, "/%d", i)] = _i ? 'x' : '\0';
		found += find("p", path, WIRE_FLOCK) != NULL;
	}
	if (_i)
		ck_assert_uint_eq(found, TALLY_NAMES_BYTES / PATH_MAX);
	else
		ck_assert(found >= TALLY_ENTRIES / 2 && found <= TALLY_ENTRIES);
	ck_assert_uint_eq(tally->left_out, 2 * TALLY_ENTRIES - found);
	ck_assert_uint_eq(ready(), found);
	/* A short one still has no room for its name, and no entry is used up for that. */
	if (_i)
		ck_assert_ptr_null(find("p", "/short", WIRE_FLOCK));
	ck_assert_uint_eq(ready(), found);
}

static struct tally_lock lock_of(bool exclusive, uint32_t owner)
{
	return (struct tally_lock){
		.dev = 1, .ino = 2, .exclusive = exclusive, .owner = owner, .first = 0, .last = INT64_MAX};
}

/* Process `who` unlocks at that time; then so many locks have ended, after so many ns. */
static void check_unlock(const struct tally_entry *e, const struct tally_lock *lock, uint32_t who, int64_t at,
			 uint64_t ended, uint64_t held_ns)
{
	tally_unlock(tally, lock, who, at);
	ck_assert_uint_eq(e->counts[TALLY_ENDED], ended);
	ck_assert_uint_eq(e->counts[TALLY_HELD_NS], held_ns);
}

/* flock(1) takes the lock and ends; another flock(1) unlocks it. If it ended by a close, nobody knows when. */
TEST(unlocked_by_another_process_or_closed)
{
	struct tally_entry *e = find("flock", "/a", WIRE_FLOCK);
	const struct tally_lock lock = lock_of(true, TALLY_ANYBODY), shared = lock_of(false, 8);

	tally_take(tally, e, &lock, 100);
	check_unlock(e, &lock, 77, 150, 1, 50);
	check_unlock(e, &lock, 77, 170, 1, 50);
	tally_take(tally, e, &lock, 180);
	tally_take(tally, e, &lock, 200);
	check_unlock(e, &lock, 77, 250, 2, 100);
	tally_take(tally, e, &lock, 300);
	tally_take(tally, e, &shared, 400);
	check_unlock(e, &shared, 9, 500, 2, 100);
	check_unlock(e, &shared, 8, 600, 3, 300);
}

/* Ranges of one process: an unlock of all ends all, of a part only what is in it. */
TEST(ranges)
{
	struct tally_entry *e = find("sqlite3", "/a", WIRE_RECORD);
	struct tally_lock low = lock_of(true, 7), high = lock_of(true, 7), all = lock_of(true, 7);

	low.space = high.space = all.space = WIRE_RECORD;
	low.last = 9;
	high.first = 100;
	tally_take(tally, e, &low, 100);
	tally_take(tally, e, &high, 100);
	check_unlock(e, &low, 8, 105, 0, 0);
	check_unlock(e, &low, 7, 110, 1, 10);
	tally_take(tally, e, &low, 200);
	check_unlock(e, &all, 7, 300, 3, 200);
}

/* Locks of one file that overlap in time: what counts is when at least one of those that have ended was held. */
TEST_EACH(at_once, 20)
{
	struct tally_entry *e = find("sqlite3", "/a", WIRE_RECORD);
	struct tally_lock lock = lock_of(true, 7);
	int64_t since[8] = {0};
	bool held[2000] = {false};
	uint64_t sum, longest = 0;

	srandom((unsigned)_i);
	for (int64_t now = 1; now < 2000; now++) {
		int64_t i = random() % 8, was = since[i];

		lock.first = lock.last = i;
		if (!was && random() % 2) {
			tally_take(tally, e, &lock, since[i] = now);
		} else if (was && random() % 16 == 0) {
			tally_unlock(tally, &lock, 7, now);
			memset(held + was, true, (size_t)(now - was));
			longest = longest < (uint64_t)(now - was) ? (uint64_t)(now - was) : longest;
			since[i] = 0;
		}
		sum = 0;
		for (size_t tick = 0; tick < 2000; tick++)
			sum += held[tick];
		ck_assert_uint_eq(e->counts[TALLY_HELD_NS], sum);
	}
	ck_assert_uint_gt(longest, 0);
	ck_assert_uint_eq(e->counts[TALLY_HELD_MAX_NS], longest);
}

/* Locks that end by a close leave their slots; the oldest one goes. */
TEST(more_than_can_be_held)
{
	struct tally_entry *e = find("p", "/a", WIRE_FLOCK);
	struct tally_lock lock = lock_of(true, TALLY_ANYBODY);

	for (unsigned i = 0; i <= TALLY_HELD; i++) {
		lock.ino = i;
		tally_take(tally, e, &lock, 100 + i);
	}
	lock.ino = 0;
	check_unlock(e, &lock, 7, 1000, 0, 0);
	lock.ino = 1;
	check_unlock(e, &lock, 7, 1000, 1, 899);
}

/* Whatever a process of the job writes there: nothing is read or written outside of it (the sanitizers watch). */
TEST_EACH(hostile, 3)
{
	const struct tally_lock lock = lock_of(true, TALLY_ANYBODY);
	struct tally_line line;
	unsigned char *bytes = (unsigned char *)tally;

	srandom((unsigned)_i);
	for (int round = 0; round < 4; round++) {
		for (size_t i = 0; i < sizeof(*tally); i++)
			bytes[i] = (unsigned char)(random() % (round % 2 ? 256 : 3));
		for (size_t i = 0; i < TALLY_ENTRIES; i += 1 + (size_t)random() % 3)
			tally->entries[i].state = TALLY_READY;
		for (size_t i = 0; i < TALLY_HELD; i++) {
			tally->held[i].state = TALLY_READY;
			if (random() % 2) {
				tally->held[i].lock = lock;
				tally->held[i].lock.first = 0;
			}
		}
		find("p", "/a", WIRE_FLOCK);
		tally_take(tally, &tally->entries[3], &lock, 1);
		tally_unlock(tally, &lock, 1, 2);
		for (size_t i = 0; i < TALLY_ENTRIES; i++)
			if (tally_read(tally, i, &line))
				ck_assert(line.path + strlen(line.path) < tally->names + TALLY_NAMES_BYTES);
	}
}
