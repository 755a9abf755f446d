/*
 * keeper/guard/supervise.c: when another keeper is started, what it finds, when one that hangs is killed, which signals reach it, and what a
 * service manager hears. A keeper is a function here, which a process of its own runs; the table of leases and the parent's looks are real.
 */
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "keeper/guard/manager.h"
#include "keeper/guard/supervise.h"
#include "keeper/guard/table.h"
#include "keeper/guard/table_text.h"
#include "tests/unit/base_folder.h"
#include "tests/unit/wait_until.h"

#define MOST  8
#define WRONG 77 /* a keeper's exit status: what it found is not what it should find */

/* What keepers and the test tell each other. */
static struct {
	atomic_int runs;
	_Atomic pid_t pids[MOST];
	atomic_int terms; /* SIGTERMs that keepers got */
	atomic_bool go, more;
	atomic_uint told; /* what the table must say then */
} * shared;

static int dir_fd, ready[2];
static pid_t parent;

static void begin(void)
{
	base_make();
	dir_fd = base_open();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
	parent = 0;
}

static void end(void)
{
	if (parent) {
		kill(parent, SIGKILL);
		waitpid(parent, NULL, 0);
	}
	for (int i = 0; i < MOST; i++)
		if (shared->pids[i])
			kill(shared->pids[i], SIGKILL);
	munmap(shared, sizeof(*shared));
	close(dir_fd);
	close(ready[0]);
	close(ready[1]);
	base_remove();
}

/* --- keepers --- */

typedef int keeper_life(const struct supervised *keeper, int run);

static int run(void *arg, const struct supervised *keeper)
{
	int number = atomic_fetch_add(&shared->runs, 1);
	if (number >= MOST)
		return KEEPER_EXIT_IDLE;
	shared->pids[number] = getpid();
	return (*(keeper_life **)arg)(keeper, number);
}

/* Under a service manager, if there is one. */
static void start_under(struct manager *manager, keeper_life *life)
{
	const struct supervise options = {.runtime_dir = base,
					  .dir_fd = dir_fd,
					  .ready_fd = manager ? -1 : ready[1],
					  .manager = manager,
					  .run = run,
					  .arg = &life};

	parent = fork();
	ck_assert_int_ge(parent, 0);
	if (parent == 0) {
		if (manager)
			manager_begin(manager, true);
		_exit(supervise(&options));
	}
	close(ready[1]);
	ready[1] = -1;
}

static void start(keeper_life *life) { start_under(NULL, life); }

