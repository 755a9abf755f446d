/* keeper/kernel/probe.c against the kernel: every answer is compared with what another description can lock. */
#include "keeper/kernel/probe.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEADLINE_MS 20000
#define MANY        100
#define RACES       1000

/* One probe and what it said. */
struct asked {
	struct probe *probe;
	int fd;
	unsigned in_use, last; /* how often */
	enum probe_answer answer;
	int error;
	bool wait;
};

static char folder[] = "/tmp/dflock-probe-XXXXXX", path[64];
static uv_loop_t loop;
static struct probes *probes;
static uv_timer_t deadline;

static void on_deadline(uv_timer_t *timer)
{
	(void)timer;
	ck_abort_msg("a probe has not answered in %d ms", DEADLINE_MS);
}

static void setup(void)
{
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	probes = probes_new(&loop);
	ck_assert_ptr_nonnull(probes);
	uv_timer_init(&loop, &deadline);
	uv_timer_start(&deadline, on_deadline, DEADLINE_MS, 0);
	uv_unref((uv_handle_t *)&deadline);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
	(void)arg;
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

static void teardown(void)
{
	probes_free(probes);
	uv_walk(&loop, close_handle, NULL); /* as the keeper does */
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}

/* The thread's waiting flock() can be held up just before the kernel: this is the one that the probe calls. */
enum { GATE_OPEN, GATE_CLOSED, GATE_REACHED };
static atomic_int gate, signals;

int flock(int fd, int op)
{
	int closed = GATE_CLOSED;

	if (!(op & (LOCK_NB | LOCK_UN)) && atomic_compare_exchange_strong(&gate, &closed, GATE_REACHED))
		while (atomic_load(&gate) != GATE_OPEN)
			sched_yield();
	return syscall(SYS_flock, fd, op);
}

static void count_signal(int number)
{
	(void)number;
	atomic_fetch_add(&signals, 1);
}

/* A description of its own. */
static int open_file(void)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static int holder(int op)
{
	int fd = open_file();

	if (op)
		ck_assert_int_eq(flock(fd, op | LOCK_NB), 0);
	return fd;
}

/* What could somebody else lock now? LOCK_EX, LOCK_SH or nothing (LOCK_UN). */
static int possible(void)
{
	static const int ops[] = {LOCK_EX, LOCK_SH};
	int got = LOCK_UN, fd = open_file();

	for (int i = 0; i < 2 && got == LOCK_UN; i++)
		if (flock(fd, ops[i] | LOCK_NB) == 0)
			got = ops[i];
	close(fd);
	return got;
}

static void on_answer(void *arg, enum probe_answer answer, int error)
{
	struct asked *a = arg;

	ck_assert_uint_eq(a->last, 0); /* nothing comes after the last one */
	if (answer == PROBE_IN_USE && a->wait) {
		ck_assert_int_eq(error, 0);
		a->in_use++;
		return;
	}
	a->last++;
	a->answer = answer;
	a->error = error;
}

static void start_want(struct asked *a, const struct probe_want *want)
{
	if (!a->fd)
		a->fd = open_file();
	a->wait = want->wait;
	a->probe = probe_start(probes, a->fd, want, on_answer, a);
	ck_assert_ptr_nonnull(a->probe);
	ck_assert_uint_eq(a->in_use + a->last, 0); /* never from inside the call */
}

static void start(struct asked *a, bool shared_will_do, bool wait)
{
	start_want(a, &(struct probe_want){.to = WIRE_EOF, .shared_will_do = shared_will_do, .wait = wait});
}

static void start_record(struct asked *a, int64_t from, int64_t to, bool shared_will_do, bool wait)
{
	start_want(a, &(struct probe_want){WIRE_RECORD, from, to, shared_will_do, wait});
}

static void until_last(struct asked *a)
{
	while (!a->last)
		uv_run(&loop, UV_RUN_ONCE);
}

static void until_in_use(struct asked *a)
{
	while (!a->in_use)
		uv_run(&loop, UV_RUN_ONCE);
	ck_assert_uint_eq(a->in_use, 1);
	ck_assert_uint_eq(a->last, 0);
}

static void check_answer(const struct asked *a, enum probe_answer answer)
{
	ck_assert_int_eq(a->answer, answer);
	ck_assert_int_eq(a->error, 0);
}

/* --- the answers --- */

START_TEST(free_file)
{
	struct asked a = {0};

	start(&a, _i & 1, _i & 2);
	until_last(&a);
	check_answer(&a, PROBE_FREE);
	ck_assert_uint_eq(a.in_use, 0);
	ck_assert_int_eq(possible(), LOCK_EX); /* it holds nothing any more */
	close(a.fd);
}
END_TEST

START_TEST(in_use)
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
END_TEST

START_TEST(shared)
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
END_TEST

START_TEST(waits_and_gets_it)
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
END_TEST

/* A holder that goes down to shared is enough if shared will do, and is not if it will not. */
START_TEST(downgrade)
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
END_TEST

START_TEST(kernel_refuses)
{
	struct asked a = {.fd = open(path, O_PATH | O_CLOEXEC)};

	start(&a, _i & 1, _i & 2);
	until_last(&a);
	ck_assert_int_eq(a.answer, PROBE_STOPPED);
	ck_assert_int_eq(a.error, EBADF);
	ck_assert_uint_eq(a.in_use, 0);
	close(a.fd);
}
END_TEST

/* --- stopping --- */

START_TEST(stopped_while_waiting)
{
	int fd = holder(LOCK_EX);
	struct asked a = {0};

	start(&a, _i, true);
	until_in_use(&a);
	probe_stop(a.probe);
	probe_stop(a.probe);
	ck_assert_uint_eq(a.last, 0); /* never from inside the call */
	until_last(&a);
	check_answer(&a, PROBE_STOPPED);
	close(fd);
	ck_assert_int_eq(possible(), LOCK_EX); /* it does not get it later */
	close(a.fd);
}
END_TEST

/* Nothing else keeps the loop alive: it runs until the last answer, and no longer. */
START_TEST(keeps_the_loop_alive)
{
	int fd = holder(LOCK_EX);
	struct asked a = {0}, b = {0};

	uv_run(&loop, UV_RUN_DEFAULT); /* nothing to wait for */
	start(&a, false, true);
	start(&b, false, true);
	until_in_use(&a);
	until_in_use(&b);
	probe_stop(a.probe);
	probe_stop(b.probe);
	probe_stop(a.probe);
	uv_run(&loop, UV_RUN_DEFAULT);
	check_answer(&a, PROBE_STOPPED);
	check_answer(&b, PROBE_STOPPED);
	uv_run(&loop, UV_RUN_DEFAULT);
	close(fd);
	close(a.fd);
	close(b.fd);
}
END_TEST

/* From inside the answer that it is in use. */
static void stop_at_once(void *arg, enum probe_answer answer, int error)
{
	struct asked *a = arg;

	on_answer(arg, answer, error);
	if (!a->last)
		probe_stop(a->probe);
}

START_TEST(stopped_by_its_answer)
{
	int fd = holder(LOCK_EX);
	struct asked a = {.fd = open_file(), .wait = true};

	a.probe = probe_start(probes, a.fd, &(struct probe_want){.to = WIRE_EOF, .wait = true}, stop_at_once, &a);
	until_last(&a);
	ck_assert_uint_eq(a.in_use, 1);
	check_answer(&a, PROBE_STOPPED);
	close(fd);
	close(a.fd);
}
END_TEST

/* A probe may not end for a signal that was not meant for it. */
START_TEST(stray_signals)
{
	int fd = holder(LOCK_EX);
	struct asked a = {0}, b = {0};
	sigset_t usr2;

	sigemptyset(&usr2);
	sigaddset(&usr2, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &usr2, NULL); /* not for this thread, then: for one of theirs */
	start(&a, false, true);
	start(&b, false, true);
	until_in_use(&a);
	until_in_use(&b);
	probe_stop(b.probe);
	for (int i = 0; i < 50; i++)
		kill(getpid(), SIGUSR2);
	until_last(&b);
	ck_assert_uint_eq(a.last, 0);
	close(fd);
	until_last(&a);
	check_answer(&a, PROBE_FREE);
	close(a.fd);
	close(b.fd);
}
END_TEST

/* Another thread that ends its lock after some turns, as a program would at any moment. */
struct other {
	int fd;
	unsigned turns;
};

static void *let_go(void *arg)
{
	struct other *o = arg;

	for (volatile unsigned i = 0; i < o->turns; i++)
		;
	flock(o->fd, LOCK_UN);
	return NULL;
}

/* A start, a stop and an unlock as close together as can be: exactly one last answer, and it is true. */
START_TEST(races)
{
	static const int ops[] = {0, LOCK_SH, LOCK_EX, LOCK_EX};
	struct asked a = {.fd = open_file()};
	int fd = open_file(), got[4] = {0};
	unsigned seed = 4711;

	for (int i = 0; i < RACES; i++) {
		struct other other = {.fd = fd, .turns = rand_r(&seed) % 40000};
		int op = ops[rand_r(&seed) % 4];
		bool lets_go = rand_r(&seed) % 2;
		bool shared_will_do = rand_r(&seed) % 2, wait = rand_r(&seed) % 8;
		pthread_t thread;

		if (op)
			ck_assert_int_eq(flock(fd, op | LOCK_NB), 0);
		a = (struct asked){.fd = a.fd};
		start(&a, shared_will_do, wait);
		if (lets_go)
			ck_assert_int_eq(pthread_create(&thread, NULL, let_go, &other), 0);
		for (int turns = rand_r(&seed) % 4; turns; turns--)
			uv_run(&loop, UV_RUN_NOWAIT);
		for (volatile int turns = rand_r(&seed) % 20000; turns; turns--)
			;
		if (!a.last)
			probe_stop(a.probe);
		until_last(&a);
		if (lets_go)
			pthread_join(thread, NULL);
		flock(fd, LOCK_UN);
		ck_assert_uint_le(a.in_use, 1);
		ck_assert_int_eq(a.error, 0);
		ck_assert_int_eq(possible(), LOCK_EX);
		ck_assert(a.answer != PROBE_SHARED || shared_will_do);
		ck_assert(op != LOCK_EX || lets_go || a.answer == PROBE_STOPPED || a.answer == PROBE_IN_USE);
		got[a.answer]++;
	}
	for (int i = 0; i < 4; i++)
		ck_assert_msg(got[i], "answer %d never came: this tests too little", i);
	close(fd);
	close(a.fd);
}
END_TEST

/* A signal that comes just before the thread is inside flock() wakes nobody: it is sent again. */
START_TEST(lost_signal)
{
	int fd = holder(LOCK_EX);
	struct asked a = {0};

	sigaction(SIGUSR2, &(struct sigaction){.sa_handler = count_signal}, NULL); /* as empty as the probe's */
	atomic_store(&gate, GATE_CLOSED);
	start(&a, false, true);
	while (atomic_load(&gate) != GATE_REACHED)
		sched_yield();
	probe_stop(a.probe);
	while (!atomic_load(&signals)) /* it has come and gone */
		sched_yield();
	atomic_store(&gate, GATE_OPEN);
	until_last(&a);
	check_answer(&a, PROBE_STOPPED);
	close(fd);
	close(a.fd);
}
END_TEST

/* --- records: nothing stays --- */

static int set_record(int fd, short type, int64_t from, int64_t to)
{
	struct flock lock = {
		.l_type = type, .l_whence = SEEK_SET, .l_start = from, .l_len = to == WIRE_EOF ? 0 : to - from};

	return fcntl(fd, F_OFD_SETLK, &lock);
}

static int record_holder(short type, int64_t from, int64_t to)
{
	int fd = open_file();

	ck_assert_int_eq(set_record(fd, type, from, to), 0);
	return fd;
}

static void check_no_record(void)
{
	close(record_holder(F_WRLCK, 0, WIRE_EOF));
}

static const struct {
	short type; /* of what somebody has */
	int64_t from, to;
	int64_t want_from, want_to;
	bool shared_will_do;
	enum probe_answer answer;
} records[] = {
	{F_UNLCK, 0, WIRE_EOF, 0, WIRE_EOF, false, PROBE_FREE},
	{F_UNLCK, 0, WIRE_EOF, 0, WIRE_EOF, true, PROBE_FREE},
	{F_WRLCK, 0, WIRE_EOF, 0, WIRE_EOF, false, PROBE_IN_USE},
	{F_WRLCK, 0, WIRE_EOF, 0, WIRE_EOF, true, PROBE_IN_USE},
	{F_RDLCK, 0, WIRE_EOF, 0, WIRE_EOF, false, PROBE_IN_USE},
	{F_RDLCK, 0, WIRE_EOF, 0, WIRE_EOF, true, PROBE_SHARED},
	{F_WRLCK, 10, 20, 0, 10, false, PROBE_FREE},
	{F_WRLCK, 10, 20, 0, 11, false, PROBE_IN_USE},
	{F_WRLCK, 10, 20, 19, 20, false, PROBE_IN_USE},
	{F_WRLCK, 10, 20, 20, WIRE_EOF, false, PROBE_FREE},
	{F_WRLCK, 10, 20, 19, WIRE_EOF, false, PROBE_IN_USE},
	{F_WRLCK, 10, 11, 0, WIRE_EOF, true, PROBE_IN_USE},
	{F_RDLCK, 10, 11, 0, WIRE_EOF, true, PROBE_SHARED},
	{F_WRLCK, WIRE_EOF - 1, WIRE_EOF, 0, WIRE_EOF - 1, false, PROBE_FREE},
	{F_WRLCK, WIRE_EOF - 1, WIRE_EOF, 0, WIRE_EOF, false, PROBE_IN_USE},
};

START_TEST(record)
{
	int fd = record_holder(records[_i].type, records[_i].from, records[_i].to);
	struct asked a = {.fd = open(path, O_RDONLY | O_CLOEXEC)}; /* which is enough to ask */

	ck_assert_int_eq(flock(fd, LOCK_EX), 0); /* the other space does not matter */
	start_record(&a, records[_i].want_from, records[_i].want_to, records[_i].shared_will_do, false);
	until_last(&a);
	check_answer(&a, records[_i].answer);
	close(fd);
	check_no_record();
	close(a.fd);
}
END_TEST

/* The lock of a process counts as well as that of a description. */
START_TEST(record_of_a_process)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct asked a = {0};
	int fd = open_file();

	ck_assert_int_eq(fcntl(fd, F_SETLK, &lock), 0);
	start_record(&a, 0, 1, true, false);
	until_last(&a);
	check_answer(&a, PROBE_IN_USE);
	close(a.fd);
	close(fd);
}
END_TEST

