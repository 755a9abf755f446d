/* keeper/kernel/probe.c: which probes have threads, and how many threads are kept. */
#include "keeper/kernel/family.h"
#include "tests/unit/probe_fixture.h"

#include <dlfcn.h>
#include <sys/resource.h>

#define MANY   1000
#define PARKED 4

static bool refuse_threads;

/* This is the one that the probe calls. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
		(int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT,
											       "pthread_create");

	return refuse_threads ? EAGAIN : real(thread, attr, run, arg);
}

/* Threads end some time after the last answer. */
static void until_threads(unsigned count)
{
	while (threads() != count) {
		uv_run(&loop, UV_RUN_NOWAIT); /* its deadline */
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
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

/* A local file: free, in use, shared; no thread is needed to say so. */
TEST_EACH(tested_at_once, 6)
{
	static const struct {
		int op;
		bool shared_will_do;
		enum probe_answer answer;
	} cases[] = {{0, false, PROBE_FREE},        {0, true, PROBE_FREE},          {LOCK_EX, false, PROBE_IN_USE},
		     {LOCK_EX, true, PROBE_IN_USE}, {LOCK_SH, false, PROBE_IN_USE}, {LOCK_SH, true, PROBE_SHARED}};
	int fd = holder(cases[_i].op);
	struct asked a = {0};

	start_local(&a, cases[_i].shared_will_do, false);
	ck_assert_uint_eq(threads(), 0);
	until_last(&a);
	check_answer(&a, cases[_i].answer);
	ck_assert_uint_eq(threads(), 0);
	close(fd);
	ck_assert_int_eq(possible(), LOCK_EX);
	close(a.fd);
}

TEST(records_are_tested_at_once)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct asked a = {0}, b = {0};
	int fd = open_file();

	start_want(&a, &(struct probe_want){.space = WIRE_RECORD, .to = 10, .wait = true, .local = true});
	until_last(&a);
	check_answer(&a, PROBE_FREE);
	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
	start_want(&b, &(struct probe_want){.space = WIRE_RECORD, .to = 10, .local = true});
	until_last(&b);
	check_answer(&b, PROBE_IN_USE);
	ck_assert_uint_eq(threads(), 0);
	close(a.fd);
	close(b.fd);
	close(fd);
}

TEST_EACH(kernel_refuses_at_once, 2)
{
	struct asked a = {.fd = open(path, O_PATH | O_CLOEXEC)};

	start_local(&a, false, _i);
	until_last(&a);
	ck_assert_int_eq(a.answer, PROBE_STOPPED);
	ck_assert_int_eq(a.error, EBADF);
	ck_assert_uint_eq(a.in_use + threads(), 0);
	close(a.fd);
}

/* So many leases are recalled at once: no thread is started for those that are not in use. */
TEST(many_that_are_free)
{
	static struct asked all[MANY];

	allow_descriptors();
	for (int i = 0; i < MANY; i++)
		start_local(&all[i], false, true);
	ck_assert_uint_eq(threads(), 0);
	for (int i = 0; i < MANY; i++) {
		until_last(&all[i]);
		check_answer(&all[i], PROBE_FREE);
		close(all[i].fd);
	}
	ck_assert_uint_eq(threads(), 0);
}

/* In use: the first answer comes from the loop, the last from a thread, in this order, and both once. */
TEST_EACH(waits_after_the_test, 2)
{
	int fd = holder(_i ? LOCK_SH : LOCK_EX);
	struct asked a = {0};

	start_local(&a, false, true);
	until_in_use(&a);
	close(fd);
	until_last(&a);
	check_answer(&a, PROBE_FREE);
	ck_assert_int_eq(possible(), LOCK_EX);
	close(a.fd);
}

/* The lock ends before the loop has told that it is in use. */
TEST(ends_at_once)
{
	int fd = holder(LOCK_EX);
	struct asked a = {0};

	start_local(&a, false, true);
	close(fd);
	until_last(&a);
	check_answer(&a, PROBE_FREE);
	ck_assert_uint_eq(a.in_use, 1);
	close(a.fd);
}

TEST(stopped_before_its_thread)
{
	int fd = holder(LOCK_EX);
	struct asked a = {0};

	start_local(&a, false, true);
	probe_stop(a.probe);
	until_last(&a);
	check_answer(&a, PROBE_STOPPED);
	close(fd);
	ck_assert_int_eq(possible(), LOCK_EX);
	close(a.fd);
}

static void wait_for_each(struct asked *all, unsigned count)
{
	int fd = holder(LOCK_EX);

	for (unsigned i = 0; i < count; i++) {
		int own = all[i].fd;

		all[i] = (struct asked){.fd = own};
		start_local(&all[i], false, true);
	}
	for (unsigned i = 0; i < count; i++)
		until_in_use(&all[i]);
	ck_assert_uint_ge(threads(), count); /* each has one: none waits for another one's end */
	close(fd);
	for (unsigned i = 0; i < count; i++) {
		until_last(&all[i]);
		check_answer(&all[i], PROBE_FREE);
	}
}

TEST(threads_are_parked)
{
	static struct asked all[3 * PARKED];

	wait_for_each(all, 1);
	until_threads(1);
	until_parked();
	wait_for_each(all, 1); /* the same thread */
	ck_assert_uint_eq(threads(), 1);
	wait_for_each(all, 3 * PARKED);
	until_threads(PARKED);
	wait_for_each(all, 3 * PARKED);
	until_threads(PARKED);
	for (int i = 0; i < 3 * PARKED; i++)
		close(all[i].fd);
}

/* A thread that waits for a record has left the table of descriptors: it must not be used for the next probe. */
TEST(threads_of_records_end)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct asked a = {0}, b = {0};
	int fd = open_file();

	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
	start_record(&a, 0, 10, false, true);
	until_in_use(&a);
	close(fd);
	until_last(&a);
	check_answer(&a, PROBE_FREE);
	until_threads(0);
	fd = holder(LOCK_EX);
	start_local(&b, false, true);
	until_in_use(&b);
	close(fd);
	until_last(&b);
	check_answer(&b, PROBE_FREE);
	close(a.fd);
	close(b.fd);
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
	until_last(&a);
	check_answer(&a, PROBE_IN_USE);
	close(fd);
	close(a.fd);
}
