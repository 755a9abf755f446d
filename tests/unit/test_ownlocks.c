/* keeper/kernel/ownlocks.h: which record locks a process, or a description, has. */
#include "keeper/kernel/ownlocks.h"

#include <sys/file.h>

#include "tests/unit/suite.h"

static char path[SUITE_PATH_BYTES];
static struct holders_file file;
static struct own_locks before;
static int fd;

static void setup(void)
{
	struct stat st;

	fd = suite_make_file(path, "/dev/shm");
	ck_assert_int_eq(fstat(fd, &st), 0);
	file = (struct holders_file){.dev = st.st_dev, .ino = st.st_ino};
}

static void teardown(void)
{
	own_free(&before);
	unlink(path);
	close(fd);
}
FIXTURE(setup, teardown)

static void lock_range(int on, int cmd, short type, off_t from, off_t len)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = from, .l_len = len};

	ck_assert_int_eq(fcntl(on, cmd, &lock), 0);
}

static void is(size_t i, int64_t from, int64_t to, enum wire_mode mode)
{
	const struct own_lock *held = &own_locks_all(&before)[i];

	ck_assert_uint_gt(own_count(&before), i);
	ck_assert_int_eq(held->from, from);
	ck_assert_int_eq(held->to, to);
	ck_assert_int_eq(held->mode, mode);
}

/* The kernel shows a POSIX lock only with the descriptor by which it was taken; an OFD lock and a flock are none. */
TEST(of_a_process)
{
	int second = open(path, O_RDWR | O_CLOEXEC), third = open(path, O_RDWR | O_CLOEXEC);

	lock_range(second, F_SETLK, F_WRLCK, 100, 0);
	lock_range(fd, F_SETLK, F_RDLCK, 10, 5);
	lock_range(third, F_OFD_SETLK, F_WRLCK, 50, 1);
	ck_assert_int_eq(flock(third, LOCK_EX), 0);
	ck_assert_int_eq(own_of_process(&before, getpid(), &file), 0);
	ck_assert_uint_eq(own_count(&before), 2);
	is(0, 10, 15, WIRE_SHARED);
	is(1, 100, WIRE_EOF, WIRE_EXCLUSIVE);
	ck_assert_ptr_eq(own_after(&before, 0), own_locks_all(&before));
	ck_assert_ptr_eq(own_after(&before, 14), own_locks_all(&before));
	ck_assert_ptr_eq(own_after(&before, 15), own_locks_all(&before) + 1);
	ck_assert_ptr_null(own_after(&before, WIRE_EOF));
	close(second); /* and with it all POSIX locks of the process */
	own_free(&before);
	ck_assert_int_eq(own_of_process(&before, getpid(), &file), 0);
	ck_assert_uint_eq(own_count(&before), 0);
	ck_assert_ptr_null(own_after(&before, 0));
	close(third);
}

TEST(of_a_description)
{
	int second = open(path, O_RDWR | O_CLOEXEC);

	lock_range(fd, F_OFD_SETLK, F_WRLCK, 50, 1);
	lock_range(fd, F_OFD_SETLK, F_RDLCK, 7, 1);
	lock_range(second, F_OFD_SETLK, F_WRLCK, 90, 1);
	lock_range(second, F_SETLK, F_WRLCK, 95, 1);
	ck_assert_int_eq(own_of_description(&before, fd), 0);
	ck_assert_uint_eq(own_count(&before), 2);
	is(0, 7, 8, WIRE_SHARED);
	is(1, 50, 51, WIRE_EXCLUSIVE);
	own_free(&before);
	ck_assert_int_eq(own_of_description(&before, -1), -ENOENT);
	close(second);
}

TEST(too_many)
{
	for (int i = 0; i <= OWN_LOCKS_MAX; i++)
		lock_range(fd, F_OFD_SETLK, F_RDLCK, 2 * i, 1);
	ck_assert_int_eq(own_of_description(&before, fd), -E2BIG);
	own_free(&before);
	lock_range(fd, F_OFD_SETLK, F_UNLCK, 0, 1);
	ck_assert_int_eq(own_of_description(&before, fd), 0);
	ck_assert_uint_eq(own_count(&before), OWN_LOCKS_MAX);
}

TEST(copies)
{
	const struct own_lock held[] = {{1, 2, WIRE_SHARED}, {5, 9, WIRE_EXCLUSIVE}};

	ck_assert_int_eq(own_copy(&before, NULL, 0), 0);
	ck_assert_uint_eq(own_count(&before), 0);
	ck_assert_int_eq(own_copy(&before, held, 2), 0);
	ck_assert_uint_eq(own_count(&before), 2);
	is(1, 5, 9, WIRE_EXCLUSIVE);
}

TEST(one_that_has_ended)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	ck_assert_int_eq(own_of_process(&before, pid, &file), 0);
	ck_assert_uint_eq(own_count(&before), 0);
}
