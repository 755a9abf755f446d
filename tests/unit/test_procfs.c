/* procfs/procfs.h: texts as a whole, walks, what a descriptor refers to, and mount lines, as the kernel writes them, and as it never does. */
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>

#include "procfs/procfs.h"
#include "tests/unit/suite.h"

TEST(walks)
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

/* A walk ends in the middle, and a later one goes on there, as in a search that takes turns. */
TEST(a_walk_goes_on)
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
	ck_assert(!procfs_has_few(getpid()));
	for (int i = 0; i < 200; i++)
		close(fds[i]);
	ck_assert(procfs_has_few(getpid()));
	ck_assert(procfs_has_few(0));
}

static void *in_own_table(void *arg)
{
	int *ready = arg;

	ck_assert_int_eq(unshare(CLONE_FILES), 0);
	for (int i = 0; i < 200; i++)
		dup(2);
	__atomic_store_n(ready, 1, __ATOMIC_RELEASE);
	pause();
	return NULL;
}

/* /proc/PID/fd shows the descriptors of the first thread alone. */
TEST(descriptors_of_a_thread_are_not_few)
{
	int ready = 0;
	pthread_t t;

	ck_assert_int_eq(pthread_create(&t, NULL, in_own_table, &ready), 0);
	while (!__atomic_load_n(&ready, __ATOMIC_ACQUIRE))
		sched_yield();
	ck_assert(!procfs_has_few(getpid()));
}

TEST(kinds)
{
	int pair[2], ends[2], fds = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC), anon, file;
	char folder[SUITE_PATH_BYTES], path[SUITE_PATH_BYTES + 16];

	ck_assert_int_ge(fds, 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	ck_assert_int_eq(pipe(ends), 0);
	anon = memfd_create("pipe:", MFD_CLOEXEC);
	suite_make_folder(folder, "/dev/shm");
	snprintf(path, sizeof(path), "%s/socket:", folder);
	file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(file, 0);
	ck_assert_int_eq(procfs_kind(fds, pair[0]), PROCFS_SOCKET);
	ck_assert_int_eq(procfs_kind(fds, ends[0]), PROCFS_PIPE);
	ck_assert_int_eq(procfs_kind(fds, anon), PROCFS_FILE); /* it can be locked */
	ck_assert_int_eq(procfs_kind(fds, file), PROCFS_FILE);
	unlink(path);
	rmdir(folder);
	ck_assert_int_eq(procfs_kind(fds, file), PROCFS_FILE);
	close(file);
	ck_assert_int_eq(procfs_kind(fds, file), PROCFS_FILE); /* nothing is known: it is looked at */
	close(fds);
}

TEST(texts)
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

TEST(own_proc)
{
	char why[256] = "";

	ck_assert_msg(procfs_check(why, sizeof(why)) == 0, "%s", why);
}

TEST(mount_lines)
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

TEST_EACH(no_mount_lines, 9)
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

static int on_mount(void *arg, const struct procfs_mount *mount)
{
	return strcmp(mount->point, arg) == 0 ? mount->id : 0;
}

TEST(own_mounts)
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
