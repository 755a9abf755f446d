/*
 * What flock(fd, op) wants, for every op that there is; what a struct flock wants, and what the kernel makes of it. And the list of a
 * caller's earlier locks in a range, with the stretches between them.
 */
#include <sys/file.h>

/* The shim is no part of the library that unit tests are linked with. */
#include "shim/intent.c"
#include "tests/unit/suite.h"

static const struct {
	int op;
	bool locks;
	enum wire_mode mode;
	bool nonblock;
} ops[] = {
	{LOCK_SH, true, WIRE_SHARED, false},
	{LOCK_EX, true, WIRE_EXCLUSIVE, false},
	{LOCK_SH | LOCK_NB, true, WIRE_SHARED, true},
	{LOCK_EX | LOCK_NB, true, WIRE_EXCLUSIVE, true},
	{LOCK_UN, false, 0, false},
	{LOCK_UN | LOCK_NB, false, 0, false},
	{0, false, 0, false},
	{LOCK_NB, false, 0, false},
	{LOCK_SH | LOCK_EX, false, 0, false},
	{LOCK_SH | LOCK_UN, false, 0, false},
	{LOCK_EX | LOCK_UN | LOCK_NB, false, 0, false},
	{LOCK_MAND, false, 0, false},
	{LOCK_MAND | LOCK_RW, false, 0, false},
	{LOCK_EX | 0x100, false, 0, false},
	{-1, false, 0, false},
};

TEST_EACH(flock_ops, ROWS(ops))
{
	struct intent want, untouched;

	memset(&want, 0x5a, sizeof(want));
	untouched = want;
	ck_assert_int_eq(intent_flock(ops[_i].op, &want), ops[_i].locks);
	if (!ops[_i].locks) {
		ck_assert_mem_eq(&want, &untouched, sizeof(want));
		return;
	}
	ck_assert_int_eq(want.space, WIRE_FLOCK);
	ck_assert_int_eq(want.owner, WIRE_OWNER_DESCRIPTION);
	ck_assert_int_eq(want.mode, ops[_i].mode);
	ck_assert_int_eq(want.nonblock, ops[_i].nonblock);
	ck_assert_int_eq(want.from, 0);
	ck_assert_int_eq(want.to, WIRE_EOF);
}

#define LAST INT64_MAX
#define BASE 1000 /* of SEEK_CUR and SEEK_END, in the table */

static const struct {
	short whence;
	int64_t start, len;
	int rc;
	int64_t first, last;
} ranges[] = {
	{SEEK_SET, 0, 0, 0, 0, LAST},
	{SEEK_SET, 10, 5, 0, 10, 14},
	{SEEK_SET, 10, -5, 0, 5, 9},
	{SEEK_SET, 10, -10, 0, 0, 9},
	{SEEK_SET, 10, -11, -EINVAL, 0, 0},
	{SEEK_SET, 0, -1, -EINVAL, 0, 0},
	{SEEK_SET, -1, 5, -EINVAL, 0, 0},
	{SEEK_SET, INT64_MIN, 0, -EINVAL, 0, 0},
	{SEEK_SET, 0, INT64_MIN, -EINVAL, 0, 0},
	{SEEK_SET, LAST, 0, 0, LAST, LAST},
	{SEEK_SET, LAST, 1, 0, LAST, LAST},
	{SEEK_SET, LAST, 2, -EOVERFLOW, 0, 0},
	{SEEK_SET, LAST, -1, 0, LAST - 1, LAST - 1},
	{SEEK_SET, LAST, -LAST, 0, 0, LAST - 1},
	{SEEK_SET, LAST, INT64_MIN, -EINVAL, 0, 0},
	{SEEK_SET, 0, LAST, 0, 0, LAST - 1},
	{SEEK_SET, 1, LAST, 0, 1, LAST},
	{SEEK_SET, 2, LAST, -EOVERFLOW, 0, 0},
	{SEEK_CUR, 0, 0, 0, BASE, LAST},
	{SEEK_CUR, -BASE, 1, 0, 0, 0},
	{SEEK_CUR, -BASE - 1, 1, -EINVAL, 0, 0},
	{SEEK_CUR, 0, -BASE, 0, 0, BASE - 1},
	{SEEK_CUR, LAST - BASE, 1, 0, LAST, LAST},
	{SEEK_CUR, LAST - BASE + 1, 1, -EOVERFLOW, 0, 0},
	{SEEK_END, -10, 10, 0, BASE - 10, BASE - 1},
	{SEEK_END, LAST, 0, -EOVERFLOW, 0, 0},
	{SEEK_END, INT64_MIN, 0, -EINVAL, 0, 0},
	{3, 0, 0, -EINVAL, 0, 0},
	{-1, 0, 0, -EINVAL, 0, 0},
};

