/*
 * dflock-net: `dflock run --net=on` executes it in place of the job. `dflock-net PRELOAD JOB [ARGUMENT...]` puts itself under the
 * net, sets LD_PRELOAD (unless PRELOAD is ""), and becomes the job. It leaves two processes behind, which end when the last
 * process of the job has ended.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/abi.h"
#include "net/chain.h"
#include "net/filter.h"
#include "net/lockcall.h"
#include "net/shared.h"
#include "net/supervisor.h"
#include "shim/real.h"
#include "shim/settings.h"
#include "shim/ask.h"
#include "wire/sys.h"

/* Exit statuses, as those of `dflock run`. */
enum { MAIN_FAILED = 125, MAIN_CANNOT_EXECUTE = 126, MAIN_NOT_FOUND = 127 };

#define LINE_BYTES 512

/*
 * How the first supervisor comes to be: forked by the process that will become the job, before that has the filter; then it is
 * nobody's child that the job could wait for, in a session of its own, with none of the job's descriptors.
 *
 * The two speak over a socket of messages: the supervisor gets the listener of chain.h's child, and answers with a
 * line; gets the job's listener, and answers with a line when both supervisors serve. An empty line: all is well. Any other one says why
 * the net cannot be, and the supervisor ends; it may come before the first question.
 */

/* Above all descriptors with fixed numbers. */
#define FREE_FROM 10

static void main_say(int socket, const char *why)
{
	if (send(socket, why, strlen(why) + 1, MSG_NOSIGNAL) < 0)
		_exit(0);
	if (*why)
		_exit(0);
}

static _Noreturn void main_fail(int socket, const char *what, int err)
{
	char why[LINE_BYTES];

	snprintf(why, sizeof(why), "%s%s%s", what, err ? ": " : "", err ? strerror(err) : "");
	main_say(socket, why);
	_exit(0);
}

/* Closes all descriptors but `socket`, and opens /dev/null as 0, 1 and 2. The new number of the socket. */
static int main_settle_descriptors(int socket)
{
	const int kept = fcntl(socket, F_DUPFD_CLOEXEC, FREE_FROM);

	if (kept < 0)
		main_fail(socket, "the net needs more descriptors: raise their limit (ulimit -n)", 0);
	sys(close_range, 0u, (unsigned)kept - 1, 0u);
	sys(close_range, (unsigned)kept + 1, ~0u, 0u);
	if (open("/dev/null", O_RDWR) != 0 || dup(0) != 1 || dup(0) != 2)
		main_fail(kept, "/dev/null", errno);
	return kept;
}

/* The next supervisor, which exec starts in another directory, must find the same configuration. */
static void main_fix_settings(const struct settings *s)
{
	if (s->place.config[0])
		setenv("DFLOCK_CONFIG", s->place.config, 1);
	if (chdir("/") < 0) {
		/* It stays where the job was started, and keeps that directory in use. */
	}
}

static void main_share(const struct settings *s, int socket)
{
	int memory = shared_make();

	if (memory == -EFBIG)
		main_fail(
			socket,
			"the net needs 3 MB of memory that count as a file: raise the limit of file sizes (ulimit -f)",
			0);
	if (memory >= 0)
		memory = supervisor_place(memory, SUPERVISOR_SHARED);
	if (memory < 0)
		main_fail(socket, "no memory for the net", -memory);
	shared->has_stderr = s->has_stderr;
	shared->stderr_dev = s->stderr_dev;
	shared->stderr_ino = s->stderr_ino;
}

/* Ends when the other process closes its end of the socket without having sent a listener: it starts no job. */
static _Noreturn void main_live(char *program, int socket)
{
	const struct settings *s = settings_get();
	const char *why;
	int listener;

	setsid();
	supervisor_settle();
	socket = main_settle_descriptors(socket);
	main_fix_settings(s);
	main_share(s, socket);
	listener = chain_receive(socket);
	if (listener < 0)
		_exit(0);
	why = chain_answer(listener);
	close(listener);
	main_say(socket, why ? why : "");
	listener = chain_receive(socket);
	if (listener < 0)
		_exit(0);
	if (supervisor_place(listener, SUPERVISOR_LISTENER) < 0)
		main_fail(socket, "no descriptor for the net", errno);
	supervisor_lead(program, socket);
}

/* program: argv[0] of the supervisors. `socket`: the supervisor's end, which stays open here. 0 or -errno. */
static int main_give(char *program, int socket)
{
	/* As in chain_try(). The process in the middle forks once more with libc's fork(), after which there may be threads. */
	const long middle = start_fork(0);
	int status = 0;
	pid_t supervisor;

	if (middle < 0)
		return (int)middle;
	if (middle == 0) {
		supervisor = fork();
		if (supervisor == 0)
			main_live(program, socket);
		_exit(supervisor < 0 ? errno : 0);
	}
	while (sys(wait4, middle, &status, __WCLONE, NULL) == -EINTR)
		;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EAGAIN;
}

