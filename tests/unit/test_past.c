/* What covers a lock that the kernel lists, and where a file of another mount namespace is in ours. */
#include "keeper/kernel/mountmap.h"
#include "keeper/leases/hostid.h"
#include "keeper/leases/past.h"
#include "tests/unit/suite.h"

#define RANGE(m, a, b)                                                                                                 \
	{                                                                                                              \
		.space = WIRE_RECORD, .mode = WIRE_##m, .from = (a), .to = (b)                                         \
	}

static struct procfs_lock lock_of(enum wire_mode mode, int64_t from, int64_t to)
{
	return (struct procfs_lock){.space = WIRE_RECORD, .mode = mode, .from = from, .to = to};
}

static bool ranges_cover(const struct store_range *ranges, size_t count, const struct procfs_lock *lock)
{
	int64_t at = lock->from;

	for (size_t round = 0; round < count; round++)
		for (size_t i = 0; i < count; i++)
			past_extend(&at, &ranges[i], lock);
	return at >= lock->to;
}

TEST(ranges)
{
	const struct store_range all = RANGE(EXCLUSIVE, 0, WIRE_EOF), shared = RANGE(SHARED, 0, WIRE_EOF);
	/* Neighbours in another order, with a gap from 30 to 40, and shared from 40 on. */
	const struct store_range parts[] = {RANGE(EXCLUSIVE, 20, 30), RANGE(SHARED, 40, 60), RANGE(EXCLUSIVE, 10, 20),
					    RANGE(EXCLUSIVE, 15, 22)};
	static const struct {
		enum wire_mode mode;
		int64_t from, to;
		bool covered;
	} rows[] = {
		{WIRE_EXCLUSIVE, 10, 30, true},  {WIRE_EXCLUSIVE, 12, 13, true},  {WIRE_EXCLUSIVE, 9, 12, false},
		{WIRE_EXCLUSIVE, 10, 31, false}, {WIRE_EXCLUSIVE, 40, 41, false}, {WIRE_SHARED, 40, 60, true},
		{WIRE_SHARED, 20, 25, true},     {WIRE_SHARED, 20, 45, false},    {WIRE_SHARED, 0, WIRE_EOF, false},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct procfs_lock lock = lock_of(rows[i].mode, rows[i].from, rows[i].to);

		ck_assert_msg(ranges_cover(parts, 4, &lock) == rows[i].covered, "row %zu", i);
		ck_assert(ranges_cover(&all, 1, &lock));
		ck_assert(ranges_cover(&shared, 1, &lock) == (rows[i].mode == WIRE_SHARED));
		ck_assert(!ranges_cover(NULL, 0, &lock));
		lock.space = WIRE_FLOCK;
		ck_assert(!ranges_cover(&all, 1, &lock));
	}
}

TEST(entries)
{
	struct procfs_lock lock = lock_of(WIRE_EXCLUSIVE, 5, 15);
	struct store_entry entry = {.host = "b-1234000000000000", .file = "fe01:17", .range = RANGE(SHARED, 0, 10)};
	const char *own = "a-1234ffffffffffff";

	lock.dev = 0xfe01;
	lock.ino = 17;
	ck_assert(past_entries_cover(&entry, 1, own, &lock, true));
	ck_assert(!past_entries_cover(&entry, 0, own, &lock, true));
	ck_assert(!past_entries_cover(&entry, 1, entry.host, &lock, true));
	ck_assert(!past_entries_cover(&entry, 1, "a-1235ffffffffffff", &lock, true));
	lock.from = 10;
	ck_assert(!past_entries_cover(&entry, 1, own, &lock, true));
	lock.from = 5;
	lock.space = WIRE_FLOCK;
	ck_assert(!past_entries_cover(&entry, 1, own, &lock, true));
	lock.space = WIRE_RECORD;
	strcpy(entry.file, "fe01:18");
	ck_assert(!past_entries_cover(&entry, 1, own, &lock, true));
	ck_assert(past_entries_cover(&entry, 1, own, &lock, false));
}

