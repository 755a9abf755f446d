/* keeper/guard/stopped.c: stopping processes that are hard to stop. */
#include "keeper/guard/stopped.h"

#include <sys/ptrace.h>

#include "keeper/kernel/family.h"
#include "tests/unit/suite.h"
#include "tests/unit/wait_until.h"

static struct table_signalled noted[8];
static struct stopped stopped;
static struct signalled s;

static void setup(void) { stopped_adopt(&stopped, noted, 8); }
FIXTURE(setup, NULL)

/* A process that waits in a call. */
static pid_t start_sleeper(void)
{
	pid_t pid = suite_fork();

	if (pid == 0)
		suite_rest();
	wait_until(family_state(pid) == 'S');
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* The child of vfork() rests; its parent waits in D. */
static pid_t start_vfork(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		pid = vfork();
		if (pid == 0) {
			nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
			_exit(0);
		}
		_exit(pid > 0 ? 7 : 8);
	}
	return pid;
}

static bool collected(bool (*all)(const struct threads *))
{
	stopped_collect(&stopped);
	return all(&stopped.threads);
}

static pid_t child_of(pid_t pid)
{
	struct family family = {0};
	pid_t child;

	family_add(&family, pid);
	ck_assert_int_eq(family_add_descendants(&family, 0), 0);
	child = family_count(&family) > 1 ? family_at(&family, 1) : 0;
	family_free(&family);
	return child;
}

