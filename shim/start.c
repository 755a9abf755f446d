/*
 * Three processes:
 *
 *   program   clone without exit signal (nothing tells the program when it ends, and wait() without __WCLONE
 *      |      does not see it), without CLONE_FILES (its closing drops none of the program's POSIX locks),
 *      |      CLONE_UNTRACED; all signals blocked, so that no handler of the program runs in it
 *   starter   shares no memory, never execs (exec would give it SIGCHLD as its exit signal); lives until the
 *      |      keeper serves or START_PATIENCE_MS have passed, passes on the reason, ends, is reaped with __WCLONE
 *   keeper    a session of its own, a clean environment; belongs to init once the starter has ended
 *
 * The starter keeps the time, and not the program: with a time limit, a wait of the program's could not tell
 * handlers with SA_RESTART from those without. The program and the starter are joined by a socket pair and not
 * by a pipe, since another thread may fork meanwhile: shutdown() reaches every copy.
 */
#include "shim/start.h"

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
#include "shim/sys.h"
#include "wire/text.h"

#define REPORT_FD  3 /* in the starter: to the program. In the keeper: --ready-fd */
#define SET_BYTES  (_NSIG / 8)
#define STACK_SANE ((rlim_t)8 << 20)

/* libc's would tell all threads, of which there are none here. */
#ifdef SYS_setresuid32
#define sys_setres(what, r, e, s) sys(setres##what##32, r, e, s)
#else
#define sys_setres(what, r, e, s) sys(setres##what, r, e, s)
#endif

/* What the new processes need, fixed before the clone. */
struct plan {
	const char *config, *library;
	const char *dir; /* DFLOCK_RUNTIME_DIR; NULL: the keeper finds or makes one by the same rule */
	bool debug;
	uid_t uid;
	gid_t gid;
};

/* A fork, as libc's would be, but for the flags; no handler of pthread_atfork() runs. */
static long fork_with(unsigned long flags)
{
#if defined(__s390__) || defined(__CRIS__)
	return sys(clone, 0L, flags, 0L, 0L, 0L);
#else
	return sys(clone, flags, 0L, 0L, 0L, 0L);
#endif
}

static void block_signals(unsigned long old[SET_BYTES / sizeof(long)])
{
	unsigned long all[SET_BYTES / sizeof(long)];

	memset(all, 0xff, sizeof(all));
	sys(rt_sigprocmask, SIG_SETMASK, all, old, (long)SET_BYTES);
}

static void restore_signals(const unsigned long old[SET_BYTES / sizeof(long)])
{
	sys(rt_sigprocmask, SIG_SETMASK, old, NULL, (long)SET_BYTES);
}

/* --- In the starter and the keeper: system calls only. --- */

static _Noreturn void give_up(const char *what, const char *detail, long err)
{
	char line[WIRE_REASON_BYTES];
	struct text text;

	text_init(&text, line, sizeof(line));
	text_add(&text, what);
	text_add(&text, detail);
	text_add(&text, ": ");
	text_add_errno(&text, (int)-err);
	sys(write, REPORT_FD, line, text.len);
	_exit(1);
}

static void close_from(unsigned int first)
{
	struct rlimit limit;

	if (sys(close_range, first, ~0u, 0u) == 0)
		return;
	/* Before Linux 5.9. */
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > 1u << 20)
		limit.rlim_cur = 1u << 20;
	for (unsigned int fd = first; fd < limit.rlim_cur; fd++)
		sys(close, fd);
}

/* The program may have limited itself; the keeper serves others, too. */
static void raise_limits(void)
{
	struct rlimit limit;

	for (int which = 0; which < RLIM_NLIMITS; which++) {
		if (which == RLIMIT_CORE || getrlimit(which, &limit) < 0)
			continue;
		limit.rlim_cur = limit.rlim_max;
		/* Without a limit the kernel lays out memory in another way. */
		if (which == RLIMIT_STACK && limit.rlim_cur > STACK_SANE)
			limit.rlim_cur = STACK_SANE;
		setrlimit(which, &limit);
	}
}

