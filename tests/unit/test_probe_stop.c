/* keeper/kernel/probe.c: probes that are stopped, at any moment of their wait, and races. */
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
	ends(&a, PROBE_STOPPED);
	close(fd);
	ck_assert_int_eq(possible(), LOCK_EX); /* it does not get it later */
}

/* Nothing else keeps the loop alive: it runs until the last answer, and no longer. */
TEST(keeps_the_loop_alive)
{
	int fd = holder(LOCK_EX);
	struct asked both[2] = {0};

	uv_run(&loop, UV_RUN_DEFAULT); /* nothing to wait for */
	for (int i = 0; i < 2; i++)
		start(&both[i], false, true);
	for (int i = 0; i < 2; i++)
		until_in_use(&both[i]);
	for (int i = 0; i < 3; i++)
		probe_stop(both[i % 2].probe);
	uv_run(&loop, UV_RUN_DEFAULT);
	for (int i = 0; i < 2; i++)
		ck_assert_uint_eq(both[i].last, 1);
	for (int i = 0; i < 2; i++)
		ends(&both[i], PROBE_STOPPED);
	uv_run(&loop, UV_RUN_DEFAULT);
	close(fd);
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
	ends(&a, PROBE_STOPPED);
	ck_assert_uint_eq(a.in_use, 1);
	close(fd);
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
	ends(&b, PROBE_STOPPED);
	ck_assert_uint_eq(a.last, 0);
	close(fd);
	ends(&a, PROBE_FREE);
}

/* A start, a stop and an unlock as close together as can be: exactly one last answer, and it is true. */
TEST_EACH(races, 2)
{
	static const int ops[] = {0, LOCK_SH, LOCK_EX, LOCK_EX};
	const bool record = _i;
	struct asked a = {.fd = open_file()};
	int fd = open_file(), got[4] = {0};
	unsigned seed = 4711;

	for (int i = 0; i < RACES && !(record && suite_under_valgrind()); i++) {
		struct other other = {.fd = fd, .turns = rand_r(&seed) % 40000, .record = record};
		int op = ops[rand_r(&seed) % 4];
		bool lets_go = rand_r(&seed) % 2;
		struct probe_want want = {.space = record ? WIRE_RECORD : WIRE_FLOCK, .to = WIRE_EOF};
		pthread_t thread;

		want.shared_will_do = rand_r(&seed) % 2;
		want.wait = rand_r(&seed) % 8;
		want.local = !record && rand_r(&seed) % 2;
		if (op && record)
			ck_assert_int_eq(set_record(fd, op == LOCK_SH ? F_RDLCK : F_WRLCK, 3, 4), 0);
		else if (op)
			ck_assert_int_eq(flock(fd, op | LOCK_NB), 0);
		a = (struct asked){.fd = a.fd};
		start_want(&a, &want);
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
		other.turns = 0;
		let_go(&other);
		ck_assert_uint_le(a.in_use, 1);
		ck_assert_int_eq(a.error, 0);
		ck_assert_int_eq(possible(), LOCK_EX);
		check_no_record();
		ck_assert(a.answer != PROBE_SHARED || want.shared_will_do);
		ck_assert(op != LOCK_EX || lets_go || a.answer == PROBE_STOPPED || a.answer == PROBE_IN_USE);
		got[a.answer]++;
	}
	for (int i = 0; i < 4 && !suite_under_valgrind(); i++)
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
	ends(&a, PROBE_STOPPED);
	close(fd);
}
