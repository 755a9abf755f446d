/* keeper/kernel/inspect.c: the path of what is renamed or deleted, whenever that happens. */
#include "tests/unit/inspect_fixture.h"

#include <sys/syscall.h>

TEST(deleted)
{
	struct inspect_result r;
	int fd = make("x", O_RDWR, 0600);

	unlink(in_folder("x"));
	r = look(dup(fd));
	check_good(&r, in_folder("x"));
	ck_assert_uint_eq(r.st.st_nlink, 0);
	close(r.fd);
	/* Another one of that name does not matter. */
	close(make("x", O_RDWR, 0600));
	r = look(fd);
	check_good(&r, in_folder("x"));
	close(r.fd);
}

TEST(named_deleted)
{
	struct inspect_result r = look(make("x (deleted)", O_RDWR, 0600));
	int fd;

	check_good(&r, in_folder("x (deleted)"));
	close(r.fd);
	fd = open(in_folder("x (deleted)"), O_RDWR | O_CLOEXEC);
	unlink(in_folder("x (deleted)"));
	r = look(fd);
	check_good(&r, in_folder("x (deleted)"));
	close(r.fd);
}

TEST(renamed)
{
	int fd = make("x", O_RDWR, 0600);
	char old[PATH_MAX];
	struct inspect_result r;

	strcpy(old, in_folder("x"));
	ck_assert_int_eq(rename(old, in_folder("y")), 0);
	r = look(fd);
	check_good(&r, in_folder("y"));
	close(r.fd);
}

TEST(deleted_directory)
{
	struct inspect_result r;
	int fd;

	ck_assert_int_eq(mkdir(in_folder("d"), 0700), 0);
	fd = open(in_folder("d"), O_RDONLY | O_CLOEXEC);
	rmdir(in_folder("d"));
	r = look(fd);
	check_good(&r, in_folder("d"));
	close(r.fd);
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
	struct inspect_result r;
	char doomed[PATH_MAX];
	int fd = make(names[_i / 2], O_RDWR, 0600);

	strcpy(doomed, in_folder(names[_i / 2]));
	*(_i % 2 ? &delete_after : &delete_before) = doomed;
	r = look(fd);
	ck_assert(!delete_before && !delete_after);
	check_good(&r, doomed);
	ck_assert_uint_eq(r.st.st_nlink, 0);
	close(r.fd);
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