/* Leaves REPORT_FD, and /dev/null as 0, 1 and 2. */
static void settle_descriptors(int report)
{
	long null, ret;

	ret = sys_fcntl(report, F_DUPFD_CLOEXEC, REPORT_FD + 1L);
	if (ret < 0 || sys(dup3, ret, REPORT_FD, O_CLOEXEC) < 0)
		_exit(1);
	close_from(REPORT_FD + 1);
	null = sys(openat, AT_FDCWD, "/dev/null", O_RDWR);
	if (null < 0)
		give_up("the keeper needs ", "/dev/null", null);
	for (int fd = 0; fd <= 2; fd++)
		if (fd != null)
			sys(dup3, null, fd, 0);
	if (null > 2)
		sys(close, null);
}

/* Returns only if it failed: -errno. */
static long exec_keeper(const struct plan *plan, const char *path)
{
	char *const argv[] = {
		(char *)"dflockd",
		(char *)"--config",
		(char *)plan->config,
		(char *)"--ready-fd",
		(char *)"3",
		plan->dir ? (char *)"--runtime-dir" : NULL,
		(char *)plan->dir,
		NULL,
	};
	char *const envp[] = {
		(char *)"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		plan->debug ? (char *)"DFLOCK_LOG=debug" : NULL,
		NULL,
	};

	return sys(execve, path, argv, envp);
}

/* dflockd in the folder of the library itself, whatever link the library was loaded through; "" if that is unknown. */
static void find_beside(const char *library, char path[PATH_MAX])
{
	char link[32];
	struct text text;
	long fd = sys(openat, AT_FDCWD, library, O_PATH | O_CLOEXEC), n;
	char *slash;

	text_init(&text, link, sizeof(link));
	text_add(&text, "/proc/self/fd/");
	text_add_number(&text, fd);
	n = sys(readlinkat, AT_FDCWD, link, path, PATH_MAX - 1L);
	text = (struct text){.buf = path, .size = PATH_MAX, .len = n > 0 ? (size_t)n : 0};
	if (n <= 0)
		text_add(&text, library);
	path[text.len] = '\0';
	slash = strrchr(path, '/');
	text.len = slash ? (size_t)(slash + 1 - path) : 0;
	text_add(&text, "dflockd");
	if (!slash || text.cut)
		path[0] = '\0';
}

static _Noreturn void become_keeper(const struct plan *plan, int ready)
{
	const struct sigaction plain = {.sa_handler = SIG_DFL};
	const unsigned long none[SET_BYTES / sizeof(long)] = {0};
	char path[PATH_MAX];
	long ret;

	sys(dup3, ready, REPORT_FD, 0);
	close_from(REPORT_FD + 1);
	sys_raw(SYS_setsid);
	sys(chdir, "/");
	umask(022);
	/* A setuid program: the real user must not have power over the keeper. */
	ret = sys_setres(gid, plan->gid, plan->gid, plan->gid);
	if (ret == 0)
		ret = sys_setres(uid, plan->uid, plan->uid, plan->uid);
	if (ret < 0)
		give_up("the keeper cannot run as the user ", "of this program", ret);
	/* Handlers are reset by exec, ignored signals are not. */
	for (int sig = 1; sig < _NSIG; sig++)
		sigaction(sig, &plain, NULL);
	restore_signals(none);
	/* setarch's: the rest of what the program had is for the keeper to take back (keeper/guard/inherit.h). */
	sys(personality, 0UL);

	find_beside(plan->library, path);
	ret = path[0] ? exec_keeper(plan, path) : -ENOENT;
	if (ret != -ENOENT)
		give_up("cannot run ", path, ret);
	ret = exec_keeper(plan, DFLOCKD_INSTALLED);
	give_up("cannot run ", path[0] && ret == -ENOENT ? path : DFLOCKD_INSTALLED, ret);
}