TEST(one_in_vfork_is_held)
{
	pid_t pid = start_vfork(), child;
	struct family killed = {0};
	int status;

	wait_until(family_state(pid) == 'D');
	child = child_of(pid);
	stopped_stop(&stopped, pid, 1);
	ck_assert(!collected(threads_all_stopped));
	ck_assert(threads_all_inert(&stopped.threads));
	stopped_stop(&stopped, child, 1);
	wait_until(collected(threads_all_inert) && family_state(child) == 't');
	ck_assert(!threads_all_stopped(&stopped.threads));
	threads_watch(&stopped.threads);
	threads_kill_others(&stopped.threads, &killed);
	ck_assert_uint_eq(family_count(&killed), 0);
	ck_assert_uint_eq(threads_processes(&stopped.threads), 2);
	ck_assert_uint_eq(stopped_let_go(&stopped, 0), 2);
	wait_until((stopped_let_go(&stopped, 0), threads_count(&stopped.threads) == 0));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

TEST(another_process_with_the_number)
{
	pid_t pid = start_sleeper();

	ck_assert_ptr_nonnull(threads_add(
		&stopped.threads,
		&(struct thread){.pid = pid, .tid = pid, .how = THREAD_SIGNALLED, .started = family_started(pid) - 1}));
	stopped_collect(&stopped);
	ck_assert_uint_eq(threads_count(&stopped.threads), 0);
	ck_assert_int_ne(family_state(pid), 'T');
	end(pid);
}

/* An operator had stopped it before it got SIGSTOP. It stays so, unless somebody continues it meanwhile: then nobody else lets it go. */
TEST_EACH(one_that_was_stopped_before, 2)
{
	bool continued = _i;
	pid_t pid = start_sleeper();

	kill(pid, SIGSTOP);
	wait_until(family_state(pid) == 'T');
	stopped.lost_ns = stopped.limit_ns + 1; /* no time for PTRACE_SEIZE is left */
	stopped_stop(&stopped, pid, 1);
	stopped_collect(&stopped);
	if (continued) {
		kill(pid, SIGCONT);
		wait_until(family_state(pid) == 'S');
	}
	wait_until((stopped_collect(&stopped), family_state(pid) == 'T'));
	stopped_let_go(&stopped, 0);
	wait_until(family_state(pid) == (continued ? 'S' : 'T'));
	ck_assert_int_eq(noted[0].pid && noted[0].noted == TABLE_OURS, 0);
	end(pid);
}

/* A process that runs on in the kernel and never takes its stop cannot be made here. One that is not asked to stop at
 * all can: it is killed with what it has started, which nothing else would find when its lock has gone. A held process is not killed. */
TEST(one_that_runs_is_killed)
{
	struct family killed = {0};
	pid_t pid = fork(), child;
	int status;

	if (pid == 0 && suite_fork() == 0)
		suite_rest();
	if (pid == 0)
		for (;;)
			;
	wait_until((child = child_of(pid)));
	threads_add(&stopped.threads, &(struct thread){.pid = pid, .tid = pid, .how = THREAD_ASKED});
	threads_watch(&stopped.threads);
	ck_assert(!threads_all_inert(&stopped.threads));
	threads_kill_others(&stopped.threads, &killed);
	ck_assert_uint_eq(family_count(&killed), 2);
	ck_assert_int_eq(family_at(&killed, 0), pid);
	family_free(&killed);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	wait_until(!strchr("RSD", family_state(child) ?: 'X'));
}

TEST(stopped_and_let_go)
{
	pid_t pid = start_sleeper();

	stopped_stop(&stopped, pid, 1);
	wait_until(collected(threads_all_stopped));
	ck_assert_int_eq(family_state(pid), 't');
	ck_assert_uint_eq(stopped_let_go(&stopped, 0), 1);
	ck_assert_uint_eq(threads_count(&stopped.threads), 0);
	wait_until(family_state(pid) == 'S');
	end(pid);
}

/* A process that drops each SIGSTOP of a process that it traces. */
static pid_t start_tracer(pid_t tracee)
{
	pid_t pid = fork();
	int status;

	if (pid)
		return pid;
	if (ptrace(PTRACE_SEIZE, tracee, 0, 0) != 0)
		_exit(1);
	while (waitpid(tracee, &status, 0) == tracee && WIFSTOPPED(status))
		ptrace(PTRACE_CONT, tracee, 0, 0);
	_exit(0);
}

/* refused: the tracer cannot be stopped, as if it were another user's; then the process that it traces is killed. */
TEST_EACH(a_tracer_is_stopped_with_what_it_traces, 2)
{
	bool refused = _i;
	struct family killed = {0};
	pid_t pid = start_sleeper(), tracer = start_tracer(pid);
	int status;

	wait_until(family_tracer(pid) == tracer);
	if (refused)
		threads_add(&stopped.threads, &(struct thread){.pid = tracer, .tid = tracer, .how = THREAD_REFUSED});
	stopped_stop(&stopped, pid, 1);
	if (!refused)
		wait_until(collected(threads_all_stopped));
	stopped_collect(&stopped);
	ck_assert_int_eq(threads_all_inert(&stopped.threads), !refused);
	threads_watch(&stopped.threads);
	threads_kill_others(&stopped.threads, &killed);
	ck_assert_uint_eq(family_count(&killed), refused);
	family_free(&killed);
	if (!refused) {
		ck_assert(family_is_stopped(tracer) && family_is_stopped(pid));
		wait_until((stopped_let_go(&stopped, 0), threads_count(&stopped.threads) == 0));
		wait_until(family_state(pid) == 'S' && family_state(tracer) == 'S');
		kill(pid, SIGKILL);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	ck_assert_int_eq(waitpid(tracer, NULL, 0), tracer);
}

/* --- threads.c: the table of what is stopped, and what it counts --- */

static struct thread *add(pid_t pid, pid_t tid, enum thread_how how)
{
	return threads_add(&stopped.threads, &(struct thread){.pid = pid, .tid = tid, .how = how});
}

TEST(a_process_is_not_its_first_thread)
{
	add(5, 5, THREAD_ASKED);
	ck_assert_ptr_nonnull(threads_find(&stopped.threads, 5));
	ck_assert_ptr_null(threads_find_process(&stopped.threads, 5));
	add(5, 5, THREAD_SIGNALLED);
	ck_assert_int_eq(threads_find(&stopped.threads, 5)->how, THREAD_ASKED);
	ck_assert_int_eq(threads_find_process(&stopped.threads, 5)->how, THREAD_SIGNALLED);
	ck_assert_ptr_null(threads_find(&stopped.threads, 6));
}

TEST(each_process_counts_once)
{
	ck_assert_uint_eq(threads_processes(&stopped.threads), 0);
	add(5, 5, THREAD_TRACED);
	add(5, 6, THREAD_TRACED);
	ck_assert_uint_eq(threads_processes(&stopped.threads), 1);
	add(5, 5, THREAD_SIGNALLED); /* of the same process */
	ck_assert_uint_eq(threads_processes(&stopped.threads), 1);
	add(7, 7, THREAD_REFUSED); /* goes on */
	ck_assert_uint_eq(threads_processes(&stopped.threads), 1);
	add(8, 8, THREAD_SIGNALLED);
	ck_assert_uint_eq(threads_processes(&stopped.threads), 2);
	add(9, 9, THREAD_TRACED)->going = true; /* only waits to be let go */
	ck_assert_uint_eq(threads_processes(&stopped.threads), 2);
	add(10, 12, THREAD_TRACED); /* its first thread has ended */
	add(10, 13, THREAD_TRACED);
	add(11, 11, THREAD_TRACED);
	add(10, 14, THREAD_TRACED);
	ck_assert_uint_eq(threads_processes(&stopped.threads), 4);
}

TEST(all_stopped)
{
	ck_assert(threads_all_stopped(&stopped.threads));
	add(5, 5, THREAD_TRACED)->stopped = true;
	ck_assert(threads_all_stopped(&stopped.threads));
	add(6, 6, THREAD_ASKED);
	ck_assert(!threads_all_stopped(&stopped.threads));
}

TEST(it_grows_and_shrinks)
{
	for (pid_t pid = 1; pid <= 1000; pid++)
		ck_assert_ptr_nonnull(add(pid, pid, THREAD_TRACED));
	ck_assert(stopped.threads.changed);
	stopped.threads.changed = false;
	for (pid_t pid = 1; pid <= 1000; pid += 2)
		threads_remove(&stopped.threads, threads_find(&stopped.threads, pid));
	ck_assert(stopped.threads.changed);
	ck_assert_uint_eq(threads_count(&stopped.threads), 500);
	for (pid_t pid = 1; pid <= 1000; pid++)
		ck_assert_int_eq(threads_find(&stopped.threads, pid) != NULL, pid % 2 == 0);
}

/* --- signalled.c --- */

/* A parent that stops itself when its child is stopped, as su(1) does, in a process group of its own. */
static pid_t start_su(pid_t *child)
{
	int fds[2], status;
	pid_t pid;

	ck_assert_int_eq(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		setpgid(0, 0);
		pid = fork();
		if (pid == 0)
			for (;;)
				pause();
		ck_assert_int_eq(write(fds[1], &pid, sizeof(pid)), sizeof(pid));
		while (waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status)) {
			kill(getpid(), SIGSTOP);
			kill(pid, SIGCONT);
		}
		_exit(0);
	}
	ck_assert_int_eq(read(fds[0], child, sizeof(*child)), sizeof(*child));
	close(fds[0]);
	close(fds[1]);
	return pid;
}

static void end_su(pid_t su, pid_t child)
{
	kill(child, SIGKILL);
	kill(su, SIGKILL);
	waitpid(su, NULL, 0);
}

TEST_EACH(kin_goes_on, 2)
{
	bool before = _i;
	pid_t child, su = start_su(&child);

	signalled_init(&s, noted, 8);
	if (before) {
		kill(su, SIGSTOP);
		wait_until(family_state(su) == 'T');
	}
	signalled_note(&s, child);
	kill(child, SIGSTOP);
	wait_until(family_state(child) == 'T' && family_state(su) == 'T');
	ck_assert(!signalled_continue_kin(&s)); /* not while the child is stopped */
	signalled_continue(&s, child);
	ck_assert(signalled_continue_kin(&s));
	wait_until(family_state(child) == 'S');
	if (before)
		ck_assert_int_eq(family_state(su), 'T');
	else
		wait_until(family_state(su) == 'S');
	end_su(su, child);
}

/* The parent process stops itself only after its child has gone on; and the notes are an earlier keeper parent's. */
TEST(kin_that_is_late_and_notes_of_another)
{
	pid_t child, su = start_su(&child);

	signalled_init(&s, noted, 8);
	signalled_note(&s, child);
	free(s.before); /* that parent has ended */
	signalled_init(&s, noted, 8);
	signalled_continue(&s, child);
	ck_assert(signalled_continue_kin(&s));
	kill(su, SIGSTOP);
	wait_until(family_state(su) == 'T');
	wait_until(signalled_continue_kin(&s) && family_state(su) == 'S');
	kill(su, SIGTSTP); /* a terminal's */
	wait_until(family_state(su) == 'T');
	for (int i = 0; i < 200; i++) {
		signalled_continue_kin(&s);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	ck_assert_int_eq(family_state(su), 'T');
	end_su(su, child);
}
