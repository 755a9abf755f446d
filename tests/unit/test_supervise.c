/*
 * keeper/guard/supervise.c: when another keeper is started, what it finds, which signals reach it, and when one that hangs is
 * killed. A keeper is a function here, which a process of its own runs; the table of leases and the parent's looks are real.
 */
#include "keeper/guard/supervise.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper/guard/manager.h"
#include "keeper/guard/table.h"
#include "keeper/guard/table_notes.h"
#include "keeper/guard/table_text.h"
#include "tests/unit/base_folder.h"
#include "tests/unit/suite.h"
#include "tests/unit/wait_until.h"

#define MOST  8
#define WRONG 77 /* a keeper's exit status: what it found is not what it should find */

/* What keepers and the test tell each other. */
static struct {
	atomic_int runs;
	_Atomic pid_t pids[MOST];
	atomic_int terms; /* SIGTERMs that keepers got */
	atomic_bool go;
} * shared;

static int dir_fd, ready[2];
static pid_t parent;
static struct manager manager;

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

/* What the supervisor of such keepers returns. */
static int supervise_it(keeper_life *life)
{
	const struct supervise options = {
		.runtime_dir = base, .dir_fd = dir_fd, .ready_fd = ready[1], .run = run, .arg = &life};

	return supervise(&options);
}

static void start(keeper_life *life)
{
	parent = fork();
	ck_assert_int_ge(parent, 0);
	if (parent == 0)
		_exit(supervise_it(life));
	close(ready[1]);
	ready[1] = -1;
}

static int wait_for_end(void)
{
	int status;

	ck_assert_int_eq(waitpid(parent, &status, 0), parent);
	parent = 0;
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int result(keeper_life *life)
{
	start(life);
	return wait_for_end();
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

static uint32_t take_lease(struct table *table)
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
	return slot;
}

/* --- when another one is started --- */

static int idle(const struct supervised *keeper, int number)
{
	(void)keeper, (void)number;
	return KEEPER_EXIT_IDLE;
}

START_TEST(ends_with_a_keeper_that_is_idle)
{
	ck_assert_int_eq(result(idle), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 1);
}
END_TEST

static int cannot_start(const struct supervised *keeper, int number)
{
	(void)keeper, (void)number;
	return KEEPER_EXIT_CONFIG;
}

START_TEST(ends_with_a_keeper_that_cannot_start)
{
	ck_assert_int_eq(result(cannot_start), KEEPER_EXIT_CONFIG);
	ck_assert_int_eq(shared->runs, 1);
}
END_TEST

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

START_TEST(stays_while_there_are_leases)
{
	ck_assert_int_eq(result(cannot_start_after_one_that_died), KEEPER_EXIT_CONFIG);
	ck_assert_int_eq(shared->runs, 4);
}
END_TEST

static int die_twice(const struct supervised *keeper, int number)
{
	(void)keeper;
	if (number == 0)
		raise(SIGKILL);
	return number == 1 ? 5 : KEEPER_EXIT_IDLE;
}

START_TEST(started_again)
{
	ck_assert_int_eq(result(die_twice), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 3);
}
END_TEST

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

START_TEST(leases_of_a_dead_keeper_are_unsure)
{
	ck_assert_int_eq(result(die_with_a_lease), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 2);
}
END_TEST

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

START_TEST(what_a_keeper_is_given)
{
	ck_assert_int_eq(result(look_around), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 2);
}
END_TEST

static int outlive_the_parent(const struct supervised *keeper, int number)
{
	struct pollfd pipe_end = {.fd = keeper->parent_fd, .events = POLLIN};

	(void)number;
	shared->go = true;
	atomic_fetch_add(&shared->terms, poll(&pipe_end, 1, 20000) == 1 ? 100 : 0);
	return KEEPER_EXIT_IDLE;
}

START_TEST(the_pipe_ends_with_the_parent)
{
	start(outlive_the_parent);
	wait_until(shared->go);
	kill(parent, SIGKILL);
	waitpid(parent, NULL, 0);
	parent = 0;
	wait_until(shared->terms == 100);
}
END_TEST

START_TEST(no_table)
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
END_TEST

/* --- signals --- */

static int end_on_term(const struct supervised *keeper, int number)
{
	(void)number;
	shared->go = true;
	await_term();
	return keeper->table->head->ending == 1 ? KEEPER_EXIT_IDLE : WRONG;
}

START_TEST(term_is_passed_on)
{
	start(end_on_term);
	wait_until(shared->go);
	kill(parent, SIGTERM);
	ck_assert_int_eq(wait_for_end(), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->terms, 1);
}
END_TEST

/* It waits for locks to end, and dies: after the first signal another one is started, after the second none is. */
static int die_after_term(const struct supervised *keeper, int number)
{
	(void)keeper, (void)number;
	shared->go = true;
	await_term();
	raise(SIGKILL);
	return WRONG;
}

START_TEST(dies_while_it_ends)
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
END_TEST

/* A program that signals both parent and keeper means it once. */
static int die_after_two_terms(const struct supervised *keeper, int number)
{
	(void)keeper;
	if (number > 0)
		return KEEPER_EXIT_IDLE;
	shared->go = true;
	await_term();
	shared->go = false;
	await_term();
	raise(SIGKILL);
	return WRONG;
}

START_TEST(two_signals_at_once_are_one)
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
END_TEST

/* --- a service manager --- */

/* Runs `life` under a service manager whose socket this returns. */
static int start_managed(keeper_life *life)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int inbox = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", base);
	ck_assert_int_eq(bind(inbox, (struct sockaddr *)&address, sizeof(address)), 0);
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	parent = fork();
	ck_assert_int_ge(parent, 0);
	if (parent == 0) {
		const struct supervise options = {.runtime_dir = base,
						  .dir_fd = dir_fd,
						  .ready_fd = -1,
						  .manager = &manager,
						  .run = run,
						  .arg = &life};

		setenv("WATCHDOG_USEC", "40000", 1);
		manager_begin(&manager, true);
		_exit(supervise(&options));
	}
	return inbox;
}

