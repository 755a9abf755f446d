/* keeper/kernel/inspect.c: descriptors of every kind, what they hold, and what a hostile program might pass. */
#include "keeper/kernel/inspect.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define USER  12345 /* not root, and nobody's */
#define GROUP 23456
#define MANY  200

struct asked {
	struct inspect_result result;
	unsigned answers;
	bool known, unused;
	int other; /* a descriptor to try for a lock in the callback, or 0 */
	bool lockable;
};

static char folder[64];
static uv_loop_t loop;
static struct ucred self;
static int before;
static struct workers *workers;
static gid_t peer_group; /* the peer's other group; 0: none */
static bool at_once;     /* in the caller's thread, else in a worker */

static int count_open(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static void clear_folder(void)
{
	DIR *dir = opendir(folder);
	struct dirent *d;

	while (dir && (d = readdir(dir)))
		if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0 &&
		    unlinkat(dirfd(dir), d->d_name, 0) != 0)
			unlinkat(dirfd(dir), d->d_name, AT_REMOVEDIR);
	if (dir)
		closedir(dir);
}

static void on_answer(void *arg, struct inspect_result *result)
{
	struct asked *a = arg;

	a->answers++;
	if (result != &a->result)
		a->result = *result;
	if (a->other)
		a->lockable = flock(a->other, LOCK_EX | LOCK_NB) == 0;
}

static void start(struct asked *a, int fd, const struct ucred *peer, bool test_shared)
{
	struct inspect_request request = {.fd = fd,
					  .peer = *peer,
					  .foreign = peer->uid != self.uid,
					  .known = a->known,
					  .unused = a->unused,
					  .test_shared = test_shared};

	ck_assert_int_ge(fd, 0);
	if (peer_group) {
		request.groups = malloc(sizeof(gid_t));
		request.groups[0] = peer_group;
		request.group_count = 1;
	}
	if (at_once) {
		int ret = inspect_now(&request, &a->result);

		ck_assert_int_eq(ret, a->result.refused[0] ? -1 : 0);
		on_answer(a, &a->result);
		return;
	}
	ck_assert_ptr_nonnull(inspect_start(workers, 1, &request, on_answer, a));
	ck_assert_uint_eq(a->answers, 0); /* never from inside the call */
}

static void setup_worker(void)
{
	struct asked a = {0};

	at_once = false;
	clear_folder();
	self = (struct ucred){getpid(), geteuid(), getegid()};
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	workers = workers_new(&loop);
	/* The first job starts libuv's threads, which have descriptors of their own; so has the table of mounts. */
	identity_mount_is_ours(0);
	start(&a, open("/dev/null", O_RDONLY | O_CLOEXEC), &self, false);
	uv_run(&loop, UV_RUN_DEFAULT);
	before = count_open();
}

static void setup_at_once(void)
{
	setup_worker();
	at_once = true;
}

static void teardown(void)
{
	ck_assert_int_eq(count_open(), before);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	workers_free(workers);
}

/* Takes over fd, as the keeper does. */
static struct inspect_result look_as(int fd, const struct ucred *peer, bool test_shared)
{
	struct asked a = {0};

	start(&a, fd, peer, test_shared);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(a.answers, 1);
	ck_assert((a.result.fd < 0) == (a.result.nameless || a.result.refused[0] != '\0'));
	return a.result;
}

static struct inspect_result look(int fd)
{
	return look_as(fd, &self, false);
}

