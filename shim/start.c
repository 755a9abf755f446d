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
#include "shim/ask.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "shim/settings.h"
#include "wire/sys.h"
#include "wire/msg.h"
#include "wire/rundir.h"
#include "wire/text.h"

#define REPORT_FD  3 /* in the starter: to the program. In the keeper: --ready-fd */
#define STACK_SANE ((rlim_t)8 << 20)

/* What the new processes need; filled before the clone. */
struct start_plan {
	const char *config, *library;
	const char *dir; /* DFLOCK_RUNTIME_DIR; NULL: the keeper finds or makes one by the rule of rundir.h */
	bool debug;
	uid_t uid;
	gid_t gid;
};

/* --- the starter. System calls only: the program's other threads may have held any lock when it cloned --- */

/* Not libc's, which signals all threads that it knows of: here, there are none. */
#ifdef SYS_setresuid32
#define sys_setres(what, r, e, s) sys(setres##what##32, r, e, s)
#else
#define sys_setres(what, r, e, s) sys(setres##what, r, e, s)
#endif

long start_fork(unsigned long flags)
{
#if defined(__s390__) || defined(__CRIS__)
	return sys(clone, 0L, flags, 0L, 0L, 0L);
#else
	return sys(clone, flags, 0L, 0L, 0L, 0L);
#endif
}

static _Noreturn void start_give_up(const char *what, const char *detail, long err)
{
	char line[WIRE_REASON_BYTES];

	errno = (int)-err;
	text_print(line, sizeof(line), "%s%s: %m", what, detail);
	sys(write, REPORT_FD, line, strlen(line));
	sys(shutdown, REPORT_FD, SHUT_RDWR);
	_exit(1);
}

static void start_close(unsigned int first, unsigned int last)
{
	struct rlimit limit;

	if (sys(close_range, first, last, 0u) == 0)
		return;
	/* Before Linux 5.9. */
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > 1u << 20)
		limit.rlim_cur = 1u << 20;
	for (unsigned int fd = first; fd <= last && fd < limit.rlim_cur; fd++)
		sys(close, fd);
}

/* Closes all but `kept`. A close may wait for a file server without end; the descriptor has left the table by then. So children that share the
 * table close, each until it hangs. They hold what they hang in, and nothing else of the program's. */
static void start_close_but(unsigned int kept)
{
	const struct sigaction plain = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
	const struct timespec patience = {.tv_sec = 1};
	struct sys_signals ended = {{0}};
	long pid;

	sigaction(SIGCHLD, &plain, NULL);
	sys_add_signal(&ended, SIGCHLD);
	do {
		pid = start_fork(CLONE_UNTRACED | CLONE_FILES | SIGCHLD);
		if (pid <= 0) {
			start_close(0, kept - 1);
			start_close(kept + 1, ~0u);
		}
		if (pid == 0)
			_exit(0);
	} while (pid > 0 && sys(rt_sigtimedwait, &ended, NULL, &patience, (long)SYS_SIGNALS_BYTES) < 0);
	/* One that goes on later must close nothing of what follows. */
	sys(unshare, CLONE_FILES);
}

/* The program may have limited itself; the keeper serves other programs, too. */
static void start_raise_limits(void)
{
	struct rlimit limit;

	for (int which = 0; which < RLIM_NLIMITS; which++) {
		if (which == RLIMIT_CORE || getrlimit(which, &limit) < 0)
			continue;
		limit.rlim_cur = limit.rlim_max;
		/* Without a limit for the stack the kernel lays out memory in another way. */
		if (which == RLIMIT_STACK && limit.rlim_cur > STACK_SANE)
			limit.rlim_cur = STACK_SANE;
		setrlimit(which, &limit);
	}
}

/* Closes all descriptors, but makes `report` REPORT_FD, and opens /dev/null as 0, 1 and 2. */
static void start_settle_descriptors(int report)
{
	long null, kept = sys_fcntl(report, F_DUPFD_CLOEXEC, REPORT_FD + 1L);

	if (kept < 0)
		_exit(1);
	start_close_but((unsigned int)kept);
	if (sys(dup3, kept, REPORT_FD, O_CLOEXEC) < 0)
		_exit(1);
	sys(close, kept);
	null = sys(openat, AT_FDCWD, "/dev/null", O_RDWR);
	if (null < 0)
		start_give_up("the keeper needs ", "/dev/null", null);
	for (int fd = 0; fd <= 2; fd++)
		if (fd != null)
			sys(dup3, null, fd, 0);
	if (null > 2)
		sys(close, null);
}

