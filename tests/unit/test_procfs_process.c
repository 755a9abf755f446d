/* procfs/procfs.h: lock lines, fdinfo, stat and maps, as the kernel writes them, as it never does, and as a hostile process makes them. */
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "procfs/procfs.h"
#include "tests/unit/suite.h"

/* A descriptor of a new file on a tmpfs, which has no name any more. */
static int make_file(struct stat *st)
{
	int fd = suite_nameless_file();

	ck_assert_int_eq(fstat(fd, st), 0);
	return fd;
}

struct wanted {
	struct stat st;
	unsigned count;
};

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

/* Other programs' locks may come and go all the time. */
static void was_read(int ret) { ck_assert(ret == 0 || ret == -EAGAIN); }

#define WAITERS 400

/* Each behind the one before, and its line longer by a blank. */
TEST(many_wait_for_one)
{
	struct wanted wanted = {.count = 0};
	int fd = make_file(&wanted.st), status;
	pid_t pids[WAITERS];
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	for (int i = 0; i < WAITERS; i++) {
		pids[i] = fork();
		ck_assert_int_ge(pids[i], 0);
		if (pids[i] == 0)
			_exit(flock(open(path, O_RDWR), LOCK_EX));
	}
	for (int tries = 0; tries < 500 && wanted.count != WAITERS; tries++) {
		wanted.count = 0;
		was_read(procfs_waits(on_lock, &wanted));
		usleep(10000);
	}
	for (int i = 0; i < WAITERS; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], &status, 0);
	}
	ck_assert_uint_eq(wanted.count, WAITERS);
}

#define MANY 500
static bool listed[MANY];

static int on_one_of_many(void *arg, const struct procfs_lock *lock)
{
	struct wanted *w = arg;

	if (lock->dev == w->st.st_dev && lock->ino == w->st.st_ino) {
		listed[lock->from / 2] = true;
		w->count++;
	}
	return 0;
}

static size_t count_listed(void)
{
	size_t count = 0;

	for (size_t i = 0; i < MANY; i++)
		count += listed[i];
	return count;
}

/* Each of them once, as soon as no other program's locks come or go meanwhile. */
static void each_is_listed_once(struct wanted *wanted, procfs_lock_cb *cb)
{
	wanted->count = 0;
	for (int reading = 0; reading < 500 && wanted->count != MANY; reading++) {
		wanted->count = 0;
		was_read(procfs_locks(cb, wanted));
	}
	ck_assert_uint_eq(wanted->count, MANY);
}

/* Takes locks on MANY ranges of one file: the kernel gives their lines in several pieces. */
static int lock_many(struct wanted *wanted)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	int fd = make_file(&wanted->st);

	for (int i = 0; i < MANY; i++) {
		lock.l_start = 2 * i;
		ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
	}
	return fd;
}

TEST(many_locks)
{
	struct procfs_fdinfo info, head;
	struct wanted wanted = {.count = 0};
	int fd = lock_many(&wanted);

	ck_assert_int_eq(procfs_fdinfo_of(fd, &info, on_lock, &wanted), 0);
	ck_assert_uint_eq(wanted.count, MANY);
	ck_assert_int_eq(procfs_fdinfo_head(fd, &head), 0);
	ck_assert_int_eq(info.mount_id, head.mount_id);
	ck_assert_uint_eq(info.ino, head.ino);
	ck_assert_uint_eq(info.ino, wanted.st.st_ino);
	each_is_listed_once(&wanted, on_one_of_many);
	ck_assert_uint_eq(count_listed(), MANY);
	close(fd);
}

/* Takes and drops `some` locks at once, again and again: what stands behind them in the list is not where it was then. */
static void come_and_go(int some)
{
	struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET},
		     one = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	struct stat st;
	int fd = make_file(&st);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;; fcntl(fd, F_OFD_SETLK, &all))
		for (one.l_start = 0; one.l_start < 2 * some; one.l_start += 2)
			fcntl(fd, F_OFD_SETLK, &one);
}

static const int crowds[] = {1, 20, 100, 400};

TEST_EACH(many_locks_while_others_come_and_go, ROWS(crowds))
{
	struct wanted wanted = {.count = 0};
	int fd = lock_many(&wanted);
	pid_t pid = fork();
	int ret, all = 0;

	if (pid == 0)
		come_and_go(crowds[_i]);
	for (int reading = 0; reading < 100; reading++) {
		memset(listed, 0, sizeof(listed));
		ret = procfs_locks(on_one_of_many, &wanted);
		was_read(ret);
		ck_assert(ret == -EAGAIN || count_listed() == MANY);
		all += ret == 0;
	}
	ck_assert(all > 0 || crowds[_i] > 20);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(fd);
}

/* Of one process: each has a line, and all lines are alike. */
TEST(many_locks_that_are_alike)
{
	struct wanted wanted = {.count = 0};
	int fd = make_file(&wanted.st), fds[MANY];
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	for (int i = 0; i < MANY; i++) {
		fds[i] = open(path, O_RDONLY | O_CLOEXEC);
		ck_assert_int_eq(flock(fds[i], LOCK_SH), 0);
	}
	each_is_listed_once(&wanted, on_lock);
	for (int i = 0; i < MANY; i++)
		close(fds[i]);
	close(fd);
}

