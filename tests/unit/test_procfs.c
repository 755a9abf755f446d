/* procfs/: every kind of text, as the kernel writes it, as the kernel never writes it, and as a hostile process makes
 * it. */
#include "procfs/procfs.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "procfs/ownproc.h"
#include "procfs/procfs_locks.h"
#include "procfs/procfs_mounts.h"
#include "procfs/procfs_process.h"

/* --- locks --- */

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

START_TEST(lock_lines)
{
	struct procfs_lock lock;

	ck_assert_int_eq(procfs_lock_line(lock_rows[_i].line, &lock), lock_rows[_i].lock);
	if (!lock_rows[_i].lock)
		return;
	ck_assert_int_eq(lock.space, lock_rows[_i].space);
	ck_assert_int_eq(lock.owner, lock_rows[_i].owner);
	ck_assert_int_eq(lock.mode, lock_rows[_i].mode);
	ck_assert_int_eq(lock.from, lock_rows[_i].from);
	ck_assert_int_eq(lock.to, lock_rows[_i].to);
}
END_TEST

static int count_lock(void *arg, const struct procfs_lock *lock)
{
	(void)lock;
	return ++*(int *)arg == 3 ? 77 : 0;
}

START_TEST(fdinfo_texts)
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
END_TEST

static int make_file(struct stat *st)
{
	char path[] = "/dev/shm/dflock-test-XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	unlink(path);
	ck_assert_int_eq(fstat(fd, st), 0);
	return fd;
}

struct wanted {
	struct stat st;
	unsigned count;
};

static int on_lock(void *arg, const struct procfs_lock *lock)
{
	struct wanted *w = arg;

	w->count += lock->dev == w->st.st_dev && lock->ino == w->st.st_ino;
	return 0;
}

/* More than fits into the first piece of memory: each of 500 ranges has a line. */
START_TEST(many_locks)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	struct procfs_fdinfo info, head;
	struct wanted wanted = {.count = 0};
	int fd = make_file(&wanted.st);

	for (int i = 0; i < 500; i++) {
		lock.l_start = 2 * i;
		ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
	}
	ck_assert_int_eq(procfs_fdinfo_of(fd, &info, on_lock, &wanted), 0);
	ck_assert_uint_eq(wanted.count, 500);
	ck_assert_int_eq(procfs_fdinfo_head(fd, &head), 0);
	ck_assert_int_eq(info.mount_id, head.mount_id);
	ck_assert_uint_eq(info.ino, head.ino);
	ck_assert_uint_eq(info.ino, wanted.st.st_ino);
	wanted.count = 0;
	ck_assert_int_eq(procfs_locks(on_lock, &wanted), 0);
	ck_assert_uint_eq(wanted.count, 500);
	close(fd);
}
END_TEST

/* --- processes --- */

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

START_TEST(stat_texts)
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
END_TEST

START_TEST(own_stat)
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
END_TEST

START_TEST(map_lines)
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
END_TEST

static int on_map(void *arg, const struct procfs_map *map)
{
	struct wanted *w = arg;

	w->count += map->dev == w->st.st_dev && map->ino == w->st.st_ino;
	return 0;
}

START_TEST(own_maps)
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
END_TEST

/* --- mounts --- */

START_TEST(mount_lines)
{
	char nfs[] =
		"36 35 98:0 /a\\040- /mnt/with\\040blank\\134040\\011 rw,noatime master:1 shared:2 - nfs4 10.0.0.7:/x rw,nolock\n";
	char no_source[] = "36 35 0:44 / / rw - overlay  rw,lowerdir=/a\\040b\n",
	     newline[] = "1 2 0:5 / /a\\012b\\777 rw - t s o";
	struct procfs_mount mount;

	ck_assert(procfs_mount_line(nfs, &mount));
	ck_assert_int_eq(mount.id, 36);
	ck_assert_int_eq(mount.parent, 35);
	ck_assert_uint_eq(mount.dev, makedev(98, 0));
	ck_assert_str_eq(mount.point, "/mnt/with blank\\040\t");
	ck_assert_str_eq(mount.options, "rw,noatime");
	ck_assert_str_eq(mount.type, "nfs4");
	ck_assert_str_eq(mount.source, "10.0.0.7:/x");
	ck_assert_str_eq(mount.super_options, "rw,nolock");
	ck_assert(procfs_mount_line(no_source, &mount));
	ck_assert_str_eq(mount.type, "overlay");
	ck_assert_str_eq(mount.source, "");
	ck_assert_str_eq(mount.super_options, "rw,lowerdir=/a\\040b");
	ck_assert(procfs_mount_line(newline, &mount));
	ck_assert_str_eq(mount.point, "/a\nb\xff");
}
END_TEST

START_TEST(no_mount_lines)
{
	static const char *const rows[] = {"",
					   "\n",
					   "36 35 98:0 / /mnt rw",
					   "36 35 98:0 / /mnt rw -",
					   "36 35 98:0 / /mnt rw - ext4",
					   "36 35 98:0 / /mnt rw - ext4 source",
					   "36 35 98:0 / mnt rw - ext4 source rw",
					   "36 35 98 / /mnt rw - ext4 source rw",
					   "x 35 98:0 / /mnt rw - ext4 source rw"};
	struct procfs_mount mount;
	char line[128];

	strcpy(line, rows[_i]);
	ck_assert_msg(!procfs_mount_line(line, &mount), "%s", rows[_i]);
}
END_TEST

static int on_mount(void *arg, const struct procfs_mount *mount)
{
	return strcmp(mount->point, arg) == 0 ? mount->id : 0;
}