/* Returns only on failure: -errno. */
static long start_exec(const struct start_plan *plan, const char *path)
{
	char *const argv[] = {
		(char *)"dflockd",    (char *)"--config",
		(char *)plan->config, (char *)"--ready-fd",
		(char *)"3",          plan->dir ? (char *)"--runtime-dir" : NULL,
		(char *)plan->dir,    NULL,
	};
	char *const envp[] = {
		(char *)"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		plan->debug ? (char *)"DFLOCK_LOG=debug" : NULL,
		NULL,
	};

	return sys(execve, path, argv, envp);
}

/* The path of dflockd in the folder of the library's own file, also if the library was loaded through a link; "" if
 * that is unknown. In place: this runs on the stack of a thread that may have no more than PTHREAD_STACK_MIN. */
static void start_find_beside(const char *library, char path[PATH_MAX])
{
	static const char name[] = "/dflockd";
	long fd = sys(openat, AT_FDCWD, library, O_PATH | O_CLOEXEC), n;
	char link[32], *slash;

	text_print(link, sizeof(link), "/proc/self/fd/%ld", fd);
	n = sys(readlinkat, AT_FDCWD, link, path, PATH_MAX - 1L);
	path[n > 0 ? n : 0] = '\0';
	if (n <= 0)
		text_print(path, PATH_MAX, "%s", library);
	slash = strrchr(path, '/');
	if (slash && (size_t)(slash - path) + sizeof(name) <= PATH_MAX)
		memcpy(slash, name, sizeof(name));
	else
		path[0] = '\0';
}

/* Not libc's sigaction(): musl's takes a lock for SIGABRT, which another thread may have held (fork() does). All zero, it is SIG_DFL on every
 * architecture, and as long as the longest. */
static void start_default(int sig)
{
	static const unsigned long action[8];

	sys(rt_sigaction, sig, action, NULL, (long)SYS_SIGNALS_BYTES);
}

/* Not inlined: the program's thread would have it on its stack, too. */
static _Noreturn __attribute__((noinline)) void start_become_keeper(const struct start_plan *plan, int ready)
{
	const struct sys_signals none = {{0}};
	char path[PATH_MAX];
	long ret;

	sys(dup3, ready, REPORT_FD, 0);
	start_close(REPORT_FD + 1, ~0u);
	sys_raw(SYS_setsid);
	sys(chdir, "/");
	umask(022);
	/* In a setuid program, the real user must not get power over the keeper. */
	ret = sys_setres(gid, plan->gid, plan->gid, plan->gid);
	if (ret == 0)
		ret = sys_setres(uid, plan->uid, plan->uid, plan->uid);
	if (ret < 0)
		start_give_up("the keeper cannot run as the user ", "of this program", ret);
	/* exec resets handlers, but not ignored signals. */
	for (int sig = 1; sig < _NSIG; sig++)
		start_default(sig);
	sys(rt_sigprocmask, SIG_SETMASK, &none, NULL, (long)SYS_SIGNALS_BYTES);
	/* That of setarch(8). The keeper itself undoes the rest of what it has inherited (keeper/guard/inherit.h). */
	sys(personality, 0UL);

	start_find_beside(plan->library, path);
	ret = path[0] ? start_exec(plan, path) : -ENOENT;
	if (ret != -ENOENT)
		start_give_up("cannot run ", path, ret);
	ret = start_exec(plan, DFLOCKD_INSTALLED);
	start_give_up("cannot run ", path[0] && ret == -ENOENT ? path : DFLOCKD_INSTALLED, ret);
}

/* Passes on the keeper's line. Returns when the keeper serves or has ended, or when the program has given up; ends the
 * process when the time is over. */