TEST(hosts)
{
	char a[STORE_HOST_BYTES], b[STORE_HOST_BYTES];

	ck_assert_int_eq(hostid_make("one host", hostid_machine(), a), 0);
	ck_assert_int_eq(hostid_make("a name that is much longer than the 64 letters that the id of a host may have",
				     hostid_machine(), b),
			 0);
	ck_assert(strncmp(a, "one_host-", 9) == 0 && strlen(a) == 9 + 16 && strlen(b) == 65 + 16);
	ck_assert_str_ne(a + 9, b + 65);
	ck_assert(hostid_same_machine(a, b));
	a[9] = a[9] == '0' ? '1' : '0';
	ck_assert(!hostid_same_machine(a, b));
	ck_assert(!hostid_same_machine("a", "a") && !hostid_same_machine("a-12", "a-12") &&
		  !hostid_same_machine("", a));
}

TEST(below)
{
	ck_assert_str_eq(mountmap_below("/", "/a/b"), "/a/b");
	ck_assert_str_eq(mountmap_below("/a", "/a/b"), "/b");
	ck_assert_str_eq(mountmap_below("/a/b", "/a/b"), "");
	ck_assert_ptr_null(mountmap_below("/a", "/ab"));
	ck_assert_ptr_null(mountmap_below("/a/b", "/a"));
}

/* --- a table of mounts --- */

static struct mountmap map;

static void add_mount(UT_array *to, int id, int parent, uint64_t dev, const char *root, const char *point)
{
	const struct mountmap_mount mount = {
		.id = id, .parent = parent, .dev = dev, .root = strdup(root), .point = strdup(point), .plain = true};

	ck_assert_int_eq(array_push(to, &mount, sizeof(mount)), 0);
}

static void assert_paths(int id, const char *path, const char *first, const char *second)
{
	bool plain = false;
	char *paths;
	int ret = mountmap_paths(&map, -1, id, path, &paths, &plain);

	ck_assert_int_eq(ret, first ? 0 : -ENOENT);
	if (!first)
		return;
	ck_assert(plain);
	ck_assert_str_eq(paths, first);
	ck_assert_str_eq(paths + strlen(paths) + 1, second);
	free(paths);
}

TEST(other_namespaces)
{
	map = (struct mountmap){0};
	add_mount(&map.ours, 1, 0, 8, "/", "/");
	add_mount(&map.ours, 2, 1, 9, "/", "/srv");
	add_mount(&map.ours, 3, 1, 8, "/data", "/mnt/view"); /* a part of the first one's file system */
	add_mount(&map.ours, 4, 1, 7, "/", "/etc");          /* hides what the first one has there */
	add_mount(&map.theirs, 11, 0, 8, "/data", "/var/lock");
	add_mount(&map.theirs, 12, 0, 8, "/etc", "/conf");
	add_mount(&map.theirs, 13, 0, 5, "/", "/");
	add_mount(&map.theirs, 14, 0, 9, "/jobs", "/");
	assert_paths(1, "/any/thing", "/any/thing", "");
	assert_paths(11, "/var/lock/f", "/data/f", "/mnt/view/f");
	assert_paths(12, "/conf/f", NULL, NULL);
	assert_paths(13, "/var/lock/f", NULL, NULL);
	assert_paths(14, "/x/f", "/srv/jobs/x/f", "");
	assert_paths(11, "/somewhere/else", NULL, NULL);
	assert_paths(99, "/x", NULL, NULL);
	mountmap_free(&map);
}

/* The kernel lists mounts as they were made. One may be moved onto a later one, or lie over the folder of an earlier one. */
TEST(hidden_mounts)
{
	map = (struct mountmap){0};
	add_mount(&map.ours, 2, 4, 9, "/", "/moved");
	add_mount(&map.ours, 1, 0, 8, "/", "/");
	add_mount(&map.ours, 3, 1, 7, "/", "/over/below");
	add_mount(&map.ours, 4, 1, 6, "/", "/moved");
	add_mount(&map.ours, 5, 1, 5, "/", "/over");
	for (int i = 9; i >= 5; i--)
		add_mount(&map.theirs, i + 5, 0, (uint64_t)i, "/", "/");
	assert_paths(14, "/f", "/moved/f", "");
	assert_paths(12, "/f", NULL, NULL);
	assert_paths(11, "/f", NULL, NULL);
	assert_paths(10, "/f", "/over/f", "");
	assert_paths(13, "/moved/f", NULL, NULL);
	mountmap_free(&map);
}