/* The supervisor's next line. False: it has died. */
static bool main_hear(int socket, char line[LINE_BYTES])
{
	ssize_t n;

	do
		n = recv(socket, line, LINE_BYTES - 1, 0);
	while (n < 0 && errno == EINTR);
	/* It has ended without having read its question: the kernel reports that first, and its line then. */
	if (n < 0 && errno == ECONNRESET)
		n = recv(socket, line, LINE_BYTES - 1, 0);
	line[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* --- the process that becomes the job --- */

static int main_refuse(const char *why, const char *detail)
{
	fprintf(stderr, "dflock: not started: %s%s%s\n", why, detail ? ": " : "", detail ? detail : "");
	return MAIN_FAILED;
}

/* The message of a job without descriptor 2 must not go into a file that is opened now. For the job, these descriptors
 * stay closed. */
static void main_fill_stdio(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (fd >= 0 && fd <= 2);
	if (fd > 2)
		close(fd);
}

static int main_refuse_filter(int err)
{
	switch (err) {
	case EINVAL:
		return main_refuse("this kernel is too old for the net, which needs Linux 5.19", NULL);
	case EBUSY:
		return main_refuse("another program watches the system calls of this one (a seccomp listener), and the "
				   "kernel allows one such program only",
				   NULL);
	case ENOSYS:
	case EPERM:
	case EACCES:
		return main_refuse("the net needs seccomp, which is forbidden here (by a container?)", strerror(err));
	default:
		return main_refuse("the net cannot be set up", strerror(err));
	}
}

/* 0: the net can be. Else the exit status. */
static int main_try(int socket)
{
	char line[LINE_BYTES];
	int err = chain_try(socket);

	if (err && err != CHAIN_FAILED)
		return main_refuse_filter(err);
	if (!main_hear(socket, line))
		return main_refuse("the net's supervisor has ended", NULL);
	if (line[0])
		return main_refuse(line, NULL);
	return err ? main_refuse("a lock call under the net fails", NULL) : 0;
}

/* From here on, each lock call of this process is caught. */
static int main_enter(int socket, uint64_t key)
{
	char line[LINE_BYTES];
	const int listener = filter_install(key);
	int ret;

	if (listener < 0)
		return main_refuse_filter(-listener);
	ret = chain_send(socket, listener);
	close(listener);
	if (ret < 0 || !main_hear(socket, line))
		return main_refuse("the net's supervisor has ended", NULL);
	return line[0] ? main_refuse(line, NULL) : 0;
}

/* Without randomness there is none, and the preload's calls are caught like others. */
static uint64_t main_key(void)
{
	uint64_t key = 0;
	char text[17];

	if (getrandom(&key, sizeof(key), 0) != sizeof(key))
		key = 0;
	snprintf(text, sizeof(text), "%016" PRIx64, key);
	return key && setenv(NETTED_VARIABLE, text, 1) == 0 ? key : 0;
}

/* Is /proc that of this process's pid namespace? Of another one's, the supervisors would read other processes. */
static bool main_sees_itself(void)
{
	char self[16], text[16];
	const ssize_t n = readlink("/proc/self", self, sizeof(self));

	return n == snprintf(text, sizeof(text), "%d", (int)getpid()) && memcmp(self, text, (size_t)n) == 0;
}

static int main_net(char *program)
{
	int pair[2], reaper = 0, ret;

	/* Its orphans become its children: its wait() would meet them, and an outage would stop them with it. */
	if (getpid() == 1 || (prctl(PR_GET_CHILD_SUBREAPER, &reaper) == 0 && reaper))
		return main_refuse(
			"the net cannot be that of the first process of a pid namespace, or of a child subreaper, "
			"whose children its supervisors would be: start the job as a child (dflock run --init)",
			NULL);
	if (!main_sees_itself())
		return main_refuse("/proc is not that of this pid namespace: mount it there (unshare --mount-proc)",
				   NULL);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return main_refuse("no socket for the net", strerror(errno));
	ret = main_give(program, pair[1]);
	close(pair[1]);
	if (ret < 0)
		ret = main_refuse("no process for the net", strerror(-ret));
	else
		ret = main_try(pair[0]);
	if (ret == 0)
		ret = main_enter(pair[0], main_key());
	close(pair[0]);
	return ret;
}

/* program: argv[0] of the supervisors, the absolute path of this program. preload: LD_PRELOAD for the job, or "". Returns only if
 * the job was not started: the exit status, when a line was written. */
static int main_launch(char *program, const char *preload, char *const job[])
{
	long hello;
	int ret = 0, err;

	main_fill_stdio();
	hello = sys(fcntl, -1L, ABI_OFD_GETLK, LOCKCALL_HELLO_ADDRESS, netted_ground());
	if (hello == -EEXIST)
		return main_refuse(
			"the net that this job is under goes by another configuration or runtime directory, and a process "
			"has one net only: start the job outside of that net, or with the same DFLOCK_CONFIG and "
			"DFLOCK_RUNTIME_DIR",
			NULL);
	if (hello != 0) /* else the net that is there will do */
		ret = main_net(program);
	if (ret)
		return ret;
	if (*preload && setenv("LD_PRELOAD", preload, 1) < 0)
		return main_refuse("cannot set LD_PRELOAD", strerror(errno));
	execvp(job[0], job);
	err = errno;
	fprintf(stderr, "dflock: cannot run %s: %s\n", job[0], strerror(err));
	return err == ENOENT ? MAIN_NOT_FOUND : MAIN_CANNOT_EXECUTE;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], SUPERVISOR_SECOND) == 0)
		supervisor_wait(argv[0]);
	if (argc < 3) {
		fprintf(stderr, "dflock-net is started by `dflock run --net=on'\n");
		return MAIN_FAILED;
	}
	settings_init();
	return main_launch(argv[0], argv[1], &argv[2]);
}