START_TEST(own_mounts)
{
	char root[] = "/", nowhere[] = "/no/such/place";
	FILE *table = procfs_mounts_open(0), *same = procfs_mounts_open(getpid());
	int id;

	ck_assert_ptr_nonnull(table);
	ck_assert_ptr_nonnull(same);
	id = procfs_mounts(table, on_mount, root);
	ck_assert_int_gt(id, 0);
	ck_assert_int_eq(procfs_mounts(table, on_mount, nowhere), 0);
	ck_assert_int_eq(procfs_mounts(table, on_mount, root), id);
	ck_assert_int_eq(procfs_mounts(same, on_mount, root), id);
	fclose(table);
	fclose(same);
	ck_assert_ptr_null(procfs_mounts_open(-1));
}
END_TEST

/* --- walks --- */

START_TEST(walks)
{
	struct procfs_walk walk;
	bool found = false;
	int number;

	ck_assert_int_eq(procfs_walk(&walk, AT_FDCWD, "/proc"), 0);
	while ((number = procfs_next(&walk)) >= 0) {
		ck_assert_int_gt(number, 0);
		found |= number == getpid();
	}
	ck_assert(found);
	procfs_walk_end(&walk);
	ck_assert_int_eq(procfs_walk(&walk, AT_FDCWD, "/proc/0/fd"), -ENOENT);
	procfs_walk_end(&walk);
}
END_TEST

/* A walk ends in the middle, and a later one goes on there, as in a search that takes turns. */
START_TEST(a_walk_goes_on)
{
	struct procfs_walk walk;
	unsigned all = 0, parts = 0;
	long at = 0;
	int fds[200];

	for (int i = 0; i < 200; i++)
		fds[i] = dup(2);
	ck_assert_int_eq(procfs_walk(&walk, AT_FDCWD, "/proc/self/fd"), 0);
	while (procfs_next(&walk) >= 0)
		all++;
	procfs_walk_end(&walk);
	ck_assert_uint_ge(all, 200);
	for (bool more = true; more;) {
		ck_assert_int_eq(procfs_walk(&walk, AT_FDCWD, "/proc/self/fd"), 0);
		if (at)
			procfs_walk_to(&walk, at);
		for (int i = 0; i < 7 && (more = procfs_next(&walk) >= 0); i++)
			parts++;
		at = procfs_walk_at(&walk);
		procfs_walk_end(&walk);
	}
	ck_assert_uint_eq(parts, all);
	ck_assert(!procfs_has_few(getpid(), 100));
	for (int i = 0; i < 200; i++)
		close(fds[i]);
	ck_assert(procfs_has_few(getpid(), 100));
	ck_assert(procfs_has_few(0, 100));
}
END_TEST

START_TEST(kinds)
{
	int pair[2], ends[2], fds = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC), anon, file;
	char path[] = "/dev/shm/socket:-XXXXXX";

	ck_assert_int_ge(fds, 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	ck_assert_int_eq(pipe(ends), 0);
	anon = memfd_create("pipe:", MFD_CLOEXEC);
	file = mkstemp(path);
	ck_assert_int_eq(procfs_kind(fds, pair[0]), PROCFS_SOCKET);
	ck_assert_int_eq(procfs_kind(fds, ends[0]), PROCFS_PIPE);
	ck_assert_int_eq(procfs_kind(fds, anon), PROCFS_FILE); /* it can be locked */
	ck_assert_int_eq(procfs_kind(fds, file), PROCFS_FILE);
	unlink(path);
	ck_assert_int_eq(procfs_kind(fds, file), PROCFS_FILE);
	close(file);
	ck_assert_int_eq(procfs_kind(fds, file), PROCFS_FILE); /* nothing is known: it is looked at */
	close(fds);
}
END_TEST

START_TEST(texts)
{
	struct procfs_text text = {0};
	char head[8];

	ck_assert_int_eq(procfs_read(AT_FDCWD, "/proc/self/stat", &text), 0);
	ck_assert_uint_eq(strlen(text.text), text.len);
	ck_assert_int_eq(procfs_read(AT_FDCWD, "/proc/self/nothing", &text), -ENOENT);
	ck_assert_int_eq(procfs_read(AT_FDCWD, "/proc/self/comm", &text), 0);
	ck_assert_uint_eq(strlen(text.text), text.len);
	procfs_free(&text);
	ck_assert_int_eq(procfs_head(AT_FDCWD, "/proc/self/status", head, sizeof(head)), 7);
	ck_assert_uint_eq(strlen(head), 7);
	ck_assert_int_eq(procfs_head(AT_FDCWD, "/proc/self/nothing", head, sizeof(head)), -ENOENT);
	ck_assert_str_eq(head, "");
}
END_TEST

START_TEST(own_proc)
{
	char why[256] = "";

	ck_assert_msg(ownproc_check(why, sizeof(why)) == 0, "%s", why);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("procfs");
	TCase *tc = tcase_create("procfs");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_loop_test(tc, lock_lines, 0, sizeof(lock_rows) / sizeof(*lock_rows));
	tcase_add_test(tc, fdinfo_texts);
	tcase_add_test(tc, many_locks);
	tcase_add_loop_test(tc, stat_texts, 0, sizeof(stat_rows) / sizeof(*stat_rows));
	tcase_add_test(tc, own_stat);
	tcase_add_test(tc, map_lines);
	tcase_add_test(tc, own_maps);
	tcase_add_test(tc, mount_lines);
	tcase_add_loop_test(tc, no_mount_lines, 0, 9);
	tcase_add_test(tc, own_mounts);
	tcase_add_test(tc, walks);
	tcase_add_test(tc, a_walk_goes_on);
	tcase_add_test(tc, kinds);
	tcase_add_test(tc, texts);
	tcase_add_test(tc, own_proc);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
