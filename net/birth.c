/* See birth.h. */
#include "net/birth.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/chain.h"
#include "net/shared.h"
#include "net/standby.h"
#include "net/supervisor.h"
#include "shim/settings.h"
#include "shim/starter.h"
#include "shim/sys.h"

/* Above all descriptors with fixed numbers. */
#define FREE_FROM 10

/* Closes all descriptors but `socket`, and opens /dev/null as 0, 1 and 2. The new number of the socket. */
static int birth_settle_descriptors(int socket)
{
	const int kept = fcntl(socket, F_DUPFD_CLOEXEC, FREE_FROM);

	if (kept < 0)
		_exit(1);
	sys(close_range, 0u, (unsigned)kept - 1, 0u);
	sys(close_range, (unsigned)kept + 1, ~0u, 0u);
	if (open("/dev/null", O_RDWR) != 0 || dup(0) != 1 || dup(0) != 2)
		_exit(1);
	return kept;
}

/* The next supervisor, which exec starts in another directory, must find the same configuration. */
static void birth_fix_settings(const struct settings *s)
{
	if (s->place.config[0])
		setenv("DFLOCK_CONFIG", s->place.config, 1);
	if (chdir("/") < 0) {
		/* It stays where the job was started, and keeps that directory in use. */
	}
}

static int birth_share(const struct settings *s, int listener)
{
	int ret = supervisor_place(listener, SUPERVISOR_LISTENER), memory;

	if (ret < 0)
		return ret;
	memory = shared_make();
	ret = memory < 0 ? memory : supervisor_place(memory, SUPERVISOR_SHARED);
	if (ret < 0)
		return ret;
	shared->has_stderr = s->has_stderr;
	shared->stderr_dev = s->stderr_dev;
	shared->stderr_ino = s->stderr_ino;
	return 0;
}

/* Ends when the other process closes its end of the socket without having sent a listener: it starts no job. */
static _Noreturn void birth_live(char *program, int socket)
{
	const struct settings *s = settings_get();
	const char *why;
	int listener;

	setsid();
	socket = birth_settle_descriptors(socket);
	supervisor_settle();
	birth_fix_settings(s);
	listener = chain_receive(socket);
	if (listener < 0)
		_exit(0);
	why = chain_answer(listener);
	close(listener);
	why = why ? why : "";
	if (send(socket, why, strlen(why) + 1, MSG_NOSIGNAL) < 0)
		_exit(0);
	listener = chain_receive(socket);
	if (listener < 0 || birth_share(s, listener) < 0)
		_exit(0);
	standby_lead(program, socket);
}

int birth_give(char *program, int socket)
{
	/* As in chain_try(). The process in the middle forks once more with libc's fork(), after which there may be threads. */
	const long middle = starter_fork(0);
	int status = 0;
	pid_t supervisor;

	if (middle < 0)
		return (int)middle;
	if (middle == 0) {
		supervisor = fork();
		if (supervisor == 0)
			birth_live(program, socket);
		_exit(supervisor < 0 ? errno : 0);
	}
	while (sys(wait4, middle, &status, __WCLONE, NULL) == -EINTR)
		;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EAGAIN;
}

int birth_hear(int socket, char line[BIRTH_LINE_BYTES])
{
	ssize_t n;

	do
		n = recv(socket, line, BIRTH_LINE_BYTES - 1, 0);
	while (n < 0 && errno == EINTR);
	line[n > 0 ? n : 0] = '\0';
	return n > 0;
}
