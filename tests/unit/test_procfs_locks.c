/* procfs/procfs.h: lock lines and fdinfo, as the kernel writes them, and as it never does. */
#include "procfs/procfs.h"
#include "tests/unit/procfs_file.h"

static const struct {
	const char *line;
	bool lock;
	enum wire_space space;
	enum wire_owner owner;
	enum wire_mode mode;
	int64_t from, to;
} lock_rows[] = {
	{"lock:\t1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF\n", true, WIRE_FLOCK, WIRE_OWNER_DESCRIPTION,
	 WIRE_EXCLUSIVE, 0, WIRE_EOF},
	{"lock:\t1: FLOCK  ADVISORY  READ 359 00:13:11691 0 EOF\n", true, WIRE_FLOCK, WIRE_OWNER_DESCRIPTION,
	 WIRE_SHARED, 0, WIRE_EOF},
	{"lock:\t12: POSIX  ADVISORY  WRITE 9 fd:01:7 5 5\n", true, WIRE_RECORD, WIRE_OWNER_PROCESS, WIRE_EXCLUSIVE, 5,
	 6},
	{"7: POSIX  MSNFS     READ  9 fd:01:7 0 0\n", true, WIRE_RECORD, WIRE_OWNER_PROCESS, WIRE_SHARED, 0, 1},
	{"lock:\t2: OFDLCK ADVISORY  READ -1 08:01:7343 9223372036854775806 EOF\n", true, WIRE_RECORD,
	 WIRE_OWNER_DESCRIPTION, WIRE_SHARED, INT64_MAX - 1, WIRE_EOF},
	{"lock:\t2: OFDLCK ADVISORY  READ -1 08:01:7343 0 9223372036854775806", true, WIRE_RECORD,
	 WIRE_OWNER_DESCRIPTION, WIRE_SHARED, 0, INT64_MAX},
	{"1: -> FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF\n", false, 0, 0, 0, 0, 0},
	{"lock:\t1: LEASE  ACTIVE    WRITE 359 00:13:11691 0 EOF\n", false, 0, 0, 0, 0, 0},
	{"lock:\t1: DELEG  ACTIVE    READ 359 00:13:11691 0 EOF\n", false, 0, 0, 0, 0, 0},
	{"lock:\t1: FLOCK  ADVISORY  UNLCK 359 00:13:11691 0 EOF\n", false, 0, 0, 0, 0, 0},
	{"lock:\t1: POSIX  ADVISORY  WRITE 9 fd:01:7 5 4\n", false, 0, 0, 0, 0, 0},
	{"lock:\t1: POSIX  ADVISORY  WRITE 9 fd:01:7 -5 4\n", false, 0, 0, 0, 0, 0},
	{"lock:\t1: POSIX  ADVISORY  WRITE 9 fd:01:7 0 9223372036854775807\n", false, 0, 0, 0, 0, 0},
	{"lock:\t1: POSIX  ADVISORY  WRITE 9 fd:01:7 0 99999999999999999999\n", false, 0, 0, 0, 0, 0},
	{"lock:\t1: POSIX  ADVISORY  WRITE 9 fd:01:7 x EOF\n", false, 0, 0, 0, 0, 0},
	{"lock:\t1: FLOCK\n", false, 0, 0, 0, 0, 0},
	{"pos:\t0\n", false, 0, 0, 0, 0, 0},
	{"", false, 0, 0, 0, 0, 0},
};

TEST_EACH(lock_lines, ROWS(lock_rows))
{
	struct procfs_lock lock;

	ck_assert_int_eq(procfs_lock_line(lock_rows[_i].line, &lock), lock_rows[_i].lock);
	ck_assert(!procfs_wait_line(lock_rows[_i].line, &lock) || strstr(lock_rows[_i].line, "->"));
	if (!lock_rows[_i].lock)
		return;
	ck_assert_int_eq(lock.space, lock_rows[_i].space);
	ck_assert_int_eq(lock.owner, lock_rows[_i].owner);
	ck_assert_int_eq(lock.mode, lock_rows[_i].mode);
	ck_assert_int_eq(lock.from, lock_rows[_i].from);
	ck_assert_int_eq(lock.to, lock_rows[_i].to);
}

