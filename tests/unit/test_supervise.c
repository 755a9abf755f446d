/* keeper/guard/supervise.c: when another keeper is started, what it finds, and when one that hangs is killed. */
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "tests/unit/supervise_fixture.h"

/* --- when another one is started --- */

static int idle(const struct supervised *keeper, int number) { return KEEPER_EXIT_IDLE; }

FIXTURE(begin, end)

TEST(ends_with_a_keeper_that_is_idle)
{
	ck_assert_int_eq(result(idle), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 1);
}

static int cannot_start(const struct supervised *keeper, int number) { return KEEPER_EXIT_CONFIG; }

TEST(ends_with_a_keeper_that_cannot_start)
{
	ck_assert_int_eq(result(cannot_start), KEEPER_EXIT_CONFIG);
	ck_assert_int_eq(shared->runs, 1);
}

/* What its predecessor had must be watched. */
static int cannot_start_after_one_that_died(const struct supervised *keeper, int number)
{
	if (number == 0) {
		take_lease(keeper->table);
		abort();
	}
	if (number < 3)
		return KEEPER_EXIT_CONFIG;
	table_vacate(keeper->table, 0);
	return KEEPER_EXIT_CONFIG;
}

TEST(stays_while_there_are_leases)
{
	ck_assert_int_eq(result(cannot_start_after_one_that_died), KEEPER_EXIT_CONFIG);
	ck_assert_int_eq(shared->runs, 4);
}

static int forks = INT_MAX; /* so many succeed, and three after them do not */

pid_t fork(void)
{
	if (forks > -3 && forks-- <= 0) {
		errno = EAGAIN;
		return -1;
	}
	return _Fork();
}

TEST(stays_while_there_are_leases_and_no_process_can_be_made)
{
	forks = 2; /* of the parent, and of a keeper */
	ck_assert_int_eq(result(cannot_start_after_one_that_died), KEEPER_EXIT_CONFIG);
	ck_assert_int_eq(shared->runs, 4);
}

static int die_twice(const struct supervised *keeper, int number)
{
	if (number == 0)
		raise(SIGKILL);
	return number == 1 ? 5 : KEEPER_EXIT_IDLE;
}

TEST(started_again)
{
	ck_assert_int_eq(result(die_twice), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 3);
}

static void *hang(void *arg)
{
	for (;;)
		pause();
	return arg;
}

/* The first thread only: what a process looks like in which a thread waits for a file system that does not answer. */
static void hang_at_the_end(void) { syscall(SYS_exit, 0); }

static int idle_with_a_thread_that_hangs(const struct supervised *keeper, int number)
{
	pthread_t thread;

	if (number > 0)
		return WRONG;
	return !pthread_create(&thread, NULL, hang, NULL) && !atexit(hang_at_the_end) ? KEEPER_EXIT_UNCONFIRMED : WRONG;
}

TEST(a_thread_that_hangs_starts_no_other_keeper)
{
	ck_assert_int_eq(result(idle_with_a_thread_that_hangs), KEEPER_EXIT_UNCONFIRMED);
	ck_assert_int_eq(shared->runs, 1);
}

/* The next one may not take for sure what the dead one had. */
static int die_with_a_lease(const struct supervised *keeper, int number)
{
	if (number == 0) {
		take_lease(keeper->table);
		raise(SIGKILL);
	}
	if (table_state(keeper->table, 0) != TABLE_UNSURE)
		return WRONG;
	table_vacate(keeper->table, 0);
	return KEEPER_EXIT_IDLE;
}

TEST(leases_of_a_dead_keeper_are_unsure)
{
	ck_assert_int_eq(result(die_with_a_lease), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 2);
}

/* --- what a keeper is given --- */

static int look_around(const struct supervised *keeper, int number)
{
	sigset_t blocked;
	struct pollfd pipe_end = {.fd = keeper->parent_fd, .events = POLLIN};

	sigprocmask(SIG_BLOCK, NULL, &blocked);
	if (!sigismember(&blocked, SIGTERM) || !sigismember(&blocked, SIGINT) || sigismember(&blocked, SIGCHLD) ||
	    sigismember(&blocked, SIGUSR1) || keeper->table->head->parent != getppid())
		return WRONG;
	if (poll(&pipe_end, 1, 0) != 0 || (number == 0) != (keeper->ready_fd >= 0))
		return WRONG;
	if (number == 0)
		raise(SIGKILL);
	return KEEPER_EXIT_IDLE;
}

TEST(what_a_keeper_is_given)
{
	ck_assert_int_eq(result(look_around), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 2);
}

static int outlive_the_parent(const struct supervised *keeper, int number)
{
	struct pollfd pipe_end = {.fd = keeper->parent_fd, .events = POLLIN};

	shared->go = true;
	atomic_fetch_add(&shared->terms, poll(&pipe_end, 1, 20000) == 1 ? 100 : 0);
	return KEEPER_EXIT_IDLE;
}

TEST(the_pipe_ends_with_the_parent)
{
	start(outlive_the_parent);
	wait_until(shared->go);
	kill(parent, SIGKILL);
	waitpid(parent, NULL, 0);
	parent = 0;
	wait_until(shared->terms == 100);
}

TEST(no_table)
{
	char line[512] = "";
	int fd = openat(dir_fd, TABLE_NAME, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_eq(write(fd, "nonsense", 8), 8);
	close(fd);
	ck_assert_int_eq(mkdirat(dir_fd, TABLE_BAD_NAME, 0700), 0);
	ck_assert_int_eq(result(idle), KEEPER_EXIT_CONFIG);
	ck_assert_int_eq(shared->runs, 0);
	ck_assert_int_gt(read(ready[0], line, sizeof(line) - 1), 0);
	ck_assert_ptr_nonnull(strstr(line, "/leases: Is a directory; the keeper cannot start without it"));
}

/* --- hanging --- */

/* Leases run out soon: so it is noticed soon. */
static int hang_with_a_lease(const struct supervised *keeper, int number)
{
	int64_t now = clock_now_ns();

	if (number > 0) {
		table_vacate(keeper->table, 0);
		return KEEPER_EXIT_IDLE;
	}
	take_lease(keeper->table);
	table_renewed(keeper->table, 0, now + 1000 * NS_PER_MS, now + 2000 * NS_PER_MS);
	for (;;)
		pause();
}

TEST(hangs)
{
	ck_assert_int_eq(result(hang_with_a_lease), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 2);
}

/* Its loop turns: however long it lives. */
static int turn(const struct supervised *keeper, int number)
{
	int64_t now = clock_now_ns();

	take_lease(keeper->table);
	table_renewed(keeper->table, 0, now + 1000 * NS_PER_MS, now + 2000 * NS_PER_MS);
	for (int i = 0; i < 80; i++) {
		poll(NULL, 0, 10);
		table_alive(keeper->table);
	}
	table_vacate(keeper->table, 0);
	return KEEPER_EXIT_IDLE;
}

TEST(does_not_hang)
{
	ck_assert_int_eq(result(turn), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 1);
}
