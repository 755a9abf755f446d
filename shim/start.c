/*
 * Three processes:
 *
 *   program   clones without an exit signal (no signal comes when the starter ends, and wait() without __WCLONE does
 *      |      not see it), without CLONE_FILES (what the starter closes drops none of the program's POSIX locks),
 *      |      with CLONE_UNTRACED, and with all signals blocked, so that no handler of the program runs in it
 *   starter   shares no memory; never execs (exec would give it SIGCHLD as its exit signal); lives until the keeper
 *      |      serves or START_PATIENCE_MS have passed, passes on the keeper's line, ends, is reaped with __WCLONE
 *   keeper    has a session of its own and a clean environment; becomes a child of init when the starter ends
 *
 * The starter has the time limit, and not the program: if a wait of the program's had one, the kernel would give EINTR
 * also after handlers with SA_RESTART. The program and the starter are connected by a socket pair and not by a pipe,
 * since another thread may fork meanwhile: shutdown() reaches every copy.
 */
#include "shim/start.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "shim/settings.h"
#include "shim/starter.h"
#include "shim/sys.h"
#include "wire/rundir.h"
#include "wire/text.h"

#define SET_BYTES (_NSIG / 8)

static void start_block_signals(unsigned long old[SET_BYTES / sizeof(long)])
{
	unsigned long all[SET_BYTES / sizeof(long)];

	memset(all, 0xff, sizeof(all));
	sys(rt_sigprocmask, SIG_SETMASK, all, old, (long)SET_BYTES);
}

static void start_restore_signals(const unsigned long old[SET_BYTES / sizeof(long)])
{
	sys(rt_sigprocmask, SIG_SETMASK, old, NULL, (long)SET_BYTES);
}

/* Asks /proc first, since a filter may kill a process that makes an unexpected call. */
bool start_is_restricted(void)
{
	static const char key[] = "\nSeccomp:\t";
	char status[2048];
	long fd = sys(openat, AT_FDCWD, "/proc/thread-self/status", O_RDONLY | O_CLOEXEC), n;
	const char *at;

	if (fd < 0)
		return prctl(PR_GET_SECCOMP) != 0;
	n = sys(read, fd, status, sizeof(status) - 1L);
	sys(close, fd);
	status[n > 0 ? n : 0] = '\0';
	at = strstr(status, key);
	/* The line stands behind a list of groups that is too long for the buffer. */
	if (!at)
		return prctl(PR_GET_SECCOMP) != 0;
	return at[sizeof(key) - 1] != '0';
}

/* Why this process must not start a keeper, or NULL. */
static const char *start_obstacle(void)
{
	int reaper = 0;

	if (getpid() == 1)
		return "it is the first process of its pid namespace";
	if (start_is_restricted())
		return "it is restricted by seccomp";
	if (prctl(PR_GET_CHILD_SUBREAPER, &reaper) == 0 && reaper)
		return "it is a child subreaper";
	return NULL;
}

/* Does the runtime directory of this process belong to a keeper of the system that has died or is being replaced? Its socket
 * is there, and nothing listens. A keeper of the user's own would be another host. */
static bool start_is_roots(const struct settings *s, const struct protect_by *by)
{
	char dir[PLACE_DIR_BYTES], why[WIRE_REASON_BYTES];

	return rundir_uid(by->euid) != 0 && s && rundir_find(&s->place, by->euid, dir, why, sizeof(why)) == 0 &&
	       strcmp(dir, RUNDIR_SYSTEM) == 0;
}

static void start_add_command(struct text *text, const struct protect_by *by, const char *dir)
{
	text_add(text, "dflockd --config ");
	text_add(text, by->config);
	if (dir) {
		text_add(text, " --runtime-dir ");
		text_add(text, dir);
	}
}

/* Reads the starter's line. Its length (0: a keeper serves), or -EINTR. */
static long start_read_report(int sock, bool nonblock, char *line, size_t size)
{
	size_t len = 0;
	long n;

	for (;;) {
		n = sys(read, sock, line + len, size - 1 - len);
		if (n > 0)
			len += (size_t)n;
		else if (n != -EINTR)
			break;
		else if (!nonblock)
			return n;
	}
	line[len] = '\0';
	line[strcspn(line, "\n")] = '\0';
	return (long)len;
}

/* Makes the starter; *report is our end of the connection. Its pid, or -errno. */
static long start_make_starter(const struct start_plan *plan, int *report)
{
	unsigned long old[SET_BYTES / sizeof(long)];
	int pair[2];
	long pid = sys(socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);

	if (pid < 0)
		return pid;
	*report = sys_above_stdio(pair[0]);
	pair[1] = sys_above_stdio(pair[1]);
	if (*report < 0 || pair[1] < 0) {
		pid = *report < 0 ? *report : pair[1];
	} else {
		start_block_signals(old);
		pid = starter_fork(CLONE_UNTRACED);
		if (pid == 0)
			starter_run(plan, pair[1]);
		start_restore_signals(old);
	}
	if (pair[1] >= 0)
		sys(close, pair[1]);
	if (pid < 0 && *report >= 0)
		sys(close, *report);
	return pid;
}

static int start_with(const struct start_plan *plan, bool nonblock, struct text *why)
{
	char line[WIRE_REASON_BYTES / 2];
	int report;
	long pid = start_make_starter(plan, &report), n;

	if (pid < 0) {
		text_add(why, "no keeper runs, and none can be started: ");
		text_add_errno(why, (int)-pid);
		return -ENOLCK;
	}
	n = start_read_report(report, nonblock, line, sizeof(line));
	/* Ends the starter, if it still waits. */
	sys(shutdown, report, SHUT_RDWR);
	sys(close, report);
	while (sys(wait4, pid, NULL, __WCLONE, NULL) == -EINTR)
		;
	if (n <= 0)
		return (int)n;
	text_add(why, "no keeper runs, and none can be started: ");
	text_add(why, line);
	return -ENOLCK;
}

int start_keeper(const struct protect_by *by, bool nonblock, char *why, size_t why_size)
{
	const struct settings *s = settings_get();
	const char *hindrance = start_obstacle();
	const struct start_plan plan = {
		.config = by->config,
		.dir = s && s->place.runtime_env[0] ? s->place.runtime_env : NULL,
		.library = s ? s->library : "",
		.debug = s && s->debug,
		.uid = rundir_uid(by->euid),
		.gid = sys_getegid(),
	};
	struct text text;
	int ret = -EPERM;

	text_init(&text, why, why_size);
	if (start_is_roots(s, by)) {
		text_add(&text,
			 "the keeper of the system does not run, and only root can start it: systemctl start dflock");
		return -EPERM;
	}
	if (hindrance) {
		text_add(&text, "no keeper runs, and this process cannot start one unseen, since ");
		text_add(&text, hindrance);
		text_add(&text, "; start it first: ");
	} else {
		ret = start_with(&plan, nonblock, &text);
		if (ret != -ENOLCK)
			return ret;
		text_add(&text, "; to see more: ");
	}
	start_add_command(&text, by, plan.dir);
	return ret;
}
