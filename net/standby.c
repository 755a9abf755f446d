/*
 * See standby.h. The second supervisor is a child of the first, started by exec and not by fork() alone: the first one has
 * threads. It is /proc/self/exe, which is the same program also after an upgrade.
 */
#include "net/standby.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/shared.h"
#include "net/supervisor.h"
#include "shim/settings.h"
#include "shim/sys.h"

#define PAUSE_NS 100000000

/* Returns when the second supervisor waits, or has failed. Its pid, or -1. */
static pid_t standby_start(char *program)
{
	char word[] = STANDBY_WORD, *const argv[] = {program, word, NULL}, byte;
	posix_spawn_file_actions_t actions;
	int pipe[2], err;
	pid_t pid;
	ssize_t n;

	if (pipe2(pipe, O_CLOEXEC) < 0)
		return -1;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, pipe[1], SUPERVISOR_READY);
	err = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(pipe[1]);
	do
		n = read(pipe[0], &byte, 1);
	while (n < 0 && errno == EINTR);
	close(pipe[0]);
	if (err == 0 && n == 1)
		return pid;
	while (err == 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return -1;
}

static void standby_pause(void)
{
	nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

static _Noreturn void standby_fail(int ready, const char *why)
{
	sys(write, ready, why, (long)strlen(why) + 1);
	_exit(0);
}

/* Until the second one ends. The process ends when no process is left under the filter. */
static void standby_watch(pid_t second)
{
	const int pidfd = (int)sys(pidfd_open, second, 0L);
	struct pollfd ends[] = {{.fd = SUPERVISOR_LISTENER}, {.fd = pidfd, .events = POLLIN}};

	/* Without a pidfd, the threads that receive calls notice the end of the processes. */
	while (pidfd >= 0 && !ends[0].revents && !ends[1].revents)
		poll(ends, 2, -1);
	if (ends[0].revents)
		_exit(0);
	if (pidfd >= 0)
		close(pidfd);
	while (waitpid(second, NULL, 0) < 0 && errno == EINTR)
		;
}

/* With shared->first. */
static _Noreturn void standby_be_first(char *program, int ready)
{
	pid_t second = standby_start(program);

	/* The job has not begun so far. */
	if (second < 0 && ready >= 0)
		standby_fail(ready, "no process for the net");
	while (supervisor_start() < 0) {
		if (ready >= 0)
			standby_fail(
				ready,
				"no thread for the net: raise the limits of processes and memory (ulimit -u, ulimit -v)");
		standby_pause();
	}
	if (ready >= 0) {
		sys(write, ready, "", 1L);
		close(ready);
	}
	standby_pause();
	supervisor_look_again();
	for (;;) {
		if (second >= 0)
			standby_watch(second);
		standby_pause();
		second = standby_start(program);
	}
}

_Noreturn void standby_lead(char *program, int ready)
{
	shared_lock(&shared->first);
	standby_be_first(program, ready);
}

_Noreturn void standby_wait(char *program)
{
	supervisor_settle();
	settings_init();
	if (shared_map(SUPERVISOR_SHARED) < 0)
		_exit(1);
	sys(write, SUPERVISOR_READY, "", 1L);
	close(SUPERVISOR_READY);
	shared_lock(&shared->first);
	if (supervisor_is_over())
		_exit(0);
	standby_be_first(program, -1);
}
