/*
 * `dflockd --run-event LIMIT_MS COMMAND...`: a process between the keeper and the command of on_event (kernel/hook.h), so
 * that nothing that the command does can reach the keeper.
 *
 * The command gets the event on its standard input, and no other descriptor but its own two outputs; a session of its
 * own, the directory /, default signals, no more than the usual number of descriptors, nice 0, no protection from the kernel when memory
 * is short; and an environment that has what this process was given, PATH, HOME, USER, LOGNAME and SHELL. So it has no
 * LD_PRELOAD. What it starts belongs to it, also processes that leave its session: when the limit is over, all of them
 * are killed. The turn is over when none is left.
 */
#include "keeper/main.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/guard/inherit.h"
#include "keeper/kernel/family.h"

#define RUNEVENT_PATH    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define RUNEVENT_FILES   1024 /* select() needs no more; the keeper has raised it for itself */
#define RUNEVENT_KILL_MS 50   /* between two rounds of killing; twice as long each time */
#define RUNEVENT_MOST_MS 5000 /* a process that waits in the kernel ends when it can */
#define RUNEVENT_OUTPUT  300  /* bytes of the command's output that are passed on */
#define RUNEVENT_CANNOT  127

struct runevent {
	pid_t pid;  /* of the command */
	int out;    /* its output */
	int ended;  /* signalfd: SIGCHLD */
	int status; /* of the command; -1: it has not ended */
	bool late;  /* the limit is over: all are killed */
	char said[RUNEVENT_OUTPUT];
	size_t len;
};

/* --- in the command's process --- */

static void runevent_set_environment(void)
{
	const struct passwd *user = getpwuid(geteuid());

	setenv("PATH", RUNEVENT_PATH, 1);
	setenv("HOME", user ? user->pw_dir : "/", 1);
	setenv("SHELL", "/bin/sh", 1);
	if (!user)
		return;
	setenv("USER", user->pw_name, 1);
	setenv("LOGNAME", user->pw_name, 1);
}

static void runevent_set_limits(void)
{
	const struct sched_param plain = {0};
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > RUNEVENT_FILES) {
		files.rlim_cur = RUNEVENT_FILES;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	sched_setscheduler(0, SCHED_OTHER, &plain);
	setpriority(PRIO_PROCESS, 0, 0);
	umask(022);
	inherit_reset_oom(-1); /* the keeper of a system has a value that keeps the kernel from killing it */
}

__attribute__((noreturn)) static void runevent_exec(char **words, int out)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	setsid();
	dup2(out, 1);
	dup2(out, 2);
	close_range(3, ~0u, 0);
	runevent_set_limits();
	runevent_set_environment();
	if (chdir("/") == 0)
		execv(words[0], words);
	dprintf(2, "cannot be run: %s", strerror(errno));
	_exit(RUNEVENT_CANNOT);
}

/* --- in the process between --- */

/* Reads on when nobody wants more of it: the command must not wait for a full pipe. */
static void runevent_read_output(struct runevent *r)
{
	char bytes[4096];
	ssize_t n;

	while ((n = read(r->out, bytes, sizeof(bytes))) > 0) {
		size_t room = sizeof(r->said) - r->len, take = (size_t)n < room ? (size_t)n : room;

		memcpy(r->said + r->len, bytes, take);
		r->len += take;
	}
	if (n == 0) { /* all have closed it */
		close(r->out);
		r->out = -1;
	}
}

/* False: no descendant is left. */
static bool runevent_reap(struct runevent *r)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == r->pid)
			r->status = status;
	return pid == 0;
}

/* Some may be born meanwhile: they are found in the next round. */
static void runevent_kill_all(void)
{
	struct family family = {0};

	if (family_add(&family, getpid()) == 0)
		family_add_descendants(&family, 0);
	for (size_t i = 1; i < family_count(&family); i++)
		kill(family_at(&family, i), SIGKILL);
	family_free(&family);
}

static void runevent_wait(struct runevent *r, int64_t limit_ms)
{
	int64_t end = clock_now_ns() + limit_ms * NS_PER_MS, pause_ms = RUNEVENT_KILL_MS;

	while (runevent_reap(r)) {
		struct pollfd wait[] = {{.fd = r->ended, .events = POLLIN}, {.fd = r->out, .events = POLLIN}};
		int64_t left = (end - clock_now_ns() + NS_PER_MS - 1) / NS_PER_MS;
		struct signalfd_siginfo info;

		if (left <= 0) {
			r->late = true;
			runevent_kill_all();
			left = pause_ms;
			pause_ms = pause_ms * 2 < RUNEVENT_MOST_MS ? pause_ms * 2 : RUNEVENT_MOST_MS;
		}
		poll(wait, 2, left > INT32_MAX ? INT32_MAX : (int)left);
		if (wait[0].revents && read(r->ended, &info, sizeof(info)) < 0)
			continue; /* it only wakes this process up */
		if (wait[1].revents)
			runevent_read_output(r);
	}
	if (r->out >= 0)
		runevent_read_output(r);
}

/* Of what the command has said, the part that is not empty. */
static void runevent_say(const struct runevent *r, int64_t limit_ms, const char *command)
{
	char what[128] = "";
	int len = (int)r->len;

	if (r->late && r->status >= 0 && WIFEXITED(r->status))
		snprintf(what, sizeof(what), "has ended, but what it had started was killed after %lld ms",
			 (long long)limit_ms);
	else if (r->late)
		snprintf(what, sizeof(what), "was killed: it had not ended after %lld ms", (long long)limit_ms);
	else if (WIFSIGNALED(r->status))
		snprintf(what, sizeof(what), "was killed by signal %d", WTERMSIG(r->status));
	else if (WEXITSTATUS(r->status))
		snprintf(what, sizeof(what), "ended with status %d", WEXITSTATUS(r->status));
	while (len > 0 && (r->said[len - 1] == '\n' || r->said[len - 1] == ' '))
		len--;
	if (*what)
		dprintf(1, "%.100s %s%s%.*s", command, what, len ? ": " : "", len, r->said);
}

/* 0 or -errno. */
static int runevent_start(struct runevent *r, char **words)
{
	sigset_t child;
	int fds[2];

	if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
		return -errno;
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	r->ended = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	if (r->ended < 0 || pipe2(fds, O_CLOEXEC) != 0)
		return -errno;
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	r->out = fds[0];
	r->pid = fork();
	if (r->pid == 0)
		runevent_exec(words, fds[1]);
	close(fds[1]);
	return r->pid < 0 ? -errno : 0;
}

int runevent_main(int argc, char **argv)
{
	struct runevent r = {.status = -1};
	int64_t limit_ms = argc > 1 ? atoll(argv[0]) : 0;
	int ret;

	if (limit_ms <= 0 || argv[1][0] != '/') {
		fprintf(stderr, "dflockd: --run-event is for the keeper's own use\n");
		return EXIT_FAILURE;
	}
	close_range(3, ~0u, 0);
	signal(SIGPIPE, SIG_IGN); /* the keeper may have ended */
	prctl(PR_SET_NAME, "dflock-event");
	ret = runevent_start(&r, argv + 1);
	if (ret < 0) {
		dprintf(1, "%.100s cannot be started: %s", argv[1], strerror(-ret));
		return EXIT_FAILURE;
	}
	runevent_wait(&r, limit_ms);
	runevent_say(&r, limit_ms, argv[1]);
	return EXIT_SUCCESS;
}
