/* keeper/kernel/inspect.c: the path of what is renamed or deleted, whenever that happens. */
#include "tests/unit/inspect_fixture.h"

#include <sys/syscall.h>

static int in_child_folder(const char *name)
{
	ck_assert_int_eq(mkdir(in_folder(name), 0700), 0);
	return open(in_folder(name), O_RDONLY | O_CLOEXEC);
}

/* A file, one whose name only looks like that of one that is deleted, and a folder. */
TEST_EACH(deleted, 3)
{
	static const char *const names[] = {"x", "x (deleted)", "d"};
	int fd = _i == 2 ? in_child_folder("d") : make(names[_i], O_RDWR, 0600);

	good(dup(fd), names[_i]);
	ck_assert_int_eq(remove(in_folder(names[_i])), 0);
	ck_assert(_i == 2 || good(dup(fd), names[_i]).st.st_nlink == 0);
	if (_i == 0) /* another one of that name does not matter */
		close(make("x", O_RDWR, 0600));
	good(fd, names[_i]);
}

TEST(renamed)
{
	int fd = make("x", O_RDWR, 0600);
	char old[PATH_MAX];

	strcpy(old, in_folder("x"));
	ck_assert_int_eq(rename(old, in_folder("y")), 0);
	good(fd, "y");
}

/* What is deleted just before or after somebody asks for a path: inspect.c calls this one. */
static const char *delete_before, *delete_after;

static void delete_it(const char **name)
{
	if (*name)
		unlink(*name);
	*name = NULL;
}

ssize_t readlink(const char *restrict link, char *restrict target, size_t size)
{
	ssize_t n;

	delete_it(&delete_before);
	n = syscall(SYS_readlinkat, AT_FDCWD, link, target, size);
	delete_it(&delete_after);
	return n;
}

/* Lock files are deleted all the time: whenever it happens, the path is the same. */
TEST_EACH(deleted_meanwhile, 4)
{
	static const char *const names[] = {"x", "x (deleted)"};
	char doomed[PATH_MAX];
	int fd = make(names[_i / 2], O_RDWR, 0600);

	strcpy(doomed, in_folder(names[_i / 2]));
	*(_i % 2 ? &delete_after : &delete_before) = doomed;
	ck_assert_uint_eq(good(fd, names[_i / 2]).st.st_nlink, 0);
	ck_assert(!delete_before && !delete_after);
}

TEST(longest_path)
{
	static char name[256];
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), up, file;
	struct inspect_result r;
	unsigned depth;

	memset(name, 'n', 255);
	for (depth = 0; depth < 17; depth++) { /* longer than PATH_MAX */
		ck_assert_int_eq(mkdirat(fd, name, 0700), 0);
		up = fd;
		fd = openat(up, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		ck_assert_int_ge(fd, 0);
		close(up);
	}
	file = openat(fd, "x", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	r = look(file);
	ck_assert(r.nameless && !*r.refused && r.fd < 0);
	unlinkat(fd, "x", 0);
	for (; depth; depth--) {
		up = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(fd);
		fd = up;
		ck_assert_int_eq(unlinkat(fd, name, AT_REMOVEDIR), 0);
	}
	close(fd);
}
