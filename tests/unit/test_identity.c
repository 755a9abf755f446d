/* keeper/kernel/identity.h: the kernel's number of a file, in our mount namespace and in another one. */
#include "keeper/kernel/identity.h"

#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>

#include "tests/unit/own_mounts.h"
#include "tests/unit/suite.h"

static char folder[SUITE_PATH_BYTES];

static void setup(void)
{
	own_mounts();
	suite_make_folder(folder, "/tmp");
}

static void teardown(void)
{
	umount2(folder, MNT_DETACH);
	rmdir(folder);
}
FIXTURE(setup, teardown)

static int open_in(const char *name, struct stat *st)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, st), 0);
	return fd;
}

static int mount_of(int fd)
{
	struct procfs_fdinfo info;

	ck_assert_int_eq(procfs_fdinfo_head(fd, &info), 0);
	return info.mount_id;
}

static int on_lock(void *arg, const struct procfs_lock *lock)
{
	*(struct identity *)arg = (struct identity){.dev = lock->dev, .ino = lock->ino};
	return 1;
}

/* The result is the number that a lock line shows, whatever st says. */
static void check_same(int fd, pid_t pid, const struct stat *st)
{
	const struct stat wrong = {.st_dev = 1, .st_ino = st->st_ino};
	struct identity id = identity_of(fd, pid, &wrong), listed = {0};

	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	ck_assert_int_eq(procfs_fdinfo_of(fd, NULL, on_lock, &listed), 1);
	ck_assert_uint_eq(id.dev, listed.dev);
	ck_assert_uint_eq(id.ino, listed.ino);
	ck_assert_uint_eq(id.dev, st->st_dev);
}

/* The table was read before that is mounted. */
TEST(a_new_mount)
{
	struct stat st;
	int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd, mount_id;

	ck_assert(identity_mount_is_ours(mount_of(root)));
	ck_assert_int_eq(mount("none", folder, "tmpfs", 0, NULL), 0);
	fd = open_in("f", &st);
	mount_id = mount_of(fd);
	ck_assert(identity_mount_is_ours(mount_id));
	check_same(fd, 0, &st);
	close(fd);
	ck_assert_int_eq(umount(folder), 0);
	ck_assert(!identity_mount_is_ours(mount_id));
	ck_assert(!identity_mount_is_ours(-1));
	close(root);
}

TEST(another_namespace)
{
	const struct stat wrong = {.st_dev = 1, .st_ino = 2};
	int ready[2], end[2], fd;
	char byte, link[64];
	struct stat st;
	pid_t pid;

	ck_assert_int_eq(pipe(ready), 0);
	ck_assert_int_eq(pipe(end), 0);
	pid = fork();
	if (pid == 0) {
		close(end[1]);
		if (unshare(CLONE_NEWNS) != 0 || mount("none", folder, "tmpfs", 0, NULL) != 0 ||
		    dup2(open_in("f", &st), 100) != 100 || write(ready[1], "r", 1) != 1)
			_exit(1);
		_exit(read(end[0], &byte, 1) != 0);
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	snprintf(link, sizeof(link), "/proc/%d/fd/100", (int)pid);
	fd = open(link, O_RDWR);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert(!identity_mount_is_ours(mount_of(fd)));
	check_same(fd, pid, &st);
	ck_assert_uint_eq(identity_of(fd, 0, &wrong).dev, 1); /* nothing can be learnt */
	ck_assert_uint_eq(identity_of(fd, getpid(), &wrong).dev, 1);
	close(fd);
	close(end[1]);
	waitpid(pid, NULL, 0);
}

TEST(by_stat)
{
	int fds = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;
	struct identity id;
	struct stat st;

	ck_assert_int_eq(mount("none", folder, "tmpfs", 0, NULL), 0);
	fd = open_in("f", &st);
	ck_assert(identity_by_stat(fds, fd, &id));
	ck_assert_uint_eq(id.dev, st.st_dev);
	ck_assert_uint_eq(id.ino, st.st_ino);
	ck_assert(!identity_by_stat(fds, 1000, &id));
	ck_assert(!identity_by_stat(-1, fd, &id));
	close(fd);
	close(fds);
}