TEST_EACH(record_ranges, ROWS(ranges))
{
	struct flock64 lock = {.l_type = F_RDLCK, .l_whence = ranges[_i].whence};
	struct intent want = {.owner = WIRE_OWNER_PROCESS, .nonblock = true};

	lock.l_start = ranges[_i].start;
	lock.l_len = ranges[_i].len;
	ck_assert_int_eq(intent_range(&lock, lock.l_whence == SEEK_SET ? 0 : BASE, &want), ranges[_i].rc);
	if (ranges[_i].rc < 0)
		return;
	ck_assert(want.first == ranges[_i].first && want.last == ranges[_i].last);
	ck_assert_int_eq(want.space, WIRE_RECORD);
	ck_assert_int_eq(want.mode, WIRE_SHARED);
	ck_assert_int_eq(want.owner, WIRE_OWNER_PROCESS);
	ck_assert(want.nonblock);
	/* The range that is asked for covers what is locked, and is never empty. */
	ck_assert(want.from < want.to && want.from <= want.first && intent_last(want.to) >= want.last);
	if (want.last < LAST - 1)
		ck_assert(want.from == want.first && want.to == want.last + 1);
}

TEST(record_types)
{
	struct flock64 lock = {.l_type = F_WRLCK};
	struct intent want = {0};

	ck_assert_int_eq(intent_range(&lock, 0, &want), 0);
	ck_assert_int_eq(want.mode, WIRE_EXCLUSIVE);
	lock.l_type = F_UNLCK;
	ck_assert_int_eq(intent_range(&lock, 0, &want), -EINVAL);
	lock.l_type = 17;
	ck_assert_int_eq(intent_range(&lock, 0, &want), -EINVAL);
	/* The range is looked at first. */
	lock.l_start = 1;
	lock.l_len = LAST;
	ck_assert_int_eq(intent_range(&lock, 1, &want), -EOVERFLOW);
}

static uint64_t random_state;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* Near the places where something changes, or anywhere. */
static int64_t random_offset(void)
{
	static const int64_t places[] = {0, 1, 500, 1000, 4096, INT32_MAX, INT64_MAX / 2, INT64_MAX, INT64_MIN};
	uint64_t near = next_random() % 7;
	int64_t place = places[next_random() % (sizeof(places) / sizeof(places[0]))];

	if (next_random() % 8 == 0)
		return (int64_t)next_random();
	if (next_random() % 2)
		place = (int64_t) - (uint64_t)place;
	return (int64_t)((uint64_t)place + near - 3);
}