/* One waits for a lock, the other behind the first. */
TEST_EACH(wait_lines, 2)
{
	static const char *const lines[] = {"3: -> POSIX  ADVISORY  READ  20250 00:1b:26202 3 4\n",
					    "3:  -> POSIX  ADVISORY  READ  20250 00:1b:26202 3 4\n"};
	struct procfs_lock lock;

	ck_assert(procfs_wait_line(lines[_i], &lock));
	ck_assert_int_eq(lock.locker, 20250);
	ck_assert_int_eq(lock.owner, WIRE_OWNER_PROCESS);
	ck_assert_int_eq(lock.mode, WIRE_SHARED);
	ck_assert_uint_eq(lock.ino, 26202);
	ck_assert_int_eq(lock.from, 3);
	ck_assert_int_eq(lock.to, 5);
	ck_assert(!procfs_lock_line(lines[_i], &lock));
}

static int count_lock(void *arg, const struct procfs_lock *lock) { return ++*(int *)arg == 3 ? 77 : 0; }

TEST(fdinfo_texts)
{
	char text[] = "pos:\t0\nflags:\t0100002\nmnt_id:\t30\nino:\t18446744073709551615\n"
		      "lock:\t1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF\n"
		      "lock:\t2: LEASE  ACTIVE    WRITE 359 00:13:11691 0 EOF\n"
		      "lock:\t3: POSIX  ADVISORY  WRITE 359 00:13:11691 0 EOF\ninotify wd:1 ino:9 sdev:1\n"
		      "lock:\t4: POSIX  ADVISORY  WRITE 359 00:13:11691 7 8";
	char old[] = "pos:\t0\nflags:\t02\nmnt_id:\t11\n", nothing[] = "";
	struct procfs_fdinfo info;
	int count = 0;

	ck_assert_int_eq(procfs_fdinfo(text, &info, count_lock, &count), 77);
	ck_assert_int_eq(count, 3);
	ck_assert_int_eq(info.mount_id, 30);
	ck_assert_uint_eq(info.ino, UINT64_MAX);
	ck_assert_int_eq(procfs_fdinfo(old, &info, NULL, NULL), 0);
	ck_assert_int_eq(info.mount_id, 11);
	ck_assert_uint_eq(info.ino, 0);
	ck_assert_int_eq(procfs_fdinfo(nothing, &info, NULL, NULL), 0);
	ck_assert_int_eq(info.mount_id, -1);
	ck_assert_int_lt(procfs_fdinfo_head(-1, &info), 0);
	ck_assert_int_eq(info.mount_id, -1);
	ck_assert_int_eq(procfs_fdinfo_of(-1, &info, NULL, NULL), -ENOENT);
	ck_assert_int_eq(info.mount_id, -1);
}

static int on_lock(void *arg, const struct procfs_lock *lock)
{
	struct wanted *w = arg;

	w->count += lock->dev == w->st.st_dev && lock->ino == w->st.st_ino;
	return 0;
}

#define MANY 500
static bool listed[MANY];

static int on_one_of_many(void *arg, const struct procfs_lock *lock)
{
	const struct wanted *w = arg;

	if (lock->dev == w->st.st_dev && lock->ino == w->st.st_ino)
		listed[lock->from / 2] = true;
	return 0;
}

static size_t count_listed(void)
{
	size_t count = 0;

	for (size_t i = 0; i < MANY; i++)
		count += listed[i];
	return count;
}

/* More than fits into the first piece of memory: each of these ranges has a line. While other locks of the machine come
 * and go, one reading of /proc/locks may have a line twice, or not at all (keeper/kernel/refind.h). */
TEST(many_locks)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	struct procfs_fdinfo info, head;
	struct wanted wanted = {.count = 0};
	int fd = make_file(&wanted.st);

	for (int i = 0; i < MANY; i++) {
		lock.l_start = 2 * i;
		ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
	}
	ck_assert_int_eq(procfs_fdinfo_of(fd, &info, on_lock, &wanted), 0);
	ck_assert_uint_eq(wanted.count, MANY);
	ck_assert_int_eq(procfs_fdinfo_head(fd, &head), 0);
	ck_assert_int_eq(info.mount_id, head.mount_id);
	ck_assert_uint_eq(info.ino, head.ino);
	ck_assert_uint_eq(info.ino, wanted.st.st_ino);
	for (int reading = 0; reading < 3; reading++)
		ck_assert_int_eq(procfs_locks(on_one_of_many, &wanted), 0);
	ck_assert_uint_eq(count_listed(), MANY);
	close(fd);
}