static int wait_for_end(void)
{
	int status;
	ck_assert_int_eq(waitpid(parent, &status, 0), parent);
	parent = 0;
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* A keeper takes SIGTERM when it can act on it. */
static void await_term(void)
{
	sigset_t term;
	int number;
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigwait(&term, &number);
	atomic_fetch_add(&shared->terms, 1);
}

static void take_lease(struct table *table)
{
	const struct store_range all = {WIRE_FLOCK, WIRE_EXCLUSIVE, 0, WIRE_EOF};
	const struct table_lease lease = {.token = "0123456789abcdef0123456789abcdef",
					  .name = "x",
					  .path = "/srv/x",
					  .file = {.dev = 1, .ino = UINT64_MAX},
					  .range = all};
	uint32_t slot = TABLE_NO_SLOT;

	if (table_text_open(table) != 0 || table_ask(table, &lease, &slot) != 0)
		exit(WRONG);
	table_grant(table, slot, 1, &all, &lease.file);
}

/* One that runs out soon, so that it is soon noticed if its keeper hangs. */
static void take_short_lease(struct table *table)
{
	int64_t now = clock_now_ns();
	take_lease(table);
	table_renewed(table, 0, now + 1000 * NS_PER_MS, now + 2000 * NS_PER_MS);
}

/* --- when another one is started, and what it is given --- */

static int forks = INT_MAX; /* so many succeed, and three after them do not */

pid_t fork(void)
{
	if (forks > -3 && forks-- <= 0) {
		errno = EAGAIN;
		return -1;
	}
	return _Fork();
}

static int idle(const struct supervised *keeper, int number) { return KEEPER_EXIT_IDLE; }
static int cannot_start(const struct supervised *keeper, int number) { return KEEPER_EXIT_CONFIG; }

/* What its predecessor had must be watched. */
static int cannot_start_after_one_that_died(const struct supervised *keeper, int number)
{
	if (number == 0) {
		take_lease(keeper->table);
		abort();
	}
	if (number == 3)
		table_vacate(keeper->table, 0);
	return KEEPER_EXIT_CONFIG;
}

static int die_twice(const struct supervised *keeper, int number)
{
	if (number == 0)
		raise(SIGKILL);
	return number == 1 ? 5 : KEEPER_EXIT_IDLE;
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

static int hang_with_a_lease(const struct supervised *keeper, int number)
{
	if (number == 0) {
		take_short_lease(keeper->table);
		hang(NULL);
	}
	table_vacate(keeper->table, 0);
	return KEEPER_EXIT_IDLE;
}

/* Its loop turns: however long it lives. */
static int turn(const struct supervised *keeper, int number)
{
	take_short_lease(keeper->table);
	for (int i = 0; i < 80; i++) {
		poll(NULL, 0, 10);
		table_alive(keeper->table);
	}
	table_vacate(keeper->table, 0);
	return KEEPER_EXIT_IDLE;
}

static const struct {
	keeper_life *life;
	int ends, runs;
	int forks; /* that succeed; 0: all */
} lives[] = {
	{idle, KEEPER_EXIT_IDLE, 1, 0},
	{cannot_start, KEEPER_EXIT_CONFIG, 1, 0},
	{cannot_start_after_one_that_died, KEEPER_EXIT_CONFIG, 4, 0},
	{cannot_start_after_one_that_died, KEEPER_EXIT_CONFIG, 4, 2}, /* of the parent, and of a keeper */
	{die_twice, KEEPER_EXIT_IDLE, 3, 0},
	{idle_with_a_thread_that_hangs, KEEPER_EXIT_UNCONFIRMED, 1, 0},
	{die_with_a_lease, KEEPER_EXIT_IDLE, 2, 0},
	{look_around, KEEPER_EXIT_IDLE, 2, 0},
	{hang_with_a_lease, KEEPER_EXIT_IDLE, 2, 0},
	{turn, KEEPER_EXIT_IDLE, 1, 0},
};

FIXTURE(begin, end)

TEST_EACH(how_many_are_started, ROWS(lives))
{
	if (lives[_i].forks)
		forks = lives[_i].forks;
	start(lives[_i].life);
	ck_assert_int_eq(wait_for_end(), lives[_i].ends);
	ck_assert_int_eq(shared->runs, lives[_i].runs);
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

	make_file(in_base(TABLE_NAME));
	ck_assert_int_eq(truncate(in_base(TABLE_NAME), 8), 0);
	ck_assert_int_eq(mkdirat(dir_fd, TABLE_BAD_NAME, 0700), 0);
	start(idle);
	ck_assert_int_eq(wait_for_end(), KEEPER_EXIT_CONFIG);
	ck_assert_int_eq(shared->runs, 0);
	ck_assert_int_gt(read(ready[0], line, sizeof(line) - 1), 0);
	ck_assert_ptr_nonnull(strstr(line, "/leases: Is a directory; the keeper cannot start without it"));
}

/* --- signals --- */

/* Takes two signals if the first one is SIGTERM and the second SIGQUIT; ends as it is told. */
static int end_as_told(const struct supervised *keeper, int number)
{
	shared->go = true;
	await_term();
	if (keeper->table->head->ending == TABLE_TOLD_TO_END && shared->more) {
		shared->go = false;
		await_term();
	}
	return keeper->table->head->ending == shared->told ? KEEPER_EXIT_IDLE : WRONG;
}

static const struct {
	int first, second, told;
} signals[] = {
	{SIGTERM, 0, TABLE_TOLD_TO_END},
	{SIGQUIT, 0, TABLE_TOLD_TO_MAKE_WAY},
	{SIGTERM, SIGQUIT, TABLE_TOLD_TO_MAKE_WAY}, /* also while it waits for locks to end */
};

TEST_EACH(signals_are_passed_on, ROWS(signals))
{
	shared->told = signals[_i].told;
	shared->more = signals[_i].second;
	start(end_as_told);
	wait_until(shared->go);
	kill(parent, signals[_i].first);
	if (signals[_i].second) {
		wait_until(!shared->go);
		kill(parent, signals[_i].second);
	}
	ck_assert_int_eq(wait_for_end(), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 1);
	ck_assert_int_eq(shared->terms, signals[_i].second ? 2 : 1);
}

/* It waits for locks to end, and dies: after the first signal another one is started, after the second none is. */
static int die_after_term(const struct supervised *keeper, int number)
{
	shared->go = true;
	await_term();
	raise(SIGKILL);
	return WRONG;
}

TEST(dies_while_it_ends)
{
	start(die_after_term);
	wait_until(shared->go);
	kill(parent, SIGTERM);
	wait_until(shared->runs == 2);
	poll(NULL, 0, KEEPER_AGAIN_MS + 100); /* else it is the same signal */
	kill(parent, SIGTERM);
	ck_assert_int_eq(wait_for_end(), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 2);
}

/* A program that signals both parent and keeper means it once. */
static int die_after_two_terms(const struct supervised *keeper, int number)
{
	if (number > 0)
		return KEEPER_EXIT_IDLE;
	shared->go = true;
	await_term();
	shared->go = false;
	await_term();
	raise(SIGKILL);
	return WRONG;
}

TEST(two_signals_at_once_are_one)
{
	int64_t first_ns;
	bool at_once;

	start(die_after_two_terms);
	wait_until(shared->go);
	first_ns = clock_now_ns();
	kill(parent, SIGTERM);
	wait_until(!shared->go);
	kill(parent, SIGTERM);
	wait_until(shared->terms == 2);
	at_once = clock_now_ns() - first_ns < KEEPER_AGAIN_MS * NS_PER_MS; /* not on a machine that is very busy */
	ck_assert_int_eq(wait_for_end(), KEEPER_EXIT_IDLE);
	if (at_once)
		ck_assert_int_eq(shared->runs, 2);
}

/* The parent waits for 1.5 s before it starts the sixth keeper. */
static int die_five_times(const struct supervised *keeper, int number)
{
	if (number == 5)
		return keeper->table->head->ending == TABLE_TOLD_TO_END ? KEEPER_EXIT_IDLE : WRONG;
	raise(SIGKILL);
	return WRONG;
}

TEST_EACH(between_two_keepers, 2)
{
	int64_t from_ns;
	start(die_five_times);
	wait_until(shared->runs == 5 && shared->pids[4] && kill(shared->pids[4], 0) != 0);
	from_ns = clock_now_ns();
	kill(parent, _i ? SIGQUIT : SIGTERM);
	ck_assert_int_eq(wait_for_end(), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, _i ? 5 : 6);
	if (!_i)
		ck_assert_int_lt(clock_now_ns() - from_ns, 1000 * NS_PER_MS);
}

/* --- a service manager --- */

/* Runs `life` under a service manager whose socket this returns. */
static int start_managed(keeper_life *life)
{
	static struct manager manager;
	int inbox = listen_at(in_base("notify"));

	setenv("NOTIFY_SOCKET", in_base("notify"), 1);
	setenv("WATCHDOG_USEC", "40000", 1);
	start_under(&manager, life);
	return inbox;
}

/* The next message that is not the watchdog's, of which `alive` counts. */
static const char *hear(int inbox, int *alive)
{
	static char line[64];
	ssize_t n = -1;

	for (;; ++*alive) {
		wait_until((n = recv(inbox, line, sizeof(line) - 1, 0)) > 0);
		line[n] = '\0';
		if (strcmp(line, "WATCHDOG=1") != 0)
			return line;
		if (*alive == 2) /* not served before; but the parent lives */
			shared->go = true;
	}
}

/* The first one dies if there is a second one. */
static int serve_when_told(const struct supervised *keeper, int number)
{
	if (number == 0 && shared->more)
		raise(SIGKILL);
	wait_until(shared->go);
	supervise_serves(keeper->table, keeper->serves);
	await_term();
	return keeper->table->head->ending == TABLE_TOLD_TO_END ? KEEPER_EXIT_IDLE : WRONG;
}

TEST_EACH(the_manager_hears_when_programs_are_served, 2)
{
	int inbox, alive = 0;

	shared->more = _i;
	inbox = start_managed(serve_when_told);
	ck_assert_str_eq(hear(inbox, &alive), "READY=1");
	ck_assert_int_ge(alive, 3);
	ck_assert_int_eq(shared->runs, 1 + _i);
	kill(parent, SIGTERM);
	ck_assert_str_eq(hear(inbox, &alive), "STOPPING=1");
	ck_assert_int_eq(wait_for_end(), KEEPER_EXIT_IDLE);
	close(inbox);
}
