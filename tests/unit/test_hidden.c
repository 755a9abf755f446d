/* Locks that no descriptor shows. */
#include "keeper/kernel/hidden.h"
#include "keeper/kernel/holders.h"
#include "keeper/kernel/mappers.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/suite.h"

static struct holders_file file;
static int fd;

static void setup(void)
{
	struct stat st;

	fd = suite_nameless_file();
	ck_assert_int_eq(ftruncate(fd, 4096), 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	file = (struct holders_file){.dev = st.st_dev, .ino = st.st_ino};
}

static int on_holder(void *arg, const struct holder *holder)
{
	(void)arg, (void)holder;
	return 0;
}

static int on_seen(void *arg, const struct procfs_lock *lock)
{
	return hidden_seen(arg, lock);
}

/* How many locks are hidden; *lock is one of them. */
static size_t look(struct procfs_lock *lock)
{
	struct hidden hidden;
	struct holders_search search = {
		.files = &file, .count = 1, .how = HOLDERS_AT_ONCE, .cb = on_holder, .seen = on_seen, .arg = &hidden};
	size_t count;

	ck_assert_int_eq(hidden_begin(&hidden, &file, 1), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(holders_search(&search), 0);
		ck_assert_int_eq(hidden_end(&hidden), 0);
	}
	count = hidden_count(&hidden);
	if (count && lock)
		*lock = *hidden_lock(&hidden, 0);
	hidden_free(&hidden);
	return count;
}

static int on_mapper(void *arg, size_t index, pid_t pid)
{
	ck_assert_uint_eq(index, 0);
	ck_assert_int_eq(pid, getpid());
	*(bool *)arg = true;
	return 0;
}

static bool maps_it(void)
{
	size_t passed_over;
	bool found = false;

	do /* on a busy machine a process may be passed over for nothing: Check's own time limit ends this */
		ck_assert_int_eq(mappers_find(&file, 1, on_mapper, &found, &passed_over), 0);
	while (passed_over);
	return found;
}

START_TEST(what_descriptors_show)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = 5};

	ck_assert_int_eq(flock(fd, LOCK_SH), 0);
	ck_assert_int_eq(fcntl(fd, F_SETLK, &lock), 0);
	lock.l_start = 100;
	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
	ck_assert_uint_eq(look(NULL), 0);
	ck_assert(!maps_it());
}
END_TEST

START_TEST(a_mapping)
{
	struct procfs_lock lock;
	void *at;

	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(at, MAP_FAILED);
	ck_assert_uint_eq(look(NULL), 0);
	close(fd);
	ck_assert_uint_eq(look(&lock), 1);
	ck_assert_int_eq(lock.space, WIRE_FLOCK);
	ck_assert_int_eq(lock.mode, WIRE_EXCLUSIVE);
	ck_assert_int_eq(lock.locker, getpid());
	ck_assert(maps_it());
	munmap(at, 4096);
	ck_assert_uint_eq(look(NULL), 0);
	ck_assert(!maps_it());
}
END_TEST

START_TEST(a_message)
{
	struct flock range = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 7, .l_len = 3};
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.head = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))}};
	struct iovec iov = {.iov_base = "x", .iov_len = 1};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	struct procfs_lock lock;
	int pair[2];

	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &range), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	ck_assert_int_eq(sendmsg(pair[0], &msg, 0), 1);
	ck_assert_uint_eq(look(NULL), 0);
	close(fd);
	ck_assert_uint_eq(look(&lock), 1);
	ck_assert_int_eq(lock.space, WIRE_RECORD);
	ck_assert_int_eq(lock.owner, WIRE_OWNER_DESCRIPTION);
	ck_assert_int_eq(lock.from, 7);
	ck_assert_int_eq(lock.to, 10);
	ck_assert(!maps_it());
	close(pair[0]);
	close(pair[1]);
	ck_assert_uint_eq(look(NULL), 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("hidden");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, what_descriptors_show);
	tcase_add_test(tc, a_mapping);
	tcase_add_test(tc, a_message);
	return suite_run_case("hidden", tc);
}