/* The next message that is not the watchdog's. */
static const char *hear(int inbox)
{
	static char line[64];
	ssize_t n = -1;

	do {
		wait_until((n = recv(inbox, line, sizeof(line) - 1, 0)) > 0);
		line[n] = '\0';
	} while (strcmp(line, "WATCHDOG=1") == 0);
	return line;
}

static int serve_when_told(const struct supervised *keeper, int number)
{
	(void)number;
	wait_until(shared->go);
	supervise_serves(keeper->table, keeper->serves);
	await_term();
	return keeper->table->head->ending == TABLE_TOLD_TO_END ? KEEPER_EXIT_IDLE : WRONG;
}

START_TEST(the_manager_hears_when_programs_are_served)
{
	int inbox = start_managed(serve_when_told), alive = 0;
	char line[64] = "";

	/* Not before; but the parent lives. */
	while (alive < 3) {
		wait_until(recv(inbox, line, sizeof(line), 0) > 0);
		ck_assert_int_eq(strncmp(line, "WATCHDOG=1", 10), 0);
		alive++;
	}
	shared->go = true;
	ck_assert_str_eq(hear(inbox), "READY=1");
	kill(parent, SIGTERM);
	ck_assert_str_eq(hear(inbox), "STOPPING=1");
	ck_assert_int_eq(wait_for_end(), KEEPER_EXIT_IDLE);
	close(inbox);
}
END_TEST

static int die_and_serve(const struct supervised *keeper, int number)
{
	if (number == 0)
		raise(SIGKILL);
	supervise_serves(keeper->table, keeper->serves);
	await_term();
	return KEEPER_EXIT_IDLE;
}

START_TEST(the_manager_hears_of_a_keeper_after_the_first)
{
	int inbox = start_managed(die_and_serve);

	ck_assert_str_eq(hear(inbox), "READY=1");
	ck_assert_int_eq(shared->runs, 2);
	kill(parent, SIGTERM);
	ck_assert_int_eq(wait_for_end(), KEEPER_EXIT_IDLE);
	close(inbox);
}
END_TEST

static int make_way(const struct supervised *keeper, int number)
{
	(void)number;
	shared->go = true;
	await_term();
	return keeper->table->head->ending == TABLE_TOLD_TO_MAKE_WAY ? KEEPER_EXIT_IDLE : WRONG;
}

START_TEST(quit_means_to_make_way)
{
	start(make_way);
	wait_until(shared->go);
	kill(parent, SIGQUIT);
	ck_assert_int_eq(wait_for_end(), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 1);
}
END_TEST

/* Also while it waits for locks to end. */
static int make_way_after_term(const struct supervised *keeper, int number)
{
	(void)number;
	shared->go = true;
	await_term();
	shared->go = false;
	await_term();
	return keeper->table->head->ending == TABLE_TOLD_TO_MAKE_WAY ? KEEPER_EXIT_IDLE : WRONG;
}

START_TEST(quit_after_term)
{
	start(make_way_after_term);
	wait_until(shared->go);
	kill(parent, SIGTERM);
	wait_until(!shared->go);
	kill(parent, SIGQUIT);
	ck_assert_int_eq(wait_for_end(), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 1);
}
END_TEST

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
	table_renewed(keeper->table, now + 1000 * NS_PER_MS, now + 2000 * NS_PER_MS);
	for (;;)
		pause();
}

START_TEST(hangs)
{
	ck_assert_int_eq(result(hang_with_a_lease), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 2);
}
END_TEST

/* Its loop turns: however long it lives. */
static int turn(const struct supervised *keeper, int number)
{
	int64_t now = clock_now_ns();

	(void)number;
	take_lease(keeper->table);
	table_renewed(keeper->table, now + 1000 * NS_PER_MS, now + 2000 * NS_PER_MS);
	for (int i = 0; i < 80; i++) {
		poll(NULL, 0, 10);
		table_alive(keeper->table);
	}
	table_vacate(keeper->table, 0);
	return KEEPER_EXIT_IDLE;
}

START_TEST(does_not_hang)
{
	ck_assert_int_eq(result(turn), KEEPER_EXIT_IDLE);
	ck_assert_int_eq(shared->runs, 1);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("supervise");

	tcase_set_timeout(tests, 60);
	tcase_add_checked_fixture(tests, begin, end);
	tcase_add_test(tests, ends_with_a_keeper_that_is_idle);
	tcase_add_test(tests, ends_with_a_keeper_that_cannot_start);
	tcase_add_test(tests, stays_while_there_are_leases);
	tcase_add_test(tests, started_again);
	tcase_add_test(tests, leases_of_a_dead_keeper_are_unsure);
	tcase_add_test(tests, what_a_keeper_is_given);
	tcase_add_test(tests, the_pipe_ends_with_the_parent);
	tcase_add_test(tests, no_table);
	tcase_add_test(tests, term_is_passed_on);
	tcase_add_test(tests, dies_while_it_ends);
	tcase_add_test(tests, two_signals_at_once_are_one);
	tcase_add_test(tests, the_manager_hears_when_programs_are_served);
	tcase_add_test(tests, the_manager_hears_of_a_keeper_after_the_first);
	tcase_add_test(tests, quit_means_to_make_way);
	tcase_add_test(tests, quit_after_term);
	tcase_add_test(tests, hangs);
	tcase_add_test(tests, does_not_hang);
	return suite_run_case("supervise", tests);
}
