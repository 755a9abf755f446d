/*
 * keeper/kernel/inspect.c: the path of what is renamed or deleted, whenever that happens; whose rights count, and files of mounts of one's own.
 * Only root can serve several users.
 */
#include "tests/unit/inspect_fixture.h"

#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include "tests/unit/pass_fd.h"

#define USER  12345 /* not root, and nobody's */
#define GROUP 23456

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

/* Another link stays: the name by which the file was opened still is what it is locked by, also of another user's. */
TEST(deleted_beside_a_link)
{
	const struct ucred user = {getpid(), USER, USER};
	char name[PATH_MAX];
	int fd = make("x", O_RDWR, 0666);

	strcpy(name, in_folder("x"));
	ck_assert_int_eq(link(name, in_folder("y")), 0);
	ck_assert_int_eq(unlink(name), 0);
	good(dup(fd), "x");
	close(make("x", O_RDWR, 0666));
	good_as(fd, self.uid == 0 ? &user : &self, "x");
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

/* --- whose rights count --- */

static int make_of(const char *name, mode_t mode, uid_t user, gid_t group)
{
	int fd = make(name, O_RDWR, mode);

	ck_assert_int_eq(fchown(fd, user, group), 0);
	return fd;
}

/* A file that its user may write and not read. Root may read everything, and so tries it as somebody else. */
TEST(write_only)
{
	struct ucred user = self;
	struct inspect_result r;
	int fd = make("x", O_WRONLY, 0200), other;

	if (self.uid == 0) {
		user.uid = user.gid = USER;
		ck_assert_int_eq(fchown(fd, USER, USER), 0);
	}
	other = open(in_folder("x"), O_WRONLY | O_CLOEXEC);
	ck_assert_int_eq(flock(other, LOCK_SH), 0);
	r = look_as(fd, &user, true);
	check_good(&r, in_folder("x"));
	ck_assert_int_eq(fcntl(r.fd, F_GETFL) & O_ACCMODE, O_WRONLY);
	ck_assert(r.shared_in_use);
	close(r.fd);
	close(other);
}

TEST(users_rights)
{
	struct ucred user = {getpid(), USER, USER};

	if (self.uid != 0)
		return;
	refused_as(make("mine", O_RDWR, 0600), &user, "Permission denied");
	refused_as(make("group", O_RDWR, 0640), &user, "Permission denied");
	close(make("path", O_RDWR, 0600));
	refused_as(open(in_folder("path"), O_PATH | O_CLOEXEC), &user, "Permission denied");
	good_as(make_of("theirs", 0600, USER, USER), &user, "theirs");
	good_as(make_of("grouped", 0040, 0, USER), &user, "grouped");
	/* The worker has its own rights again: this one is looked at by the same threads. */
	for (int i = 0; i < 16; i++)
		good(make("mine", O_RDWR, 0600), "mine");
}

/* The peer's other groups count, and the keeper's own do not. */
TEST(users_groups)
{
	struct ucred user = {getpid(), USER, USER};
	gid_t own[] = {GROUP + 1, GROUP + 2}, now[3];

	if (self.uid != 0)
		return;
	ck_assert_int_eq(setgroups(2, own), 0);
	for (int i = 0; i < 8; i++) {
		peer_group = 0;
		refused_as(make_of("grouped", 0640, 0, GROUP), &user, "Permission denied");
		peer_group = GROUP;
		good_as(open(in_folder("grouped"), O_RDWR | O_CLOEXEC), &user, "grouped");
		refused_as(make_of("keepers", 0640, 0, GROUP + 1), &user, "Permission denied");
	}
	peer_group = 0;
	ck_assert_int_eq(getgroups(3, now), 2);
	ck_assert_int_eq(memcmp(now, own, sizeof(own)), 0);
	ck_assert_int_eq(setgroups(0, NULL), 0);
}

/* In a world of one's own `folder` is another file system, or the file in it is another of the same file system. */
enum own { OWN_TMPFS, OWN_TMPFS_DELETED, OWN_FILE };

static int open_own(enum own own)
{
	char path[PATH_MAX];
	int fd;

	strcpy(path, in_folder("x"));
	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", "", MS_REC | MS_PRIVATE, "") != 0)
		_exit(1);
	if (own == OWN_FILE ? mount(in_folder("other"), path, "", MS_BIND, "") != 0
			    : mount("none", folder, "tmpfs", 0, "mode=0777") != 0)
		_exit(2);
	fd = open(path, O_RDWR | O_CREAT, 0666);
	if (fd < 0 || fchown(fd, USER, USER) != 0 || (own == OWN_TMPFS_DELETED && unlink(path) != 0))
		_exit(3);
	return fd;
}

/* What a child has opened there. */
static int from_own_mount(enum own own)
{
	int pair[2], fd, status;
	pid_t pid;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid)
		_exit(pass_fd(pair[1], open_own(own)) ? 0 : 4);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	fd = receive_fd(pair[0]);
	close(pair[0]);
	close(pair[1]);
	return fd;
}

/* The path of a mount whose namespace has ended is that of no file: the receiver decides by the inode. */
static void check_gone(enum own own, const struct ucred *user)
{
	struct inspect_result r = look_as(from_own_mount(own), user, false);

	ck_assert_str_eq(r.refused, "");
	ck_assert_uint_ne(r.gone_type, 0);
	close(r.fd);
}

TEST(users_own_mount)
{
	struct ucred user = {getpid(), USER, USER};
	int fd;

	if (self.uid != 0)
		return;
	check_gone(OWN_TMPFS, &user);
	check_gone(OWN_TMPFS_DELETED, &user);
	close(make("x", O_RDWR, 0666));
	close(make("other", O_RDWR, 0666));
	check_gone(OWN_TMPFS, &user);
	check_gone(OWN_FILE, &user);
	/* One that is really there, and one that is really deleted. */
	good_as(make("x", O_RDWR, 0666), &user, "x");
	fd = make("y", O_RDWR, 0666);
	unlink(in_folder("y"));
	good_as(fd, &user, "y");
}
