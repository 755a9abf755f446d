/* See starter.h. System calls only: the program's other threads may have held any lock when it cloned. */
#include "shim/starter.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "shim/start.h"
#include "shim/sys.h"
#include "wire/msg.h"
#include "wire/text.h"

#define REPORT_FD  3 /* in the starter: to the program. In the keeper: --ready-fd */
#define SET_BYTES  (_NSIG / 8)
#define STACK_SANE ((rlim_t)8 << 20)

/* Not libc's, which signals all threads that it knows of: here, there are none. */
#ifdef SYS_setresuid32
#define sys_setres(what, r, e, s) sys(setres##what##32, r, e, s)
#else
#define sys_setres(what, r, e, s) sys(setres##what, r, e, s)
#endif

long starter_fork(unsigned long flags)
{
#if defined(__s390__) || defined(__CRIS__)
	return sys(clone, 0L, flags, 0L, 0L, 0L);
#else
	return sys(clone, flags, 0L, 0L, 0L, 0L);
#endif
}

static _Noreturn void starter_give_up(const char *what, const char *detail, long err)
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

static void starter_close_from(unsigned int first)
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

/* The program may have limited itself; the keeper serves other programs, too. */
static void starter_raise_limits(void)
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
static void starter_settle_descriptors(int report)
{
	long null, ret;

	ret = sys_fcntl(report, F_DUPFD_CLOEXEC, REPORT_FD + 1L);
	if (ret < 0 || sys(dup3, ret, REPORT_FD, O_CLOEXEC) < 0)
		_exit(1);
	starter_close_from(REPORT_FD + 1);
	null = sys(openat, AT_FDCWD, "/dev/null", O_RDWR);
	if (null < 0)
		starter_give_up("the keeper needs ", "/dev/null", null);
	for (int fd = 0; fd <= 2; fd++)
		if (fd != null)
			sys(dup3, null, fd, 0);
	if (null > 2)
		sys(close, null);
}

/* Returns only on failure: -errno. */
static long starter_exec(const struct start_plan *plan, const char *path)
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
 * that is unknown. */
static void starter_find_beside(const char *library, char path[PATH_MAX])
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

static _Noreturn void starter_become_keeper(const struct start_plan *plan, int ready)
{
	const struct sigaction plain = {.sa_handler = SIG_DFL};
	const unsigned long none[SET_BYTES / sizeof(long)] = {0};
	char path[PATH_MAX];
	long ret;

	sys(dup3, ready, REPORT_FD, 0);
	starter_close_from(REPORT_FD + 1);
	sys_raw(SYS_setsid);
	sys(chdir, "/");
	umask(022);
	/* In a setuid program, the real user must not get power over the keeper. */
	ret = sys_setres(gid, plan->gid, plan->gid, plan->gid);
	if (ret == 0)
		ret = sys_setres(uid, plan->uid, plan->uid, plan->uid);
	if (ret < 0)
		starter_give_up("the keeper cannot run as the user ", "of this program", ret);
	/* exec resets handlers, but not ignored signals. */
	for (int sig = 1; sig < _NSIG; sig++)
		sigaction(sig, &plain, NULL);
	sys(rt_sigprocmask, SIG_SETMASK, none, NULL, (long)SET_BYTES);
	/* That of setarch(8). The keeper itself undoes the rest of what it has inherited (keeper/guard/inherit.h). */
	sys(personality, 0UL);

	starter_find_beside(plan->library, path);
	ret = path[0] ? starter_exec(plan, path) : -ENOENT;
	if (ret != -ENOENT)
		starter_give_up("cannot run ", path, ret);
	ret = starter_exec(plan, DFLOCKD_INSTALLED);
	starter_give_up("cannot run ", path[0] && ret == -ENOENT ? path : DFLOCKD_INSTALLED, ret);
}

/* Passes on the keeper's line. Returns when the keeper serves or has ended, or when the program has given up; ends the
 * process when the time is over. */
static void starter_watch(int ready)
{
	struct pollfd on[2] = {{.fd = ready, .events = POLLIN}, {.fd = REPORT_FD}};
	int64_t deadline_ns = sys_clock_ns(CLOCK_MONOTONIC) + START_PATIENCE_MS * INT64_C(1000000), left_ns;
	char line[WIRE_REASON_BYTES];
	struct timespec left;
	long n;

	for (;;) {
		left_ns = deadline_ns - sys_clock_ns(CLOCK_MONOTONIC);
		if (left_ns <= 0)
			starter_give_up("the keeper was started", " and does not serve", -ETIMEDOUT);
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

_Noreturn void starter_run(const struct start_plan *plan, int report)
{
	int ready[2];
	long ret;

	starter_raise_limits();
	starter_settle_descriptors(report);
	ret = sys(pipe2, ready, O_CLOEXEC);
	if (ret < 0)
		starter_give_up("no pipe ", "to the keeper", ret);
	ret = starter_fork(CLONE_UNTRACED | SIGCHLD);
	if (ret == 0)
		starter_become_keeper(plan, ready[1]);
	if (ret < 0)
		starter_give_up("no process ", "for the keeper", ret);
	sys(close, ready[1]);
	starter_watch(ready[0]);
	sys(shutdown, REPORT_FD, SHUT_RDWR);
	_exit(0);
}