static const char *in_folder(const char *name)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static int make(const char *name, int flags, mode_t mode)
{
	int fd = open(in_folder(name), flags | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	return fd;
}

static void check_good(const struct inspect_result *r, const char *path)
{
	struct stat st;

	ck_assert_str_eq(r->refused, "");
	ck_assert_str_eq(r->path, path);
	ck_assert_int_eq(fstat(r->fd, &st), 0);
	ck_assert_uint_eq(st.st_ino, r->st.st_ino);
	ck_assert_uint_eq(st.st_dev, r->st.st_dev);
	ck_assert_int_eq(fcntl(r->fd, F_GETFD), FD_CLOEXEC);
}

static void check_refused(const struct inspect_result *r, const char *why)
{
	ck_assert_msg(strstr(r->refused, why) != NULL, "refused: \"%s\", not \"%s\"", r->refused, why);
	ck_assert_ptr_null(strchr(r->refused, '\n'));
	ck_assert_int_eq(r->fd, -1);
}

/* --- kinds of descriptors --- */

START_TEST(plain_file)
{
	static const int flags[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_APPEND};
	struct inspect_result r = look(make("x", flags[_i], 0600));

	check_good(&r, in_folder("x"));
	ck_assert(!r.holds.shared && !r.holds.exclusive && !r.shared_in_use);
	close(r.fd);
}
END_TEST

/* The keeper has it open already. */
START_TEST(known)
{
	struct asked a = {.known = true};
	int fd = make("x", O_RDWR, 0600), other = make("x", O_RDWR, 0600);

	ck_assert_int_eq(flock(fd, LOCK_SH), 0);
	ck_assert_int_eq(flock(other, LOCK_SH), 0);
	start(&a, fd, &self, true);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_str_eq(a.result.refused, "");
	ck_assert_str_eq(a.result.path, in_folder("x"));
	ck_assert_int_eq(a.result.fd, -1);
	ck_assert(a.result.holds.shared && a.result.shared_in_use);
	close(other);
}
END_TEST

/* There is no lease under which somebody could hold something. */
START_TEST(unused)
{
	for (int i = 0; i < 2; i++) {
		struct asked a = {.unused = i};
		int fd = make("x", O_RDWR, 0600);

		ck_assert_int_eq(flock(fd, LOCK_EX), 0);
		start(&a, fd, &self, false);
		uv_run(&loop, UV_RUN_DEFAULT);
		ck_assert_str_eq(a.result.refused, "");
		ck_assert_str_eq(a.result.path, in_folder("x"));
		ck_assert_int_eq(a.result.holds.exclusive, !i);
		close(a.result.fd);
	}
}
END_TEST

START_TEST(directory)
{
	struct inspect_result r = look(open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));

	check_good(&r, folder);
	ck_assert_int_eq(flock(r.fd, LOCK_EX | LOCK_NB), 0);
	close(r.fd);
}
END_TEST

START_TEST(path_only)
{
	struct inspect_result r;

	close(make("x", O_RDWR, 0600));
	r = look(open(in_folder("x"), O_PATH | O_CLOEXEC));
	check_refused(&r, "O_PATH");
	r = look(open(folder, O_PATH | O_CLOEXEC));
	check_refused(&r, "O_PATH");
}
END_TEST

START_TEST(other_kinds)
{
	static const char neither[] = "neither a regular file nor a directory";
	struct inspect_result r;
	int pair[2];

	ck_assert_int_eq(pipe2(pair, O_CLOEXEC), 0);
	r = look(pair[0]);
	check_refused(&r, neither);
	r = look(pair[1]);
	check_refused(&r, neither);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	r = look(pair[0]);
	check_refused(&r, neither);
	close(pair[1]);
	r = look(open("/dev/null", O_RDWR | O_CLOEXEC));
	check_refused(&r, neither);
	ck_assert_int_eq(mkfifo(in_folder("pipe"), 0600), 0);
	r = look(open(in_folder("pipe"), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
	check_refused(&r, neither);
}
END_TEST

/* Without a name in any folder: it cannot be protected, but it is no reason to fail either. */
START_TEST(nameless)
{
	struct inspect_result r = look(memfd_create("x", MFD_CLOEXEC));
	char link[64], named[PATH_MAX];
	int fd;

	check_good(&r, "/memfd:x");
	close(r.fd);
	fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	r = look(fcntl(fd, F_DUPFD_CLOEXEC, 0));
	ck_assert(r.nameless && !*r.refused && r.fd < 0);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	r = look(open(link, O_RDWR | O_CLOEXEC)); /* without the flag */
	ck_assert(r.nameless && !*r.refused && r.fd < 0);
	snprintf(named, sizeof(named), "%s/named", folder);
	ck_assert_int_eq(linkat(AT_FDCWD, link, AT_FDCWD, named, AT_SYMLINK_FOLLOW), 0);
	r = look(fd);
	ck_assert(!r.nameless && r.named_late);
	close(r.fd);
	r = look(open(named, O_RDWR | O_CLOEXEC));
	ck_assert(!r.nameless && !r.named_late);
	close(r.fd);
	unlink(named);
}
END_TEST

/* A file that its user may write and not read. Root may read everything, and so tries it as somebody else. */
START_TEST(write_only)
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
END_TEST

/* --- paths --- */

START_TEST(deleted)
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
END_TEST

START_TEST(named_deleted)
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
END_TEST

START_TEST(renamed)
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
END_TEST

START_TEST(deleted_directory)
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
END_TEST

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
START_TEST(deleted_meanwhile)
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
END_TEST

START_TEST(longest_path)
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
END_TEST

/* --- locks --- */

START_TEST(holds)
{
	int fd = make("x", O_RDWR, 0600), other = make("x", O_RDWR, 0600);
	struct flock record = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	struct inspect_result r;

	ck_assert_int_eq(flock(fd, LOCK_SH), 0);
	r = look(dup(fd));
	ck_assert(r.holds.shared && !r.holds.exclusive);
	close(r.fd);
	r = look(dup(other)); /* that of another description does not count */
	ck_assert(!r.holds.shared && !r.holds.exclusive);
	close(r.fd);
	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	r = look(dup(fd));
	ck_assert(!r.holds.shared && r.holds.exclusive);
	close(r.fd);
	ck_assert_int_eq(flock(fd, LOCK_UN), 0);
	/* Neither does the record space. */
	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &record), 0);
	r = look(dup(fd));
	ck_assert(!r.holds.shared && !r.holds.exclusive);
	close(r.fd);
	record.l_start = 5;
	ck_assert_int_eq(fcntl(other, F_SETLK, &record), 0);
	r = look(dup(other));
	ck_assert(!r.holds.shared && !r.holds.exclusive);
	close(r.fd);
	/* However many there are. */
	for (record.l_start = 10; record.l_start < 2000; record.l_start += 2)
		ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &record), 0);
	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	r = look(dup(fd));
	ck_assert(!r.holds.shared && r.holds.exclusive);
	close(r.fd);
	close(fd);
	close(other);
}
END_TEST