static const struct {
	const char *text;
	bool ok;
	char state;
	pid_t parent;
	uint64_t started;
	int stop_signal;
} stat_rows[] = {
	{"7 (cat) T 5 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 123 0 0 18446744073709551615 1 1 1 1 0 0 0 0 0 0 0 0 "
	 "17 0 0 0 0 0 0 1 1 1 1 1 1 1 19\n",
	 true, 'T', 5, 123, 19},
	{"7 (a) S 1 (b)) R 5 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 123 0\n", true, 'R', 5, 123, 0},
	{"7 (a\nb c) S 1 2) R 5 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 18446744073709551615", true, 'R', 5,
	 UINT64_MAX, 0},
	{"7 (cat) T 5 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 \n", false, 0, 0, 0, 0},
	{"7 (cat) ", false, 0, 0, 0, 0},
	{"7 (cat)", false, 0, 0, 0, 0},
	{"7 cat T 5 7", false, 0, 0, 0, 0},
	{"", false, 0, 0, 0, 0},
};

TEST_EACH(stat_texts, ROWS(stat_rows))
{
	struct procfs_stat stat;

	ck_assert_int_eq(procfs_stat(stat_rows[_i].text, &stat), stat_rows[_i].ok);
	if (!stat_rows[_i].ok)
		return;
	ck_assert_int_eq(stat.pid, 7);
	ck_assert_int_eq(stat.state, stat_rows[_i].state);
	ck_assert_int_eq(stat.parent, stat_rows[_i].parent);
	ck_assert_int_eq(stat.group, 7);
	ck_assert_uint_eq(stat.started, stat_rows[_i].started);
	ck_assert_int_eq(stat.stop_signal, stat_rows[_i].stop_signal);
}

TEST(own_stat)
{
	char before[16] = "";
	struct procfs_stat stat;

	prctl(PR_GET_NAME, before);
	prctl(PR_SET_NAME, ") Z 1 \n(");
	ck_assert(procfs_stat_read(AT_FDCWD, "/proc/self/stat", &stat));
	prctl(PR_SET_NAME, before);
	ck_assert_int_eq(stat.pid, getpid());
	ck_assert_int_eq(stat.parent, getppid());
	ck_assert_int_eq(stat.group, getpgrp());
	ck_assert_int_eq(stat.state, 'R');
	ck_assert(!procfs_stat_read(AT_FDCWD, "/proc/0/stat", &stat));
	ck_assert_int_ge(procfs_ran_ns(getpid()), 0);
	ck_assert_int_eq(procfs_ran_ns(0), -1);
}

TEST(map_lines)
{
	char file[] = "7f95c2eb4000-7f95c2eb5000 rw-s 00002000 fd:1b 4879360                    /a b (deleted)\n";
	char none[] = "7f95c2eb4000-ffffffffff600000 --xp 00000000 00:00 0 \n", heap[] = "1-2 r--p 0 00:00 0 [heap]";
	char broken[] = "7f95c2eb4000-7f95c2eb5000 rw-s 00002000 fd:1b\n", empty[] = "";
	struct procfs_map map;

	ck_assert(procfs_map_line(file, &map));
	ck_assert_uint_eq(map.from, 0x7f95c2eb4000);
	ck_assert_uint_eq(map.to, 0x7f95c2eb5000);
	ck_assert_mem_eq(map.rights, "rw-s", 4);
	ck_assert_uint_eq(map.dev, makedev(0xfd, 0x1b));
	ck_assert_uint_eq(map.ino, 4879360);
	ck_assert_str_eq(map.name, "/a b (deleted)");
	ck_assert(procfs_map_line(none, &map));
	ck_assert_uint_eq(map.to, 0xffffffffff600000);
	ck_assert_uint_eq(map.ino, 0);
	ck_assert_str_eq(map.name, "");
	ck_assert(procfs_map_line(heap, &map));
	ck_assert_str_eq(map.name, "[heap]");
	ck_assert(!procfs_map_line(broken, &map));
	ck_assert(!procfs_map_line(empty, &map));
}

static int on_map(void *arg, const struct procfs_map *map)
{
	struct wanted *w = arg;

	w->count += map->dev == w->st.st_dev && map->ino == w->st.st_ino;
	return 0;
}

TEST(own_maps)
{
	struct wanted wanted = {.count = 0};
	int fd = make_file(&wanted.st);
	void *at;

	ck_assert_int_eq(ftruncate(fd, 4096), 0);
	at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert(at != MAP_FAILED);
	close(fd);
	ck_assert_int_eq(procfs_maps(getpid(), on_map, &wanted), 0);
	ck_assert_uint_eq(wanted.count, 1);
	munmap(at, 4096);
	ck_assert_int_eq(procfs_maps(0, on_map, &wanted), -ENOENT);
}
