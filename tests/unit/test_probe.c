/* keeper/kernel/probe.c: the answers about flock locks, and many probes at once. */
#include "tests/unit/probe_fixture.h"

#define MANY 100

TEST_EACH(free_file, 4)
{
	struct asked a = {0};

	start(&a, _i & 1, _i & 2);
	until_last(&a);
	check_answer(&a, PROBE_FREE);
	ck_assert_uint_eq(a.in_use, 0);
	ck_assert_int_eq(possible(), LOCK_EX); /* it holds nothing any more */
	close(a.fd);
}

TEST_EACH(in_use, 3)
{
	static const int ops[] = {LOCK_EX, LOCK_SH, LOCK_EX};
	int fd = holder(ops[_i]);
	struct asked a = {0};

	start(&a, _i == 2, false);
	until_last(&a);
	check_answer(&a, PROBE_IN_USE);
	close(fd);
	ck_assert_int_eq(possible(), LOCK_EX); /* it has left nothing */
	close(a.fd);
}

TEST_EACH(shared, 2)
{
	int fd = holder(LOCK_SH), more = holder(LOCK_SH);
	struct asked a = {0};

	start(&a, true, _i);
	until_last(&a);
	check_answer(&a, PROBE_SHARED);
	ck_assert_uint_eq(a.in_use, 0);
	close(fd);
	close(more);
	ck_assert_int_eq(possible(), LOCK_EX);
	close(a.fd);
}

TEST_EACH(waits_and_gets_it, 2)
{
	int fd = holder(_i ? LOCK_SH : LOCK_EX), copy = dup(fd);
	struct asked a = {0};

	start(&a, false, true);
	until_in_use(&a);
	close(fd); /* a copy is left: still held */
	for (int i = 0; i < 10; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(a.last, 0);
	close(copy);
	until_last(&a);
	check_answer(&a, PROBE_FREE);
	ck_assert_int_eq(possible(), LOCK_EX);
	close(a.fd);
}

/* A holder that goes down to shared is enough if shared will do, and is not if it will not. */
TEST(downgrade)
{
	int fd = holder(LOCK_EX);
	struct asked some = {0}, all = {0};

	start(&some, true, true);
	until_in_use(&some);
	start(&all, false, true);
	until_in_use(&all);
	ck_assert_int_eq(flock(fd, LOCK_SH), 0);
	until_last(&some);
	check_answer(&some, PROBE_SHARED);
	ck_assert_uint_eq(all.last, 0);
	close(fd);
	until_last(&all);
	check_answer(&all, PROBE_FREE);
	ck_assert_int_eq(possible(), LOCK_EX);
	close(some.fd);
	close(all.fd);
}

TEST_EACH(kernel_refuses, 4)
{
	struct asked a = {.fd = open(path, O_PATH | O_CLOEXEC)};

	start(&a, _i & 1, _i & 2);
	until_last(&a);
	ck_assert_int_eq(a.answer, PROBE_STOPPED);
	ck_assert_int_eq(a.error, EBADF);
	ck_assert_uint_eq(a.in_use, 0);
	close(a.fd);
}

/* All wait for one file and get it one after the other. */
TEST(many_at_once)
{
	static struct asked all[MANY];
	int fd = holder(LOCK_EX);

	for (int i = 0; i < MANY; i++)
		start(&all[i], false, true);
	for (int i = 0; i < MANY; i++)
		until_in_use(&all[i]);
	close(fd);
	for (int i = 0; i < MANY; i++) {
		until_last(&all[i]);
		check_answer(&all[i], PROBE_FREE);
		close(all[i].fd);
	}
	ck_assert_int_eq(possible(), LOCK_EX);
}

TEST(many_stopped)
{
	static struct asked all[MANY];
	int fd = holder(LOCK_SH);

	for (int i = 0; i < MANY; i++) {
		all[i] = (struct asked){0};
		start(&all[i], false, true);
	}
	for (int i = 0; i < MANY; i++)
		probe_stop(all[i].probe);
	for (int i = 0; i < MANY; i++) {
		until_last(&all[i]);
		check_answer(&all[i], PROBE_STOPPED);
		close(all[i].fd);
	}
	ck_assert_int_eq(possible(), LOCK_SH);
	close(fd);
}
