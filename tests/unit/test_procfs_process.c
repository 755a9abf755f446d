/* procfs/procfs.h: stat and maps, as the kernel writes them, and as a hostile process makes them. */
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sysmacros.h>

#include "procfs/procfs.h"
#include "tests/unit/procfs_file.h"

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
