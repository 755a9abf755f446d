/*
 * Locks from unusual places: a constructor, a signal handler on a small stack, children of fork() and vfork(), threads.
 * The program that includes this defines lock_all(), lock_in_thread() and THREAD_ROUNDS, and calls lock_from().
 */
#ifndef DFLOCK_TESTS_PLACES_H
#define DFLOCK_TESTS_PLACES_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>

#include "tests/interpose/calls.h"

static const char *path;

static void lock_all(const char *who); /* takes and gives up locks on `path`, and prints each call */
static long lock_in_thread(int fd);    /* the same on fd, without printing; how many calls failed */

__attribute__((constructor)) static void at_start(void)
{
	const char *file = started_for("constructor");

	if (file) {
		path = file;
		lock_all("constructor");
	}
}

static void handler(int sig) { lock_all("handler"); }

static void in_handler(void)
{
	/* The smallest stack that a program may reasonably give its handlers. */
	static char memory[16384];
	stack_t stack = {.ss_sp = memory, .ss_size = sizeof(memory)};
	struct sigaction act = {.sa_handler = handler, .sa_flags = SA_ONSTACK};

	sigaltstack(&stack, NULL);
	sigaction(SIGUSR1, &act, NULL);
	raise(SIGUSR1);
}

static void in_child(pid_t pid, const char *who)
{
	int status;

	if (pid == 0) {
		lock_all(who);
		fflush(stdout);
		_exit(0);
	}
	CALL("waited", waitpid(pid, &status, 0) == pid ? status : -1);
}

static void *many_locks(void *arg)
{
	long *failures = arg;

	for (int i = 0; i < THREAD_ROUNDS; i++) {
		/* Eight descriptions: the kernel makes them wait for each other. */
		int fd = must_open(path, O_RDWR | O_CREAT);

		*failures += lock_in_thread(fd);
		close(fd);
	}
	return NULL;
}

static void in_threads(bool forking)
{
	pthread_t threads[8];
	char child_path[512];
	long failures[8] = {0}, sum = 0;

	snprintf(child_path, sizeof(child_path), "%s.child", path);
	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, many_locks, &failures[i]);
	for (int i = 0; forking && i < 5; i++) {
		pid_t pid = fork();

		/* A file of its own: it has copies of descriptors that were locked when it was made. */
		if (pid == 0) {
			long failed = 0;

			path = child_path;
			many_locks(&failed);
			_exit(failed != 0);
		}
		int status = -1;

		waitpid(pid, &status, 0);
		sum += status != 0;
	}
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], NULL);
		sum += failures[i];
	}
	printf("failures: %ld\n", sum);
}

/* The place that `where` names; none: nothing is done. */
static void lock_from(const char *where)
{
	if (strcmp(where, "handler") == 0)
		in_handler();
	if (strcmp(where, "fork") == 0)
		in_child(fork(), "child");
	if (strcmp(where, "vfork") == 0)
		in_child(vfork(), "vfork child");
	if (strcmp(where, "threads") == 0)
		in_threads(false);
	if (strcmp(where, "threads-fork") == 0)
		in_threads(true);
}

#endif
