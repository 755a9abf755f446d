/* keeper/kernel/inspect.c: descriptors of every kind, also those that a hostile program might pass, and many at once. */
#include "tests/unit/inspect_fixture.h"

#include <sys/mman.h>
#include <sys/socket.h>

#define MANY 200

TEST_EACH(plain_file, 4)
{
	static const int flags[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_APPEND};
	struct inspect_result r = good(make("x", flags[_i], 0600), "x");

	ck_assert(!r.holds.shared && !r.holds.exclusive && !r.shared_in_use);
}

/* The keeper has it open already. */
TEST(known)
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

/* A lease for writing (fcntl) is the only description's, and stays; one for reading is not in the way. */
TEST(has_a_lease_of_the_kernel)
{
	int fd = make("x", O_RDWR, 0600);

	ck_assert_int_eq(fcntl(fd, F_SETLEASE, F_WRLCK), 0);
	refused(dup(fd), "F_SETLEASE");
	ck_assert_int_eq(fcntl(fd, F_GETLEASE), F_WRLCK);
	close(fd);
	fd = make("x", O_RDONLY, 0600);
	ck_assert_int_eq(fcntl(fd, F_SETLEASE, F_RDLCK), 0);
	good(dup(fd), "x");
	ck_assert_int_eq(fcntl(fd, F_GETLEASE), F_RDLCK);
	close(fd);
}

/* There is no lease under which somebody could hold something. */
TEST(unused)
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

TEST(directory)
{
	struct inspect_result r = look(open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));

	check_good(&r, folder);
	ck_assert_int_eq(flock(r.fd, LOCK_EX | LOCK_NB), 0);
	close(r.fd);
}

/* The kernel takes no lock on such a descriptor; libdflock asks its own kernel about that. What the user may open counts
 * (test_inspect_paths.c). */
TEST(path_only)
{
	struct inspect_request request = {
		.peer = self, .takes = true, .space = WIRE_RECORD, .mode = WIRE_SHARED, .to = 1};
	struct inspect_result r;

	close(make("x", O_RDWR, 0600));
	good(open(in_folder("x"), O_PATH | O_CLOEXEC), "x");
	request.fd = open(in_folder("x"), O_PATH | O_CLOEXEC);
	ck_assert_int_lt(inspect_now(&request, &r), 0);
	check_refused(&r, "not open for reading");
}

/* What inspect_ground() has seen is not asked for again; but a file that was deleted since is. " (deleted)" may be part of a name. */
TEST_EACH(seen_before, 3)
{
	const char *name = _i == 2 ? "x (deleted)" : "x";
	struct inspect_request request = {.peer = self, .fd = make(name, O_RDWR, 0600)};
	struct inspect_result r;

	ck_assert_int_eq(fstat(request.fd, &request.seen.st), 0);
	if (_i == 1)
		unlink(in_folder(name));
	ck_assert_int_eq(inspect_now(&request, &r), 0);
	check_good(&r, in_folder(name));
	ck_assert_uint_eq(r.st.st_nlink, _i != 1);
	close(r.fd);
}

TEST(other_kinds)
{
	int pair[2], ends[2];

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	ck_assert_int_eq(mkfifo(in_folder("pipe"), 0600), 0);
	const int fds[] = {ends[0],
			   ends[1],
			   pair[0],
			   pair[1],
			   open("/dev/null", O_RDWR | O_CLOEXEC),
			   open(in_folder("pipe"), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};

	for (int i = 0; i < ROWS(fds); i++)
		refused(fds[i], "neither a regular file nor a directory");
}

/* Without a name in any folder: it cannot be protected, but it is no reason to fail either. */
TEST(nameless)
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

TEST(many_at_once)
{
	if (at_once)
		return;
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

/* --- what the descriptor holds, and that a look changes nothing of it --- */

static void holds(int fd, bool shared, bool exclusive)
{
	struct inspect_result r = good(dup(fd), "x");

	ck_assert(r.holds.shared == shared && r.holds.exclusive == exclusive);
}

TEST(locks_of_the_description)
{
	int fd = make("x", O_RDWR, 0600), other = make("x", O_RDWR, 0600);
	struct flock record = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};

	ck_assert_int_eq(flock(fd, LOCK_SH), 0);
	holds(fd, true, false);
	holds(other, false, false); /* that of another description does not count */
	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	holds(fd, false, true);
	ck_assert_int_eq(flock(fd, LOCK_UN), 0);
	/* Neither does the record space. */
	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &record), 0);
	holds(fd, false, false);
	record.l_start = 5;
	ck_assert_int_eq(fcntl(other, F_SETLK, &record), 0);
	holds(other, false, false);
	/* However many there are. */
	for (record.l_start = 10; record.l_start < 2000; record.l_start += 2)
		ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &record), 0);
	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	holds(fd, false, true);
	close(fd);
	close(other);
}

/* Nor does the keeper's look take anything away from the program, or share its lock. */
TEST_EACH(lock_stays_with_its_owner, 2)
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

TEST(shared_in_use)
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

/* When the program closes its descriptor its lock is gone: the keeper's copy is closed before the answer. */
TEST_EACH(lock_ends_with_its_owner, 2)
{
	if (at_once)
		return;

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
