/* keeper/kernel/inspect.c: what the descriptor holds, and that a look changes nothing of it. */
#include "tests/unit/inspect_fixture.h"

TEST(holds)
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