/* When the program closes its descriptor its lock is gone: the keeper's copy is closed before the answer. */
START_TEST(lock_ends_with_its_owner)
{
	struct asked a = {.other = make("x", O_RDWR, 0600)};
	int fd = make("x", O_RDWR, 0600), passed = dup(fd);

	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	ck_assert_int_eq(flock(a.other, LOCK_EX | LOCK_NB), -1);
	start(&a, passed, &self, _i);
	close(fd);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(a.answers, 1);
	ck_assert(a.lockable);
	close(a.result.fd);
	close(a.other);
}
END_TEST

/* Nor does the keeper's look take anything away from the program, or share its lock. */
START_TEST(lock_stays_with_its_owner)
{
	struct asked a = {.other = make("x", O_RDWR, 0600)};
	int fd = make("x", O_RDWR, 0600);

	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	start(&a, dup(fd), &self, _i);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert(!a.lockable);
	ck_assert_int_eq(flock(a.result.fd, LOCK_SH | LOCK_NB), -1);
	ck_assert_int_eq(errno, EWOULDBLOCK);
	close(a.result.fd);
	close(a.other);
	close(fd);
}
END_TEST

START_TEST(shared_in_use)
{
	static const int ops[] = {LOCK_UN, LOCK_SH, LOCK_EX};
	static const bool in_use[] = {false, true, false};

	for (int i = 0; i < 3; i++) {
		int fd = make("x", O_RDWR, 0600);
		struct inspect_result r;

		ck_assert_int_eq(flock(fd, ops[i]), 0);
		r = look_as(make("x", O_RDWR, 0600), &self, true);
		ck_assert_int_eq(r.shared_in_use, in_use[i]);
		if (ops[i] != LOCK_EX) /* it has left nothing behind */
			ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
		close(r.fd);
		close(fd);
	}
}
END_TEST

/* --- several users; only root can serve them --- */

START_TEST(users_rights)
{
	struct ucred user = {getpid(), USER, USER};
	struct inspect_result r;
	int fd;

	if (self.uid != 0)
		return;
	r = look_as(make("mine", O_RDWR, 0600), &user, false);
	check_refused(&r, "Permission denied");
	r = look_as(make("group", O_RDWR, 0640), &user, false);
	check_refused(&r, "Permission denied");
	fd = make("theirs", O_RDWR, 0600);
	ck_assert_int_eq(fchown(fd, USER, USER), 0);
	r = look_as(fd, &user, false);
	check_good(&r, in_folder("theirs"));
	close(r.fd);
	fd = make("grouped", O_RDWR, 0040);
	ck_assert_int_eq(fchown(fd, 0, USER), 0);
	r = look_as(fd, &user, false);
	check_good(&r, in_folder("grouped"));
	close(r.fd);
	/* The worker has its own rights again: this one is looked at by the same threads. */
	for (int i = 0; i < 16; i++) {
		r = look(make("mine", O_RDWR, 0600));
		check_good(&r, in_folder("mine"));
		close(r.fd);
	}
}
END_TEST

