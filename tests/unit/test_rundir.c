/*
 * The runtime directory: which one it is, and what it must be like; and in it the directory of the files of `dflock lock` (keeper/names.c).
 * Attacks of other users: tests/faults.
 */
#include "keeper/main.h"
#include "tests/unit/base_folder.h"
#include "wire/rundir.h"

static char why[512];
static struct place place;

static void setup(void)
{
	base_make();
	unsetenv("DFLOCK_RUNTIME_DIR");
	umask(022);
}
FIXTURE(setup, base_remove)

/* What DFLOCK_RUNTIME_DIR leads to, for finding and for making. */
static int by_environment(const char *value, char dir[PLACE_DIR_BYTES])
{
	char made[PLACE_DIR_BYTES];
	int rc;

	setenv("DFLOCK_RUNTIME_DIR", value, 1);
	place_init(&place);
	rc = rundir_find(&place, geteuid(), dir, why, sizeof(why));
	ck_assert_int_eq(rundir_make(&place, geteuid(), made, why, sizeof(why)), rc);
	if (!rc)
		ck_assert_str_eq(made, dir);
	return rc;
}

TEST(environment)
{
	char dir[PLACE_DIR_BYTES], value[PLACE_DIR_BYTES + 1];
	struct stat st;

	ck_assert_int_eq(by_environment("/dev/shm/dflock-unit-nothing", dir), 0);
	ck_assert_str_eq(dir, "/dev/shm/dflock-unit-nothing");
	ck_assert_int_eq(stat(dir, &st), -1);

	ck_assert_int_eq(by_environment("x", dir), -EINVAL);
	ck_assert_str_eq(why, "DFLOCK_RUNTIME_DIR must be an absolute path of at most 91 characters, not x");

	memset(value, 'x', sizeof(value));
	value[0] = '/';
	value[PLACE_DIR_BYTES] = '\0';
	ck_assert_int_eq(by_environment(value, dir), -EINVAL);
	value[PLACE_DIR_BYTES - 1] = '\0';
	ck_assert_int_eq(by_environment(value, dir), 0);
	ck_assert_str_eq(dir, value);
}

/* A user that has none: as many digits as there are. */
TEST(none_yet)
{
	char dir[PLACE_DIR_BYTES];
	struct stat st;

	place_init(&place);
	if (stat(RUNDIR_SYSTEM "/" WIRE_SOCKET_NAME, &st) == 0) {
		ck_assert_int_eq(rundir_find(&place, 4294967293u, dir, why, sizeof(why)), 0);
		ck_assert_str_eq(dir, RUNDIR_SYSTEM);
		return;
	}
	ck_assert_int_eq(rundir_find(&place, 4294967293u, dir, why, sizeof(why)), -ENOENT);
	ck_assert_str_eq(dir, "");
	ck_assert(!rundir_is_taken(4294967293u, why, sizeof(why)));
}

/* Opens name below base as the present user. */
static int open_dir(const char *name, bool create)
{
	return rundir_open(in_base(name), geteuid(), create, why, sizeof(why));
}

static void expect_refusal(const char *dir, int err, const char *wrong)
{
	ck_assert_int_eq(rundir_open(dir, geteuid(), false, why, sizeof(why)), -err);
	ck_assert_msg(strstr(why, wrong) != NULL, "expected \"%s\" in: %s", wrong, why);
	ck_assert_ptr_null(strchr(why, '\n'));
}

TEST(runtime_dir_is_made)
{
	struct stat made, opened;
	int fd;

	expect_refusal(in_base("run"), ENOENT, "start dflockd");
	fd = open_dir("run", true);
	ck_assert_msg(fd >= 0, "%s", why);
	ck_assert_int_eq(lstat(in_base("run"), &made), 0);
	ck_assert_int_eq(fstat(fd, &opened), 0);
	ck_assert_uint_eq(made.st_ino, opened.st_ino);
	ck_assert_uint_eq(made.st_mode & 07777, 0700);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(fcntl(fd, F_GETFL) & O_PATH, O_PATH);
	close(fd);
	fd = open_dir("run//", false);
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(chmod(in_base("run"), 0755), 0);
	fd = open_dir("run", true);
	ck_assert_int_ge(fd, 0);
	close(fd);

	ck_assert_int_eq(open_dir("none/run", true), -ENOENT);
	ck_assert_ptr_nonnull(strstr(why, "cannot be made: No such file or directory"));
}

