/* keeper/names.c: the directory of the files of `dflock lock`, and what may stand in its place. */
#include "keeper/main.h"
#include "wire/rundir.h"

#include "tests/unit/base_folder.h"

static int dir_fd;

static void setup(void)
{
	base_make();
	dir_fd = base_open();
}

static void teardown(void)
{
	close(dir_fd);
	base_remove();
}
FIXTURE(setup, teardown)

static mode_t mode_of(const char *name)
{
	struct stat st;

	ck_assert_int_eq(lstat(in_base(name), &st), 0);
	return st.st_mode & 07777;
}

static void check_made(bool system, mode_t mode)
{
	char *path = names_make(dir_fd, system);

	ck_assert_msg(path != NULL, "%s", strerror(errno));
	ck_assert_str_eq(path, in_base(NAMES_DIR));
	ck_assert_uint_eq(mode_of(NAMES_DIR), mode);
	free(path);
}

static void check_refused(int error)
{
	ck_assert_ptr_null(names_make(dir_fd, true));
	ck_assert_int_eq(errno, error);
}

TEST_EACH(modes, 2)
{
	umask(_i ? 0077 : 0);
	check_made(true, 01777);
	check_made(true, 01777);
	check_made(false, 0700); /* the next keeper of this directory serves one user */
	check_made(true, 01777);
}

/* The library compares it with the paths of descriptors. */
TEST(path_without_links)
{
	char *path;
	int by_link;

	ck_assert_int_eq(symlink(base, in_base("link")), 0);
	by_link = open(in_base("link"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(by_link, 0);
	path = names_make(by_link, false);
	ck_assert_ptr_nonnull(path);
	ck_assert_str_eq(path, in_base(NAMES_DIR));
	free(path);
	close(by_link);
}

TEST(something_else)
{
	ck_assert_int_eq(mkdir(in_base("elsewhere"), 0700), 0);
	ck_assert_int_eq(symlink("elsewhere", in_base(NAMES_DIR)), 0);
	check_refused(ENOTDIR);
	ck_assert_uint_eq(mode_of("elsewhere"), 0700);
	ck_assert_int_eq(unlink(in_base(NAMES_DIR)), 0);
	make_file(in_base(NAMES_DIR));
	check_refused(ENOTDIR);
	ck_assert_uint_eq(mode_of(NAMES_DIR), 0600);
}

TEST(of_another_user)
{
	if (geteuid() != 0)
		return;
	ck_assert_int_eq(mkdir(in_base(NAMES_DIR), 0700), 0);
	ck_assert_int_eq(chown(in_base(NAMES_DIR), 12345, 12345), 0);
	check_refused(EPERM);
	ck_assert_uint_eq(mode_of(NAMES_DIR), 0700);
}

TEST(cannot_be_made)
{
	ck_assert_int_eq(rmdir(base), 0);
	check_refused(ENOENT);
}