/* The kernel's word: what F_OFD_SETLK on one description says, and what F_OFD_GETLK on another then sees. */
static void compare_with_kernel(int fd, int other, const struct flock64 *lock, int64_t base)
{
	struct flock64 taken = *lock, seen = {.l_type = F_WRLCK}, none = {.l_type = F_UNLCK};
	struct intent want = {0};
	int rc = intent_range(lock, base, &want);
	int kernel = fcntl(fd, F_OFD_SETLK, &taken) < 0 ? -errno : 0;
	char what[128];

	snprintf(what, sizeof(what), "type %d whence %d start %lld len %lld base %lld", lock->l_type, lock->l_whence,
		 (long long)lock->l_start, (long long)lock->l_len, (long long)base);
	ck_assert_msg(rc == kernel, "%s: %d, but the kernel says %d", what, rc, kernel);
	if (rc < 0)
		return;
	ck_assert_int_eq(fcntl(other, F_OFD_GETLK, &seen), 0);
	ck_assert_msg(seen.l_start == want.first && seen.l_len == intent_lock(0, want.first, want.last).l_len,
		      "%s: %lld to %lld, but the kernel has start %lld len %lld", what, (long long)want.first,
		      (long long)want.last, (long long)seen.l_start, (long long)seen.l_len);
	ck_assert_int_eq(seen.l_type, want.mode == WIRE_SHARED ? F_RDLCK : F_WRLCK);
	/* And the call that is then made in the kernel locks the same. */
	taken = intent_lock(lock->l_type, want.first, want.last);
	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &taken), 0);
	seen.l_type = F_WRLCK;
	seen.l_pid = 0;
	ck_assert_int_eq(fcntl(other, F_OFD_GETLK, &seen), 0);
	ck_assert(seen.l_start == taken.l_start && seen.l_len == taken.l_len);
	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &none), 0);
}

TEST_EACH(record_as_the_kernel, 3)
{
	char path[SUITE_PATH_BYTES];
	int fd = suite_make_file(path, "/dev/shm"), other = open(path, O_RDWR), accepted = 0;

	ck_assert_int_ge(other, 0);
	unlink(path);
	ck_assert_int_eq(ftruncate(fd, 1000), 0);
	random_state = 0x9e3779b97f4a7c15ull * (uint64_t)(_i + 1);
	for (int i = 0; i < suite_rounds(20000); i++) {
		struct flock64 lock = {.l_type = next_random() % 2 ? F_RDLCK : F_WRLCK};
		int64_t offset = random_offset();

		if (next_random() % 32 == 0)
			lock.l_type = 3 + (short)(next_random() % 3);
		lock.l_whence = (short)(next_random() % 16 ? next_random() % 3 : 3 + next_random() % 2);
		lock.l_start = random_offset();
		lock.l_len = random_offset();
		/* tmpfs has files of all lengths, and the offset may be anywhere. */
		if (next_random() % 16 == 0 && offset >= 0)
			ck_assert_int_eq(ftruncate(fd, offset), 0);
		offset = random_offset();
		if (offset >= 0)
			ck_assert(lseek(fd, offset, SEEK_SET) == offset);
		offset = lock.l_whence == SEEK_CUR   ? lseek(fd, 0, SEEK_CUR)
			 : lock.l_whence == SEEK_END ? lseek(other, 0, SEEK_END)
						     : 0;
		accepted += intent_range(&lock, offset, &(struct intent){0}) == 0;
		compare_with_kernel(fd, other, &lock, offset);
	}
	/* Some were refused, and some were not. */
	ck_assert(accepted > suite_rounds(4000) && accepted < suite_rounds(16000));
	close(fd);
	close(other);
}

/* --- the list of earlier locks --- */

static struct own list;

static void setup(void) { own_init(&list, 100, 199); }
static void teardown(void) { own_release(&list); }
FIXTURE(setup, teardown)

struct expected {
	int64_t first, last;
	int had;
};

static void check_stretches(const struct expected *expected, size_t count)
{
	struct stretch s = {0};
	size_t i = 0;

	for (; own_next(&list, &s); i++) {
		ck_assert(i < count);
		ck_assert(s.first == expected[i].first && s.last == expected[i].last);
		ck_assert_int_eq(s.had, expected[i].had);
	}
	ck_assert_uint_eq(i, count);
}

