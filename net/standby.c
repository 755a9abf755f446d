/*
 * See standby.h. The second supervisor is a child of the first, started by exec and not by fork() alone: the first one has
 * threads. It is /proc/self/exe, which is the same program also after an upgrade.
 */
#include "net/standby.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
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
	char word[] = STANDBY_WORD, *const argv[] = {program, word, NULL};
	posix_spawn_file_actions_t actions;
	struct pollfd ready;
	int pipe[2], err;
	pid_t pid;

	if (pipe2(pipe, O_CLOEXEC) < 0)
		return -1;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, pipe[1], SUPERVISOR_READY);
	err = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(pipe[1]);
	ready = (struct pollfd){.fd = pipe[0]};
	/* It closes its end. */
	while (err == 0 && poll(&ready, 1, -1) < 0 && errno == EINTR)
		;
	close(pipe[0]);
	return err == 0 ? pid : -1;
}

static void standby_pause(void)
{
	nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

/* With shared->first. */
static _Noreturn void standby_be_first(char *program, int ready)
{
	pid_t second = standby_start(program);

	while (supervisor_start() < 0) /* no memory for a thread */
		standby_pause();
	if (ready >= 0) {
		sys(write, ready, "", 1L);
		close(ready);
	}
	for (;;) {
		if (second >= 0 && waitpid(second, NULL, 0) < 0 && errno == EINTR)
			continue;
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
	close(SUPERVISOR_READY);
	shared_lock(&shared->first);
	if (supervisor_is_over())
		_exit(0);
	standby_be_first(program, -1);
}
