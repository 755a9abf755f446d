/* Which file systems are known to be local: real mounts, in a mount namespace of each test's own. */
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>

#include "keeper/kernel/inspect.h"
#include "keeper/kernel/mounts.h"
#include "tests/unit/own_mounts.h"
#include "tests/unit/suite.h"
#include "tests/unit/wait_until.h"

static struct mounts *mounts;
static char folder[SUITE_PATH_BYTES]; /* a tmpfs */
static pid_t server;                  /* of a FUSE mount; 0: none */

static const char *path(const char *name)
{
	static char paths[8][256];
	static unsigned next;
	char *p = paths[next++ % 8];

	snprintf(p, sizeof(paths[0]), "%s/%s", folder, name);
	return p;
}

static void make_dir(const char *name) { ck_assert_msg(mkdir(path(name), 0755) == 0, "%s: %s", name, strerror(errno)); }

static void setup(void)
{
	server = 0;
	own_mounts();
	suite_make_folder(folder, "/tmp");
	ck_assert_int_eq(mount("none", folder, "tmpfs", 0, NULL), 0);
	make_dir("upper");
	make_dir("work");
	make_dir("lower");
	make_dir("over");
	mounts = mounts_new();
	ck_assert_ptr_nonnull(mounts);
}

static void teardown(void)
{
	mounts_free(mounts);
	umount2(path("over"), MNT_DETACH);
	umount2(path("fuse"), MNT_DETACH);
	if (server) {
		kill(server, SIGKILL);
		waitpid(server, NULL, 0);
	}
	umount2(folder, MNT_DETACH);
	rmdir(folder);
}
FIXTURE(setup, teardown)

/* Its server ends with the test, also with one that fails. */
static void mount_fuse(void)
{
	struct stat plain, mounted;

	make_dir("fuse");
	make_dir("below");
	ck_assert_int_eq(stat(path("fuse"), &plain), 0);
	server = fork();
	if (server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execlp("bindfs", "bindfs", "-f", path("below"), path("fuse"), NULL);
		_exit(127);
	}
	wait_until(waitpid(server, NULL, WNOHANG) != 0 ||
		   (stat(path("fuse"), &mounted) == 0 && mounted.st_dev != plain.st_dev));
	ck_assert_int_eq(mkdir(path("fuse/lower"), 0755), 0);
}

static void overlay(const char *lower)
{
	char options[1024];

	snprintf(options, sizeof(options), "lowerdir=%s,upperdir=%s,workdir=%s", lower, path("upper"), path("work"));
	ck_assert_msg(mount("none", path("over"), "overlay", 0, options) == 0, "%s: %s", options, strerror(errno));
}

static bool is_local_by(struct mounts *by, int fd)
{
	uint64_t device, ino;

	return mounts_local(by, fd, &device, &ino);
}

static bool is_local_at(const char *at, int flags, uint64_t *device)
{
	int fd = open(at, flags | O_CLOEXEC, 0644);
	uint64_t number, ino;
	bool local;

	ck_assert_msg(fd >= 0, "%s: %s", at, strerror(errno));
	local = mounts_local(mounts, fd, device ? device : &number, &ino);
	close(fd);
	return local;
}

static bool is_local(const char *name) { return is_local_at(path(name), O_RDWR | O_CREAT, NULL); }

TEST(by_type)
{
	struct stat st;
	uint64_t device;

	ck_assert(is_local("f"));
	ck_assert(!is_local_at("/proc/self/status", O_RDONLY, NULL));
	ck_assert(!is_local_by(NULL, 0));
	ck_assert(!is_local_by(mounts, -1));
	mount_fuse();
	ck_assert(!is_local("fuse/f"));
	ck_assert_int_eq(stat(path("fuse/f"), &st), 0);
	is_local_at(path("fuse/f"), O_RDWR, &device);
	ck_assert_uint_eq(device, st.st_dev);
}

TEST(overlay_on_local)
{
	overlay(path("lower"));
	ck_assert(is_local("over/f"));
	ck_assert(is_local_at(path("over"), O_RDONLY | O_DIRECTORY, NULL));
}

static int on_lock(void *arg, const struct procfs_lock *lock)
{
	*(struct identity *)arg = (struct identity){.dev = lock->dev, .ino = lock->ino};
	return 1;
}