TEST(no_earlier_lock)
{
	ck_assert_int_eq(own_add(&list, 0, 200, 200), 1);
	ck_assert(!list.exclusive);
	check_stretches((struct expected[]){{100, 199, EARLIER_NONE}}, 1);
}

TEST(cut_to_the_range)
{
	ck_assert_int_eq(own_add(&list, WIRE_SHARED, 0, 110), 0);
	ck_assert_int_eq(list.next_from, 110);
	ck_assert_int_eq(own_add(&list, WIRE_EXCLUSIVE, 110, 111), 0);
	ck_assert_int_eq(own_add(&list, WIRE_SHARED, 150, WIRE_EOF), 1);
	ck_assert(list.exclusive);
	check_stretches((struct expected[]){{100, 109, WIRE_SHARED},
					    {110, 110, WIRE_EXCLUSIVE},
					    {111, 149, EARLIER_NONE},
					    {150, 199, WIRE_SHARED}},
			4);
}

TEST(beyond_the_range)
{
	ck_assert_int_eq(own_add(&list, WIRE_SHARED, 120, 130), 0);
	ck_assert_int_eq(own_add(&list, WIRE_EXCLUSIVE, 200, 300), 1);
	ck_assert(!list.exclusive);
	check_stretches(
		(struct expected[]){{100, 119, EARLIER_NONE}, {120, 129, WIRE_SHARED}, {130, 199, EARLIER_NONE}}, 3);
}

TEST(all_of_it)
{
	ck_assert_int_eq(own_add(&list, WIRE_EXCLUSIVE, 0, WIRE_EOF), 1);
	check_stretches((struct expected[]){{100, 199, WIRE_EXCLUSIVE}}, 1);
}

TEST(to_the_largest_offset)
{
	own_init(&list, 0, INT64_MAX);
	ck_assert_int_eq(own_add(&list, WIRE_SHARED, 0, 1), 0);
	ck_assert_int_eq(own_add(&list, WIRE_EXCLUSIVE, 10, WIRE_EOF), 1);
	check_stretches((struct expected[]){{0, 0, WIRE_SHARED}, {1, 9, EARLIER_NONE}, {10, INT64_MAX, WIRE_EXCLUSIVE}},
			3);
}

TEST(impossible_answers)
{
	ck_assert_int_eq(own_add(&list, WIRE_MODES, 100, 110), -EPROTO);
	ck_assert_int_eq(own_add(&list, 0, -1, 110), -EPROTO);
	ck_assert_int_eq(own_add(&list, 0, 110, 109), -EPROTO);
	/* Ends before the place that was asked from. */
	ck_assert_int_eq(own_add(&list, 0, 50, 100), -EPROTO);
	ck_assert_int_eq(own_add(&list, 0, 50, 120), 0);
	ck_assert_int_eq(own_add(&list, 0, 100, 120), -EPROTO);
	/* Overlaps the one before. */
	ck_assert_int_eq(own_add(&list, 0, 119, 130), -EPROTO);
	ck_assert_uint_eq(list.count, 1);
}

TEST(many_earlier_locks)
{
	struct stretch s = {0};
	int64_t at = 0;

	own_init(&list, 0, INT64_MAX);
	for (; at < EARLIER_MAX; at++)
		ck_assert_int_eq(own_add(&list, at % 2, at * 2, at * 2 + 1), 0);
	ck_assert_int_eq(own_add(&list, 0, at * 2, at * 2 + 1), -E2BIG);
	for (at = 0; at < EARLIER_MAX * 2; at++) {
		ck_assert(own_next(&list, &s));
		ck_assert(s.first == at);
		ck_assert_int_eq(s.had, at % 2 ? EARLIER_NONE : at / 2 % 2);
	}
	ck_assert(!own_next(&list, &s));
	own_release(&list);
	ck_assert(list.count == 0 && !list.many && !list.exclusive);
	check_stretches((struct expected[]){{0, INT64_MAX, EARLIER_NONE}}, 1);
}
