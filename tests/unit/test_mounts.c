/* Which file systems are known to be local, and the kernel's number of a file: real mounts, in a mount namespace of each test's own. */
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>

#include "config/config.h"
#include "keeper/kernel/identity.h"
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

static void overlay_at(const char *over, const char *lower, const char *upper, const char *work)
{
	char options[1024];

	snprintf(options, sizeof(options), "lowerdir=%s,upperdir=%s,workdir=%s", lower, path(upper), path(work));
	ck_assert_msg(mount("none", path(over), "overlay", 0, options) == 0, "%s: %s", options, strerror(errno));
}

static void overlay(const char *lower) { overlay_at("over", lower, "upper", "work"); }

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

/* The number that lock lines show, which is not always what stat says. */
static void check_listed(int fd, struct identity id)
{
	struct identity listed = {0};

	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	ck_assert_int_eq(procfs_fdinfo_of(fd, NULL, on_lock, &listed), 1);
	ck_assert_uint_eq(id.dev, listed.dev);
	ck_assert_uint_eq(id.ino, listed.ino);
}

static int open_at(const char *name, int flags, struct stat *st)
{
	int fd = open(path(name), flags | O_CREAT | O_CLOEXEC, 0644);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, st), 0);
	return fd;
}

static void check_number(const char *name)
{
	struct inspect_seen seen;
	struct stat st;
	int fd = open_at(name, O_RDONLY, &st);
	uint64_t dev;

	ck_assert_int_eq(inspect_ground(mounts, fd, &dev, &seen), INSPECT_LOCAL);
	ck_assert_uint_eq(dev, st.st_dev);
	ck_assert_uint_eq(seen.st.st_dev, st.st_dev);
	ck_assert_uint_eq(seen.st.st_ino, st.st_ino);
	ck_assert_uint_eq(seen.st.st_nlink, st.st_nlink);
	ck_assert_uint_eq(seen.st.st_mode, st.st_mode);
	check_listed(fd, seen.id);
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

TEST_EACH(a_layer_on_fuse, 2)
{
	char lower[600];

	mount_fuse();
	snprintf(lower, sizeof(lower), "%s%s%s", _i ? path("lower") : "", _i ? ":" : "", path("fuse/lower"));
	overlay(lower);
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
	overlay_at("over2", path("over/lower"), "upper2", "work2");
	ck_assert(is_local("over2/f"));
	umount2(path("over2"), MNT_DETACH);
}

/* --- what rules cover --- */

static void on_covered(void *arg, uint64_t dev)
{
	uint64_t *wanted = arg;

	if (dev == *wanted)
		*wanted = 0;
}

/* The kernel lists mounts as they were made, and not as they lie on each other. */
TEST_EACH(covers_what_lies_on_top, 2)
{
	const char *under = _i ? "lower" : "over/under", *over = "over";
	char *file = strdup(path("over/under/f"));
	struct rule rule = {.kind = PAGE_RULE_PATH, .pattern = file, .fixed_len = strlen(file)};
	const struct config config = {.rules = &rule, .rule_count = 1};
	struct stat st;
	uint64_t dev;

	make_dir("over/under");
	ck_assert_int_eq(mount("none", path(under), "tmpfs", 0, NULL), 0);
	ck_assert_int_eq(mount("none", path(over), "tmpfs", 0, NULL), 0);
	if (_i)
		ck_assert_int_eq(mount(path(under), path(over), NULL, MS_MOVE, NULL), 0);
	make_dir("over/under");
	ck_assert_int_eq(stat(path("over/under"), &st), 0);
	dev = st.st_dev;
	mounts_covered(mounts, &config, on_covered, &dev);
	ck_assert_uint_eq(dev, 0);
	umount2(path(over), MNT_DETACH);
	free(file);
}

/* --- keeper/kernel/identity.h --- */

static int mount_of(int fd)
{
	struct procfs_fdinfo info;

	ck_assert_int_eq(procfs_fdinfo_head(fd, &info), 0);
	return info.mount_id;
}

/* Whatever st says. */
static void check_same(int fd, pid_t pid, const struct stat *st)
{
	const struct stat wrong = {.st_dev = 1, .st_ino = st->st_ino};
	struct identity id = identity_of(fd, pid, &wrong);

	check_listed(fd, id);
	ck_assert_uint_eq(id.dev, st->st_dev);
}

/* The table was read before that is mounted. */
TEST(a_new_mount)
{
	struct stat st;
	int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd, mount_id;

	ck_assert(identity_mount_is_ours(mount_of(root)));
	ck_assert_int_eq(mount("none", path("over"), "tmpfs", 0, NULL), 0);
	fd = open_at("over/f", O_RDWR, &st);
	mount_id = mount_of(fd);
	ck_assert(identity_mount_is_ours(mount_id));
	check_same(fd, 0, &st);
	close(fd);
	ck_assert_int_eq(umount(path("over")), 0);
	ck_assert(!identity_mount_is_ours(mount_id));
	ck_assert(!identity_mount_is_ours(-1));
	close(root);
}

/* A container's: our table does not have it, whatever is in it. */
TEST(mount_of_another_namespace)
{
	const struct stat wrong = {.st_dev = 1, .st_ino = 2};
	struct stat st;
	char link[64];
	pid_t pid;
	int fd;

	make_dir("theirs");
	pid = suite_fork();
	if (pid == 0) {
		if (unshare(CLONE_NEWNS) != 0 || mount("none", path("theirs"), "tmpfs", 0, NULL) != 0 ||
		    dup2(open_at("theirs/f", O_RDWR, &st), 100) != 100)
			_exit(1);
		suite_rest();
	}
	snprintf(link, sizeof(link), "/proc/%d/fd/100", (int)pid);
	fd = open(link, O_RDWR);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert(!is_local_by(mounts, fd));
	ck_assert(!identity_mount_is_ours(mount_of(fd)));
	check_same(fd, pid, &st);
	ck_assert_uint_eq(identity_of(fd, 0, &wrong).dev, 1); /* nothing can be learnt */
	ck_assert_uint_eq(identity_of(fd, getpid(), &wrong).dev, 1);
	close(fd);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

TEST(by_stat)
{
	int fds = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;
	struct identity id;
	struct stat st;

	fd = open_at("f", O_RDWR, &st);
	ck_assert(identity_by_stat(fds, fd, &id));
	ck_assert_uint_eq(id.dev, st.st_dev);
	ck_assert_uint_eq(id.ino, st.st_ino);
	ck_assert(!identity_by_stat(fds, 1000, &id));
	ck_assert(!identity_by_stat(-1, fd, &id));
	close(fd);
	close(fds);
}
