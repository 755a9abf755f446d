/* keeper/kernel/inspect.c: descriptors of every kind, also those that a hostile program might pass, and many at once. */
#include "tests/unit/inspect_fixture.h"

#include <sys/mman.h>
#include <sys/socket.h>

#define MANY 200

TEST_EACH(plain_file, 4)
{
	static const int flags[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_APPEND};
	struct inspect_result r = look(make("x", flags[_i], 0600));

	check_good(&r, in_folder("x"));
	ck_assert(!r.holds.shared && !r.holds.exclusive && !r.shared_in_use);
	close(r.fd);
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
	struct inspect_result r;
	int fd = make("x", O_RDWR, 0600), mine = dup(fd);

	ck_assert_int_eq(fcntl(mine, F_SETLEASE, F_WRLCK), 0);
	r = look(fd);
	check_refused(&r, "F_SETLEASE");
	ck_assert_int_eq(fcntl(mine, F_GETLEASE), F_WRLCK);
	close(mine);
	fd = make("x", O_RDONLY, 0600), mine = dup(fd);
	ck_assert_int_eq(fcntl(mine, F_SETLEASE, F_RDLCK), 0);
	r = look(fd);
	check_good(&r, in_folder("x"));
	ck_assert_int_eq(fcntl(mine, F_GETLEASE), F_RDLCK);
	close(r.fd);
	close(mine);
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
 * (test_inspect_users.c). */
TEST(path_only)
{
	struct inspect_request request = {
		.peer = self, .takes = true, .space = WIRE_RECORD, .mode = WIRE_SHARED, .to = 1};
	struct inspect_result r;

	close(make("x", O_RDWR, 0600));
	r = look(open(in_folder("x"), O_PATH | O_CLOEXEC));
	check_good(&r, in_folder("x"));
	close(r.fd);
	request.fd = open(in_folder("x"), O_PATH | O_CLOEXEC);
	ck_assert_int_lt(inspect_now(&request, &r), 0);
	check_refused(&r, "not open for reading");
}

/* What inspect_ground() has seen is not asked for again; but a file that was deleted since is. */
TEST(seen_before)
{
	struct inspect_request request = {.peer = self};
	struct inspect_result r;
	char deleted[PATH_MAX];
	struct stat st;

	for (int removed = 0; removed < 2; removed++) {
		request.fd = make("x", O_RDWR, 0600);
		ck_assert_int_eq(fstat(request.fd, &st), 0);
		request.seen.st = st;
		if (removed)
			unlink(in_folder("x"));
		ck_assert_int_eq(inspect_now(&request, &r), 0);
		check_good(&r, in_folder("x"));
		ck_assert_uint_eq(r.st.st_nlink, !removed);
		close(r.fd);
	}
	/* Such a name is a name. */
	snprintf(deleted, sizeof(deleted), "%s", in_folder("x (deleted)"));
	request.fd = make("x (deleted)", O_RDWR, 0600);
	ck_assert_int_eq(fstat(request.fd, &request.seen.st), 0);
	ck_assert_int_eq(inspect_now(&request, &r), 0);
	check_good(&r, deleted);
	close(r.fd);
}

TEST(other_kinds)
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
