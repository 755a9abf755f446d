/* keeper/kernel/probe.c: the answers about flock locks, which probes have threads, and how many threads are kept. */
#include "tests/unit/probe_fixture.h"

#include <dlfcn.h>
#include <sys/resource.h>

#define MANY   1000
#define PARKED 4

static struct asked all[MANY];
static bool refuse_threads;

/* This is the one that the probe calls. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
		(int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT,
											       "pthread_create");

	return refuse_threads ? EAGAIN : real(thread, attr, run, arg);
}

static int is_awake(void *arg, pid_t pid, pid_t tid) { return tid != pid && family_state(tid) != 'S'; }

/* A thread parks a moment after its answer: then it sleeps. */
static void until_parked(void)
{
	while (family_threads(getpid(), is_awake, NULL))
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Each has a description. */
static void allow_descriptors(void)
{
	struct rlimit *limit = &(struct rlimit){0};

	getrlimit(RLIMIT_NOFILE, limit);
	limit->rlim_cur = limit->rlim_max;
	setrlimit(RLIMIT_NOFILE, limit);
}

static const struct {
	int op;
	bool shared_will_do;
	enum probe_answer answer;
} told[] = {{0, false, PROBE_FREE},        {0, true, PROBE_FREE},          {LOCK_EX, false, PROBE_IN_USE},
	    {LOCK_EX, true, PROBE_IN_USE}, {LOCK_SH, false, PROBE_IN_USE}, {LOCK_SH, true, PROBE_SHARED}};

/* A local file needs no thread to say so. */
TEST_EACH(told_at_once, 4 * ROWS(told))
{
	const struct probe_want want = {
		.to = WIRE_EOF, .shared_will_do = told[_i / 4].shared_will_do, .wait = _i & 1, .local = _i & 2};
	enum probe_answer answer = told[_i / 4].answer;

	if (want.wait && answer == PROBE_IN_USE)
		return; /* below */

	int op = told[_i / 4].op, fd = holder(op), more = holder(op == LOCK_EX ? 0 : op);
	struct asked a = {0};

	start_want(&a, &want);
	ck_assert_uint_eq(threads(), !want.local);
	ends(&a, answer);
	ck_assert_uint_eq(a.in_use, 0);
	if (want.local)
		ck_assert_uint_eq(threads(), 0);
	close(fd);
	close(more);
	ck_assert_int_eq(possible(), LOCK_EX); /* it holds nothing any more */
}

TEST_EACH(kernel_refuses, 8)
{
	struct asked a = {.fd = open(path, O_PATH | O_CLOEXEC)};

	start_want(&a, &(struct probe_want){.to = WIRE_EOF, .shared_will_do = _i & 1, .wait = _i & 2, .local = _i & 4});
	until_last(&a);
	ck_assert_int_eq(a.answer, PROBE_STOPPED);
	ck_assert_int_eq(a.error, EBADF);
	ck_assert_uint_eq(a.in_use, 0);
	if (_i & 4)
		ck_assert_uint_eq(threads(), 0);
	close(a.fd);
}

/* The first answer comes from the loop if the file is local, the last from a thread, in this order, and both once. */
TEST_EACH(waits_and_gets_it, 4)
{
	int fd = holder(_i & 1 ? LOCK_SH : LOCK_EX), copy = dup(fd);
	struct asked a = {0};

	start_want(&a, &(struct probe_want){.to = WIRE_EOF, .wait = true, .local = _i & 2});
	until_in_use(&a);
	close(fd); /* a copy is left: still held */
	for (int i = 0; i < 10; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(a.last, 0);
	close(copy);
	ends(&a, PROBE_FREE);
	ck_assert_int_eq(possible(), LOCK_EX);
}

/* A holder that goes down to shared is enough if shared will do, and is not if it will not. */
TEST(downgrade)
{
	int fd = holder(LOCK_EX);
	struct asked some = {0}, any = {0};

	start(&some, true, true);
	until_in_use(&some);
	start(&any, false, true);
	until_in_use(&any);
	ck_assert_int_eq(flock(fd, LOCK_SH), 0);
	ends(&some, PROBE_SHARED);
	ck_assert_uint_eq(any.last, 0);
	close(fd);
	ends(&any, PROBE_FREE);
	ck_assert_int_eq(possible(), LOCK_EX);
}

/* The lock ends, or the probe is stopped, before the loop has told that it is in use. */
TEST_EACH(over_at_once, 2)
{
	int fd = holder(LOCK_EX);
	struct asked a = {0};

	start_local(&a);
	if (_i)
		probe_stop(a.probe);
	else
		close(fd);
	ends(&a, _i ? PROBE_STOPPED : PROBE_FREE);
	ck_assert(_i || a.in_use == 1);
	if (_i)
		close(fd);
	ck_assert_int_eq(possible(), LOCK_EX);
}

/* So many leases are recalled at once: no thread is started for those that are not in use. */
TEST(many_that_are_free)
{
	allow_descriptors();
	memset(all, 0, sizeof(all));
	for (int i = 0; i < MANY; i++)
		start_local(&all[i]);
	ck_assert_uint_eq(threads(), 0);
	for (int i = 0; i < MANY; i++)
		ends(&all[i], PROBE_FREE);
	ck_assert_uint_eq(threads(), 0);
}

/* All wait for one file, and get it one after the other, or are stopped. */
TEST_EACH(many_that_wait, 2)
{
	int fd = holder(LOCK_EX), many = MANY / 10;

	memset(all, 0, sizeof(all));
	for (int i = 0; i < many; i++)
		start(&all[i], false, true);
	for (int i = 0; i < many; i++)
		_i ? probe_stop(all[i].probe) : until_in_use(&all[i]);
	if (!_i)
		close(fd);
	for (int i = 0; i < many; i++)
		ends(&all[i], _i ? PROBE_STOPPED : PROBE_FREE);
	ck_assert_int_eq(possible(), _i ? LOCK_UN : LOCK_EX);
	if (_i)
		close(fd);
}

static void wait_for_each(unsigned count)
{
	int fd = holder(LOCK_EX);

	for (unsigned i = 0; i < count; i++) {
		all[i] = (struct asked){0};
		start_local(&all[i]);
	}
	for (unsigned i = 0; i < count; i++)
		until_in_use(&all[i]);
	ck_assert_uint_ge(threads(), count); /* each has one: none waits for another one's end */
	close(fd);
	for (unsigned i = 0; i < count; i++)
		ends(&all[i], PROBE_FREE);
}

TEST(threads_are_parked)
{
	wait_for_each(1);
	until_threads(1);
	until_parked();
	wait_for_each(1); /* the same thread */
	ck_assert_uint_eq(threads(), 1);
	for (int i = 0; i < 2; i++) {
		wait_for_each(3 * PARKED);
		until_threads(PARKED);
	}
}

/* A thread that waits for a record has left the table of descriptors: it must not be used for the next probe. */
TEST(threads_of_records_end)
{
	struct asked a = {0};
	int fd = record_holder(F_WRLCK, 0, WIRE_EOF);

	start_record(&a, 0, 10, false, true);
	until_in_use(&a);
	close(fd);
	ends(&a, PROBE_FREE);
	until_threads(0);
	wait_for_each(1);
}

/* No thread can be started: the probe does not exist, and nothing of it is told later. */
TEST_EACH(no_thread, 2)
{
	int fd = holder(LOCK_EX);
	struct asked a = {.fd = open_file()};
	struct probe_want want = {.to = WIRE_EOF, .wait = true, .local = _i};

	refuse_threads = true;
	ck_assert_ptr_null(probe_start(probes, a.fd, &want, on_answer, &a));
	ck_assert_int_eq(errno, EAGAIN);
	refuse_threads = false;
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(a.in_use + a.last, 0);
	want.wait = false;
	start_want(&a, &want);
	ends(&a, PROBE_IN_USE);
	close(fd);
}