static void start_watch(int ready)
{
	struct pollfd on[2] = {{.fd = ready, .events = POLLIN}, {.fd = REPORT_FD}};
	int64_t deadline_ns = sys_kernel_clock_ns(CLOCK_MONOTONIC) + START_PATIENCE_MS * INT64_C(1000000), left_ns;
	char line[WIRE_REASON_BYTES];
	struct timespec left;
	long n;

	for (;;) {
		left_ns = deadline_ns - sys_kernel_clock_ns(CLOCK_MONOTONIC);
		if (left_ns <= 0)
			start_give_up("the keeper was started", " and does not serve", -ETIMEDOUT);
		left = (struct timespec){.tv_sec = left_ns / 1000000000, .tv_nsec = left_ns % 1000000000};
		n = sys(ppoll, on, 2L, &left, NULL, 0L);
		if (n < 0 || on[1].revents)
			return;
		if (!on[0].revents)
			continue;
		n = sys(read, ready, line, sizeof(line));
		if (n <= 0)
			return;
		sys(sendto, REPORT_FD, line, n, MSG_NOSIGNAL, NULL, 0);
	}
}

/* The starter's whole life, in the process that start_fork() made with all signals blocked. `report`: the connection
 * to the program, which gets one line if no keeper serves. */
static _Noreturn void start_run(const struct start_plan *plan, int report)
{
	int ready[2];
	long ret;

	start_raise_limits();
	start_settle_descriptors(report);
	ret = sys(pipe2, ready, O_CLOEXEC);
	if (ret < 0)
		start_give_up("no pipe ", "to the keeper", ret);
	ret = start_fork(CLONE_UNTRACED | SIGCHLD);
	if (ret == 0)
		start_become_keeper(plan, ready[1]);
	if (ret < 0)
		start_give_up("no process ", "for the keeper", ret);
	sys(close, ready[1]);
	start_watch(ready[0]);
	sys(shutdown, REPORT_FD, SHUT_RDWR);
	_exit(0);
}

/* --- the program --- */

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

/* Are children of this thread in another pid namespace? The starter could be the first process there: it ends soon, and the program could
 * fork no more. While there is no first process, the link leads nowhere. */
static bool start_is_elsewhere(void)
{
	struct stat here, there;

	return sys_stat("/proc/thread-self/ns/pid", &here) == 0 &&
	       (sys_stat("/proc/thread-self/ns/pid_for_children", &there) < 0 || here.st_ino != there.st_ino);
}

/* Why this process must not start a keeper, or NULL. */
static const char *start_obstacle(void)
{
	int reaper = 0;

	if (getpid() == 1)
		return "it is the first process of its pid namespace";
	if (start_is_elsewhere())
		return "its children are in another pid namespace";
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
	struct sys_signals all, old;
	int pair[2];
	long pid = sys(socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);

	if (pid < 0)
		return pid;
	*report = sys_above_stdio(pair[0]);
	pair[1] = sys_above_stdio(pair[1]);
	if (*report < 0 || pair[1] < 0) {
		pid = *report < 0 ? *report : pair[1];
	} else {
		memset(&all, 0xff, sizeof(all));
		sys(rt_sigprocmask, SIG_SETMASK, &all, &old, (long)SYS_SIGNALS_BYTES);
		pid = start_fork(CLONE_UNTRACED);
		if (pid == 0)
			start_run(plan, pair[1]);
		sys(rt_sigprocmask, SIG_SETMASK, &old, NULL, (long)SYS_SIGNALS_BYTES);
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

	text_add(why, "no keeper runs, and none can be started: ");
	if (pid < 0) {
		errno = (int)-pid;
		text_add(why, "%m");
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
	text_add(why, "%s", line);
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
		text_add(&text, "no keeper runs, and this process cannot start one unseen, since %s; start it first: ",
			 hindrance);
	} else {
		ret = start_with(&plan, nonblock, &text);
		if (ret != -ENOLCK)
			return ret;
		text_add(&text, "; to see more: ");
	}
	text_add(&text, "dflockd --config %s%s%s", by->config, plan.dir ? " --runtime-dir " : "",
		 plan.dir ? plan.dir : "");
	return ret;
}