/* The peer's other groups count, and the keeper's own do not. */
START_TEST(users_groups)
{
	struct ucred user = {getpid(), USER, USER};
	gid_t own[] = {GROUP + 1, GROUP + 2}, now[3];
	struct inspect_result r;
	int fd;

	if (self.uid != 0)
		return;
	ck_assert_int_eq(setgroups(2, own), 0);
	for (int i = 0; i < 8; i++) {
		peer_group = 0;
		fd = make("grouped", O_RDWR, 0640);
		ck_assert_int_eq(fchown(fd, 0, GROUP), 0);
		r = look_as(fd, &user, false);
		check_refused(&r, "Permission denied");
		peer_group = GROUP;
		r = look_as(open(in_folder("grouped"), O_RDWR | O_CLOEXEC), &user, false);
		check_good(&r, in_folder("grouped"));
		close(r.fd);
		fd = make("keepers", O_RDWR, 0640);
		ck_assert_int_eq(fchown(fd, 0, GROUP + 1), 0);
		r = look_as(fd, &user, false);
		check_refused(&r, "Permission denied");
	}
	peer_group = 0;
	ck_assert_int_eq(getgroups(3, now), 2);
	ck_assert_int_eq(memcmp(now, own, sizeof(own)), 0);
	ck_assert_int_eq(setgroups(0, NULL), 0);
}
END_TEST

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
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	char c = 0;
	struct iovec iov = {&c, 1};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	int pair[2], fd, status;
	pid_t pid;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		fd = open_own(own);
		control.head = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
		_exit(sendmsg(pair[1], &msg, 0) == 1 ? 0 : 4);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(recvmsg(pair[0], &msg, MSG_CMSG_CLOEXEC), 1);
	memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
	close(pair[0]);
	close(pair[1]);
	return fd;
}

START_TEST(users_own_mount)
{
	struct ucred user = {getpid(), USER, USER};
	struct inspect_result r;
	int fd;

	if (self.uid != 0)
		return;
	r = look_as(from_own_mount(OWN_TMPFS), &user, false);
	check_refused(&r, "another file");
	r = look_as(from_own_mount(OWN_TMPFS_DELETED), &user, false);
	check_refused(&r, "another file");
	close(make("x", O_RDWR, 0666));
	close(make("other", O_RDWR, 0666));
	r = look_as(from_own_mount(OWN_TMPFS), &user, false);
	check_refused(&r, "another file");
	r = look_as(from_own_mount(OWN_FILE), &user, false);
	check_refused(&r, "another file");
	/* One that is really there, and one that is really deleted. */
	r = look_as(make("x", O_RDWR, 0666), &user, false);
	check_good(&r, in_folder("x"));
	close(r.fd);
	fd = make("y", O_RDWR, 0666);
	unlink(in_folder("y"));
	r = look_as(fd, &user, false);
	check_good(&r, in_folder("y"));
	close(r.fd);
}
END_TEST

/* --- many --- */

START_TEST(many_at_once)
{
	static struct asked all[MANY];
	static char path[MANY][PATH_MAX];

	memset(all, 0, sizeof(all));
	for (int i = 0; i < MANY; i++) {
		char name[16];

		snprintf(name, sizeof(name), "x%d", i);
		start(&all[i], make(name, O_RDWR, 0600), &self, i % 2);
		strcpy(path[i], in_folder(name));
	}
	uv_run(&loop, UV_RUN_DEFAULT);
	for (int i = 0; i < MANY; i++) {
		ck_assert_uint_eq(all[i].answers, 1);
		check_good(&all[i].result, path[i]);
		close(all[i].result.fd);
	}
}
END_TEST

static TCase *add_tests(const char *name, void (*setup)(void))
{
	TCase *tc = tcase_create(name);

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, plain_file, 0, 4);
	tcase_add_test(tc, known);
	tcase_add_test(tc, unused);
	tcase_add_test(tc, directory);
	tcase_add_test(tc, path_only);
	tcase_add_test(tc, other_kinds);
	tcase_add_test(tc, nameless);
	tcase_add_test(tc, write_only);
	tcase_add_test(tc, deleted);
	tcase_add_test(tc, named_deleted);
	tcase_add_test(tc, renamed);
	tcase_add_test(tc, deleted_directory);
	tcase_add_loop_test(tc, deleted_meanwhile, 0, 4);
	tcase_add_test(tc, longest_path);
	tcase_add_test(tc, holds);
	tcase_add_loop_test(tc, lock_stays_with_its_owner, 0, 2);
	tcase_add_test(tc, shared_in_use);
	tcase_add_test(tc, users_rights);
	tcase_add_test(tc, users_groups);
	tcase_add_test(tc, users_own_mount);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("inspect");
	TCase *tc = tcase_create("meanwhile");
	SRunner *runner;
	char made[] = "/tmp/dflock-inspect-XXXXXX";
	int failed;

	if (!mkdtemp(made) || !realpath(made, folder)) {
		perror(made);
		return EXIT_FAILURE;
	}
	suite_add_tcase(suite, add_tests("worker", setup_worker));
	suite_add_tcase(suite, add_tests("at once", setup_at_once));
	tcase_add_checked_fixture(tc, setup_worker, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, lock_ends_with_its_owner, 0, 2);
	tcase_add_test(tc, many_at_once);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	clear_folder();
	rmdir(folder);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
