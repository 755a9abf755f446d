/* keeper/kernel/probe.c: probes that are stopped, at any moment of their wait. */
#include "tests/unit/probe_fixture.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>

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

static void count_signal(int number) { atomic_fetch_add(&signals, 1); }

TEST_EACH(stopped_while_waiting, 2)
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

/* Nothing else keeps the loop alive: it runs until the last answer, and no longer. */
TEST(keeps_the_loop_alive)
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

/* From inside the answer that it is in use. */
static void stop_at_once(void *arg, enum probe_answer answer, int error)
{
	struct asked *a = arg;

	on_answer(arg, answer, error);
	if (!a->last)
		probe_stop(a->probe);
}

TEST(stopped_by_its_answer)
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

/* A probe may not end for a signal that was not meant for it. */
TEST(stray_signals)
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

/* A start, a stop and an unlock as close together as can be: exactly one last answer, and it is true. */
TEST(races)
{
	static const int ops[] = {0, LOCK_SH, LOCK_EX, LOCK_EX};
	struct asked a = {.fd = open_file()};
	int fd = open_file(), got[4] = {0};
	unsigned seed = 4711;

	for (int i = 0; i < RACES; i++) {
		struct other other = {.fd = fd, .turns = rand_r(&seed) % 40000};
		int op = ops[rand_r(&seed) % 4];
		bool lets_go = rand_r(&seed) % 2;
		bool shared_will_do = rand_r(&seed) % 2, wait = rand_r(&seed) % 8, local = rand_r(&seed) % 2;
		pthread_t thread;

		if (op)
			ck_assert_int_eq(flock(fd, op | LOCK_NB), 0);
		a = (struct asked){.fd = a.fd};
		local ? start_local(&a, shared_will_do, wait) : start(&a, shared_will_do, wait);
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

/* A signal that comes just before the thread is inside flock() wakes nobody: it is sent again. */
TEST(lost_signal)
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