/* Passes on what the keeper says; ends when it serves, when its time is up, or when the program gave up. */
static void watch(int ready)
{
	struct pollfd on[2] = {{.fd = ready, .events = POLLIN}, {.fd = REPORT_FD}};
	int64_t deadline_ns = sys_clock_ns(CLOCK_MONOTONIC) + START_PATIENCE_MS * INT64_C(1000000), left_ns;
	char line[WIRE_REASON_BYTES];
	struct timespec left;
	long n;

	for (;;) {
		left_ns = deadline_ns - sys_clock_ns(CLOCK_MONOTONIC);
		if (left_ns <= 0)
			give_up("the keeper was started", " and does not serve", -ETIMEDOUT);
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

static _Noreturn void be_starter(const struct plan *plan, int report)
{
	int ready[2];
	long ret;

	raise_limits();
	settle_descriptors(report);
	ret = sys(pipe2, ready, O_CLOEXEC);
	if (ret < 0)
		give_up("no pipe ", "to the keeper", ret);
	ret = fork_with(CLONE_UNTRACED | SIGCHLD);
	if (ret == 0)
		become_keeper(plan, ready[1]);
	if (ret < 0)
		give_up("no process ", "for the keeper", ret);
	sys(close, ready[1]);
	watch(ready[0]);
	sys(shutdown, REPORT_FD, SHUT_RDWR);
	_exit(0);
}

/* --- In the program again. --- */

/* Under seccomp, and which mode: a filter may kill whoever makes an unexpected call, so ask /proc first. */
static bool has_seccomp(void)
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
	/* Far behind a long list of groups. */
	if (!at)
		return prctl(PR_GET_SECCOMP) != 0;
	return at[sizeof(key) - 1] != '0';
}

/* Why this process must not start a keeper, or NULL. */
static const char *obstacle(void)
{
	int reaper = 0;

	if (getpid() == 1)
		return "it is the first process of its pid namespace";
	if (has_seccomp())
		return "it is restricted by seccomp";
	if (prctl(PR_GET_CHILD_SUBREAPER, &reaper) == 0 && reaper)
		return "it is a child subreaper";
	return NULL;
}

static void add_command(struct text *text, const struct protect_by *by, const char *dir)
{
	text_add(text, "dflockd --config ");
	text_add(text, by->config);
	if (dir) {
		text_add(text, " --runtime-dir ");
		text_add(text, dir);
	}
}

/* Reads what the starter has to say. Its length, or -EINTR. */
static long read_report(int sock, bool nonblock, char *line, size_t size)
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

/* Makes the starter; *report is our end. Its pid, or -errno. */
static long make_starter(const struct plan *plan, int *report)
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
		block_signals(old);
		pid = fork_with(CLONE_UNTRACED);
		if (pid == 0)
			be_starter(plan, pair[1]);
		restore_signals(old);
	}
	if (pair[1] >= 0)
		sys(close, pair[1]);
	if (pid < 0 && *report >= 0)
		sys(close, *report);
	return pid;
}

static int start_with(const struct plan *plan, bool nonblock, struct text *why)
{
	char line[WIRE_REASON_BYTES / 2];
	int report;
	long pid = make_starter(plan, &report), n;

	if (pid < 0) {
		text_add(why, "no keeper runs, and none can be started: ");
		text_add_errno(why, (int)-pid);
		return -ENOLCK;
	}
	n = read_report(report, nonblock, line, sizeof(line));
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
	const char *hindrance = obstacle();
	const struct plan plan = {
		.config = by->config,
		.dir = s && s->place.runtime_env[0] ? s->place.runtime_env : NULL,
		.library = s ? s->library : "",
		.debug = s && s->debug,
		.uid = by->euid,
		.gid = sys_getegid(),
	};
	struct text text;
	int ret = -EPERM;

	text_init(&text, why, why_size);
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
	add_command(&text, by, plan.dir);
	return ret;
}