TEST(runtime_dir_is_refused)
{
	static const char longest[] =
		"/dev/shm/this-is-longer-than-any-socket-address-could-take-with-the-name-of-the-socket-behind-it";

	ck_assert_int_eq(mkdir(in_base("run"), 0700), 0);
	ck_assert_int_eq(symlink("run", in_base("link")), 0);
	expect_refusal(in_base("link"), ELOOP, "is a symbolic link");
	expect_refusal(in_base("link/"), ELOOP, "is a symbolic link");
	make_file(in_base("file"));
	expect_refusal(in_base("file"), ENOTDIR, "is not a directory");
	ck_assert_int_eq(chmod(in_base("run"), 0720), 0);
	expect_refusal(in_base("run"), EPERM, "chmod go-w");
	ck_assert_int_eq(chmod(in_base("run"), 0702), 0);
	expect_refusal(in_base("run"), EPERM, "chmod go-w");
	expect_refusal("run", EINVAL, "is not absolute");
	expect_refusal("", EINVAL, "is not absolute");
	expect_refusal(longest, ENAMETOOLONG, "too long a name");
	/* Of root, and no tmpfs. */
	expect_refusal("/proc", EINVAL, "mount one there, or set DFLOCK_RUNTIME_DIR to a directory on one");
}

TEST(runtime_dir_of_another)
{
	uid_t other = geteuid() + 12345;
	char expected[64];

	ck_assert_int_eq(mkdir(in_base("run"), 0700), 0);
	if (geteuid() == 0) {
		/* Every user may use root's directory; root, too, may not use another user's. */
		int fd = rundir_open(in_base("run"), other, false, why, sizeof(why));

		ck_assert_msg(fd >= 0, "%s", why);
		close(fd);
		ck_assert_int_eq(chown(in_base("run"), other, (gid_t)-1), 0);
		ck_assert_int_eq(open_dir("run", false), -EPERM);
		snprintf(expected, sizeof(expected), "belongs to uid %u", other);
	} else {
		ck_assert_int_eq(rundir_open(in_base("run"), other, false, why, sizeof(why)), -EPERM);
		snprintf(expected, sizeof(expected), "belongs to uid %u", geteuid());
	}
	ck_assert_msg(strstr(why, expected) != NULL, "%s", why);
	ck_assert_int_eq(rundir_open(in_base("none"), other, false, why, 8), -ENOENT);
	ck_assert_str_eq(why, "runtime");
}

/* --- the directory of names --- */

static mode_t mode_of(const char *name)
{
	struct stat st;
	ck_assert_int_eq(lstat(in_base(name), &st), 0);
	return st.st_mode & 07777;
}

static void check_made(bool system, mode_t mode)
{
	int dir_fd = base_open();
	char *path = names_make(dir_fd, system);
	ck_assert_msg(path != NULL, "%s", strerror(errno));
	ck_assert_str_eq(path, in_base(NAMES_DIR));
	ck_assert_uint_eq(mode_of(NAMES_DIR), mode);
	free(path);
	close(dir_fd);
}

static void check_refused(int dir_fd, int error)
{
	ck_assert_ptr_null(names_make(dir_fd, true));
	ck_assert_int_eq(errno, error);
}

TEST_EACH(names_dir_is_made, 2)
{
	umask(_i ? 0077 : 0);
	check_made(true, 01777);
	check_made(true, 01777);
	check_made(false, 0700); /* the next keeper of this directory serves one user */
	check_made(true, 01777);
}

/* The library compares it with the paths of descriptors. */
TEST(names_dir_has_a_path_without_links)
{
	char *path;
	int by_link;

	ck_assert_int_eq(symlink(base, in_base("link")), 0);
	by_link = open(in_base("link"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(by_link, 0);
	path = names_make(by_link, false);
	ck_assert_pstr_eq(path, in_base(NAMES_DIR));
	free(path);
	close(by_link);
}

TEST(names_dir_is_refused)
{
	int dir_fd = base_open();

	ck_assert_int_eq(mkdir(in_base("elsewhere"), 0700), 0);
	ck_assert_int_eq(symlink("elsewhere", in_base(NAMES_DIR)), 0);
	check_refused(dir_fd, ENOTDIR);
	ck_assert_uint_eq(mode_of("elsewhere"), 0700);
	ck_assert_int_eq(unlink(in_base(NAMES_DIR)), 0);
	make_file(in_base(NAMES_DIR));
	check_refused(dir_fd, ENOTDIR);
	ck_assert_uint_eq(mode_of(NAMES_DIR), 0600);
	ck_assert_int_eq(unlink(in_base(NAMES_DIR)), 0);
	if (geteuid() == 0) {
		ck_assert_int_eq(mkdir(in_base(NAMES_DIR), 0700), 0);
		ck_assert_int_eq(chown(in_base(NAMES_DIR), 12345, 12345), 0);
		check_refused(dir_fd, EPERM);
		ck_assert_uint_eq(mode_of(NAMES_DIR), 0700);
		ck_assert_int_eq(rmdir(in_base(NAMES_DIR)), 0);
	}
	ck_assert_int_eq(rmdir(in_base("elsewhere")), 0);
	ck_assert_int_eq(rmdir(base), 0);
	check_refused(dir_fd, ENOENT);
	close(dir_fd);
}
