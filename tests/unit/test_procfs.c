/* procfs/procfs.h: texts as a whole, walks, and what a descriptor refers to. */
#include <sys/mman.h>
#include <sys/socket.h>

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