/* A directory cannot be opened for writing, so that nothing can wait in the kernel for a shared lock's end. */
static void open_both(bool directory, int *holding, int *probing)
{
	const char *name = directory ? folder : path;

	*holding = open(name, O_RDONLY | O_CLOEXEC);
	*probing = open(name, O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(set_record(*holding, F_RDLCK, 5, 6), 0);
}

START_TEST(record_waits)
{
	struct asked a = {0};
	int fd;

	open_both(_i, &fd, &a.fd);
	start_record(&a, 0, WIRE_EOF, false, true);
	until_in_use(&a);
	ck_assert_int_eq(set_record(fd, F_RDLCK, 7, 8), 0); /* one more, behind the one that it waits for */
	ck_assert_int_eq(set_record(fd, F_UNLCK, 5, 6), 0);
	for (int i = 0; i < 10; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(a.last, 0);
	ck_assert_int_eq(set_record(fd, F_UNLCK, 7, 8), 0);
	until_last(&a);
	check_answer(&a, PROBE_FREE);
	if (!_i)
		check_no_record();
	close(fd);
	close(a.fd);
}
END_TEST

START_TEST(record_downgrade)
{
	int fd = record_holder(F_WRLCK, 5, 6);
	struct asked a = {0};

	start_record(&a, 0, WIRE_EOF, true, true);
	until_in_use(&a);
	ck_assert_int_eq(set_record(fd, F_RDLCK, 5, 6), 0);
	until_last(&a);
	check_answer(&a, PROBE_SHARED);
	close(fd);
	check_no_record();
	close(a.fd);
}
END_TEST

START_TEST(record_stopped)
{
	struct asked a = {0};
	int fd;

	open_both(_i, &fd, &a.fd);
	start_record(&a, 0, WIRE_EOF, false, true);
	until_in_use(&a);
	probe_stop(a.probe);
	until_last(&a);
	check_answer(&a, PROBE_STOPPED);
	close(fd);
	if (!_i)
		check_no_record();
	close(a.fd);
}
END_TEST

static void *let_record_go(void *arg)
{
	struct other *o = arg;

	for (volatile unsigned i = 0; i < o->turns; i++)
		;
	set_record(o->fd, F_UNLCK, 0, WIRE_EOF);
	return NULL;
}

START_TEST(record_races)
{
	int fd = open_file(), probe_fd = open_file();
	unsigned seed = 815;

	for (int i = 0; i < RACES; i++) {
		struct other other = {.fd = fd, .turns = rand_r(&seed) % 40000};
		short type = rand_r(&seed) % 2 ? F_WRLCK : F_RDLCK;
		bool shared_will_do = rand_r(&seed) % 2;
		struct asked a = {.fd = probe_fd};
		pthread_t thread;

		ck_assert_int_eq(set_record(fd, type, 3, 4), 0);
		start_record(&a, 0, WIRE_EOF, shared_will_do, true);
		ck_assert_int_eq(pthread_create(&thread, NULL, let_record_go, &other), 0);
		for (volatile int turns = rand_r(&seed) % 20000; turns; turns--)
			;
		if (rand_r(&seed) % 2)
			probe_stop(a.probe);
		until_last(&a);
		pthread_join(thread, NULL);
		ck_assert_uint_le(a.in_use, 1);
		ck_assert_int_eq(a.error, 0);
		ck_assert_int_ne(a.answer, PROBE_IN_USE);
		ck_assert(a.answer != PROBE_SHARED || shared_will_do);
		check_no_record();
	}
	close(fd);
	close(probe_fd);
}
END_TEST

/* --- many --- */

/* All wait for one file and get it one after the other. */
START_TEST(many_at_once)
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
END_TEST

START_TEST(many_stopped)
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
END_TEST

/* valgrind (3.19) lets no other thread run while one waits in F_OFD_SETLKW: nobody could end the wait. */
static bool under_valgrind(void)
{
	const char *preload = getenv("LD_PRELOAD");

	return preload && strstr(preload, "vgpreload");
}

int main(void)
{
	bool waits = !under_valgrind();
	Suite *suite = suite_create("probe");
	TCase *tc = tcase_create("flock");
	SRunner *runner;
	int failed, fd = -1;

	if (mkdtemp(folder)) {
		snprintf(path, sizeof(path), "%s/file", folder);
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	}
	if (fd < 0) {
		perror(folder);
		return EXIT_FAILURE;
	}
	close(fd);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, free_file, 0, 4);
	tcase_add_loop_test(tc, in_use, 0, 3);
	tcase_add_loop_test(tc, shared, 0, 2);
	tcase_add_loop_test(tc, waits_and_gets_it, 0, 2);
	tcase_add_test(tc, downgrade);
	tcase_add_loop_test(tc, kernel_refuses, 0, 4);
	tcase_add_loop_test(tc, stopped_while_waiting, 0, 2);
	tcase_add_test(tc, keeps_the_loop_alive);
	tcase_add_test(tc, stopped_by_its_answer);
	tcase_add_test(tc, stray_signals);
	tcase_add_test(tc, races);
	tcase_add_test(tc, lost_signal);
	tcase_add_loop_test(tc, record, 0, sizeof(records) / sizeof(*records));
	tcase_add_test(tc, record_of_a_process);
	tcase_add_loop_test(tc, record_waits, waits ? 0 : 1, 2); /* the second needs none */
	tcase_add_loop_test(tc, record_stopped, waits ? 0 : 1, 2);
	if (waits) {
		tcase_add_test(tc, record_downgrade);
		tcase_add_test(tc, record_races);
	}
	tcase_add_test(tc, many_at_once);
	tcase_add_test(tc, many_stopped);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	unlink(path);
	rmdir(folder);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
