/* See birth.h. */
#include "net/birth.h"

#include <errno.h>
#include <stdio.h>
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

static void birth_say(int socket, const char *why)
{
	if (send(socket, why, strlen(why) + 1, MSG_NOSIGNAL) < 0)
		_exit(0);
	if (*why)
		_exit(0);
}

static _Noreturn void birth_fail(int socket, const char *what, int err)
{
	char why[BIRTH_LINE_BYTES];

	snprintf(why, sizeof(why), "%s%s%s", what, err ? ": " : "", err ? strerror(err) : "");
	birth_say(socket, why);
	_exit(0);
}

/* Closes all descriptors but `socket`, and opens /dev/null as 0, 1 and 2. The new number of the socket. */
static int birth_settle_descriptors(int socket)
{
	const int kept = fcntl(socket, F_DUPFD_CLOEXEC, FREE_FROM);

	if (kept < 0)
		birth_fail(socket, "the net needs more descriptors: raise their limit (ulimit -n)", 0);
	sys(close_range, 0u, (unsigned)kept - 1, 0u);
	sys(close_range, (unsigned)kept + 1, ~0u, 0u);
	if (open("/dev/null", O_RDWR) != 0 || dup(0) != 1 || dup(0) != 2)
		birth_fail(kept, "/dev/null", errno);
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

static void birth_share(const struct settings *s, int socket)
{
	int memory = shared_make();

	if (memory == -EFBIG)
		birth_fail(
			socket,
			"the net needs 3 MB of memory that count as a file: raise the limit of file sizes (ulimit -f)",
			0);
	if (memory >= 0)
		memory = supervisor_place(memory, SUPERVISOR_SHARED);
	if (memory < 0)
		birth_fail(socket, "no memory for the net", -memory);
	shared->has_stderr = s->has_stderr;
	shared->stderr_dev = s->stderr_dev;
	shared->stderr_ino = s->stderr_ino;
}

/* Ends when the other process closes its end of the socket without having sent a listener: it starts no job. */
static _Noreturn void birth_live(char *program, int socket)
{
	const struct settings *s = settings_get();
	const char *why;
	int listener;

	setsid();
	supervisor_settle();
	socket = birth_settle_descriptors(socket);
	birth_fix_settings(s);
	birth_share(s, socket);
	listener = chain_receive(socket);
	if (listener < 0)
		_exit(0);
	why = chain_answer(listener);
	close(listener);
	birth_say(socket, why ? why : "");
	listener = chain_receive(socket);
	if (listener < 0)
		_exit(0);
	if (supervisor_place(listener, SUPERVISOR_LISTENER) < 0)
		birth_fail(socket, "no descriptor for the net", errno);
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
	/* It has ended without having read its question: the kernel reports that first, and its line then. */
	if (n < 0 && errno == ECONNRESET)
		n = recv(socket, line, BIRTH_LINE_BYTES - 1, 0);
	line[n > 0 ? n : 0] = '\0';
	return n > 0;
}