/* inspect_ground(): the number that lock lines show, which is not always what stat says. */
static void check_number(const char *name)
{
	struct identity listed = {0};
	struct inspect_seen seen;
	int fd = open(path(name), O_RDONLY | O_CREAT | O_CLOEXEC, 0644);
	uint64_t dev;
	struct stat st;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(inspect_ground(mounts, fd, &dev, &seen), INSPECT_LOCAL);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_eq(dev, st.st_dev);
	ck_assert_uint_eq(seen.st.st_dev, st.st_dev);
	ck_assert_uint_eq(seen.st.st_ino, st.st_ino);
	ck_assert_uint_eq(seen.st.st_nlink, st.st_nlink);
	ck_assert_uint_eq(seen.st.st_mode, st.st_mode);
	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	ck_assert_int_eq(procfs_fdinfo_of(fd, NULL, on_lock, &listed), 1);
	ck_assert_uint_eq(seen.id.dev, listed.dev);
	ck_assert_uint_eq(seen.id.ino, listed.ino);
	close(fd);
}

TEST(number)
{
	check_number("f");
	ck_assert_int_eq(mount("none", path("lower"), "tmpfs", 0, NULL), 0);
	close(open(path("lower/below"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	overlay(path("lower"));
	check_number("over/f");
	check_number("over/below");
}

TEST(overlay_over_fuse)
{
	mount_fuse();
	overlay(path("fuse/lower"));
	ck_assert(!is_local("over/f"));
}

TEST(one_layer_of_two_on_fuse)
{
	char both[600];

	mount_fuse();
	snprintf(both, sizeof(both), "%s:%s", path("lower"), path("fuse/lower"));
	overlay(both);
	ck_assert(!is_local("over/f"));
}

/* The option names the link, and only following it tells. */
TEST(overlay_by_a_link)
{
	mount_fuse();
	ck_assert_int_eq(symlink("fuse", path("link")), 0);
	ck_assert_int_eq(symlink(path("lower"), path("good")), 0);
	overlay(path("link/lower"));
	ck_assert(!is_local("over/f"));
	ck_assert_int_eq(umount2(path("over"), MNT_DETACH), 0);
	overlay(path("good"));
	ck_assert(is_local("over/f"));
}

TEST(overlay_whose_layer_is_hidden)
{
	overlay(path("lower"));
	ck_assert(is_local("over/f"));
	mount_fuse();
	/* It can no longer be known what the path in the options meant. */
	ck_assert_int_eq(mount(path("fuse"), path("lower"), "none", MS_BIND, NULL), 0);
	ck_assert(!is_local("over/f"));
	ck_assert_int_eq(umount2(path("lower"), MNT_DETACH), 0);
	ck_assert(is_local("over/f"));
}

TEST(overlay_on_overlay)
{
	make_dir("over2");
	make_dir("upper2");
	make_dir("work2");
	overlay(path("lower"));
	ck_assert_int_eq(mkdir(path("over/lower"), 0755), 0);
	char options[1024];

	snprintf(options, sizeof(options), "lowerdir=%s,upperdir=%s,workdir=%s", path("over/lower"), path("upper2"),
		 path("work2"));
	ck_assert_int_eq(mount("none", path("over2"), "overlay", 0, options), 0);
	ck_assert(is_local("over2/f"));
	umount2(path("over2"), MNT_DETACH);
}

/* A container's: our table does not have it, whatever is in it. */
TEST(mount_of_another_namespace)
{
	int to_us[2], end[2], fd;
	char byte, link[64];
	pid_t pid;

	make_dir("theirs");
	ck_assert_int_eq(pipe(to_us), 0);
	ck_assert_int_eq(pipe(end), 0);
	pid = fork();
	if (pid == 0) {
		close(end[1]);
		if (unshare(CLONE_NEWNS) != 0 || mount("none", path("theirs"), "tmpfs", 0, NULL) != 0 ||
		    dup2(open(path("theirs/f"), O_RDWR | O_CREAT, 0644), 100) != 100 || write(to_us[1], "x", 1) != 1)
			_exit(1);
		_exit(read(end[0], &byte, 1) != 0);
	}
	close(to_us[1]);
	close(end[0]);
	ck_assert_int_eq(read(to_us[0], &byte, 1), 1);
	snprintf(link, sizeof(link), "/proc/%d/fd/100", (int)pid);
	fd = open(link, O_RDWR);
	ck_assert_int_ge(fd, 0);
	ck_assert(!is_local_by(mounts, fd));
	close(fd);
	close(end[1]);
	waitpid(pid, NULL, 0);
}
