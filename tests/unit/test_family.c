/* Sets of processes, and whether they are stopped. */
#include "keeper/kernel/family.h"

#include <pthread.h>

#include "tests/unit/suite.h"
#include "tests/unit/wait_until.h"

static void *rest(void *arg)
{
	for (;;)
		pause();
	return arg;
}

/* A process whose second thread goes on, and whose first thread has ended or not. */
static pid_t start(bool first_ends)
{
	pid_t pid = fork();
	pthread_t thread;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		pthread_create(&thread, NULL, rest, NULL);
		if (first_ends)
			pthread_exit(NULL);
		rest(NULL);
	}
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

static int count_thread(void *arg, pid_t pid, pid_t tid)
{
	++*(int *)arg;
	return 0;
}

static int threads(pid_t pid)
{
	int count = 0;

	family_threads(pid, count_thread, &count);
	return count;
}

TEST_EACH(all_threads_count, 2)
{
	bool first_ends = _i;
	pid_t pid = start(first_ends);

	wait_until(threads(pid) == 2 && family_state(pid) == (first_ends ? 'Z' : 'S'));
	ck_assert(!family_is_stopped(pid));
	ck_assert(!family_has_stop(pid));
	kill(pid, SIGSTOP);
	wait_until(family_is_stopped(pid));
	ck_assert(family_has_stop(pid));
	kill(pid, SIGCONT);
	wait_until(!family_is_stopped(pid));
	ck_assert(!family_has_stop(pid));
	end(pid);
	ck_assert(family_is_stopped(pid));
	ck_assert(!family_has_stop(pid));
}

TEST(a_zombie_runs_no_more)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	wait_until(family_state(pid) == 'Z');
	ck_assert(family_is_stopped(pid));
	ck_assert(!family_has_stop(pid));
	ck_assert_uint_gt(family_started(pid), 0);
	end(pid);
	ck_assert_int_eq(family_state(pid), 0);
	ck_assert_uint_eq(family_started(pid), 0);
}

TEST(descendants)
{
	struct family family = {0};
	int fds[2];
	pid_t child, grandchild, except;

	ck_assert_int_eq(pipe(fds), 0);
	child = fork();
	if (child == 0) {
		grandchild = fork();
		if (grandchild == 0)
			rest(NULL);
		ck_assert_int_eq(write(fds[1], &grandchild, sizeof(grandchild)), sizeof(grandchild));
		rest(NULL);
	}
	except = start(false);
	ck_assert_int_eq(read(fds[0], &grandchild, sizeof(grandchild)), sizeof(grandchild));
	ck_assert_int_eq(family_add(&family, getpid()), 0);
	ck_assert_int_eq(family_add_descendants(&family, except), 0);
	ck_assert_uint_eq(family_count(&family), 3);
	ck_assert_int_eq(family_at(&family, 1), child);
	ck_assert_int_eq(family_at(&family, 2), grandchild);
	family_free(&family);
	kill(grandchild, SIGKILL);
	end(child);
	end(except);
}

/* The marks of a member go to all that descend from it, in whatever order they became members; and taken away, they take members away. */
TEST(marks)
{
	struct procfs_stat all[] = {{.pid = 12, .parent = 11}, {.pid = 11, .parent = 10}, {.pid = 20, .parent = 1}};
	struct family family = {0};

	ck_assert_int_eq(family_add(&family, 11), 0);
	ck_assert(family_mark(&family, 11, 1) && !family_mark(&family, 11, 1));
	ck_assert_int_eq(family_add_descendants_of(&family, 0, all, 3), 0);
	ck_assert_uint_eq(family_marks(&family, 12), 1);
	ck_assert_int_eq(family_add(&family, 10), 0);
	family_mark(&family, 10, 2);
	ck_assert_int_eq(family_add_descendants_of(&family, 0, all, 3), 0);
	ck_assert_uint_eq(family_marks(&family, 12), 3);
	family_show(&family, 10, 5, 77);
	family_unmark(&family, 1);
	ck_assert_uint_eq(family_count(&family), 3);
	ck_assert_int_eq(family_shown(&family, 10, &(uint64_t){0}), 5);
	family_unmark(&family, 2);
	ck_assert_uint_eq(family_count(&family), 0);
	family_free(&family);
}

/* A member that has ended, or whose number another process has by now, is not added; nor is one without the marks. */
TEST_EACH(only_members_that_live_are_added, 4)
{
	struct procfs_stat all = {.pid = getpid(), .parent = 1, .started = family_started(getpid()) + (_i == 1)};
	struct family from = {0}, to = {0};

	ck_assert_int_eq(family_add(&from, all.pid), 0);
	family_mark(&from, all.pid, 6);
	if (_i != 2)
		ck_assert_int_eq(family_add_descendants_of(&from, 0, &all, 1), 0);
	family_unmark(&from, 4);
	ck_assert_int_eq(family_add_living(&to, &from, _i == 3 ? 4 : 2), 0);
	ck_assert_uint_eq(family_count(&to), _i == 0);
	ck_assert_uint_eq(family_marks(&to, all.pid), _i == 0 ? 2 : 0);
	family_free(&from);
	family_free(&to);
}

static void *wait_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

TEST(a_process_whose_first_thread_has_ended_runs)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		pthread_t other;

		if (pthread_create(&other, NULL, wait_for_ever, NULL) != 0)
			_exit(1);
		pthread_exit(NULL);
	}
	uint64_t started = family_started(pid);
	wait_until(family_state(pid) == 'Z');
	ck_assert(family_has_ended(pid, started));
	ck_assert(!family_process_has_ended(pid, started));
	ck_assert(family_process_has_ended(pid, started + 1));
	kill(pid, SIGKILL);
	wait_until(family_process_has_ended(pid, started));
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}
