/*
 * A wait that signals end exactly as they end the kernel's: EINTR after a handler without SA_RESTART, none after other
 * handlers, a stop or a continuation. poll(), nanosleep() and a socket with a time limit give EINTR after every handler. The
 * read of a timer does not: it has no limit itself, so the kernel restarts it.
 *
 * A signal whose handler runs while this code looks for a keeper would be missed, and with it perhaps the alarm() by which
 * a program limits its wait. So signals are blocked meanwhile, which is for some microseconds, and those that come are
 * found pending before they are let in. (What is left is what the kernel's calls have, too: a signal that comes between two
 * instructions before the call.) While the caller asks, or starts a keeper, signals are not blocked: both may take long.
 */
#include "shim/ask.h"

#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "shim/note.h"
#include "shim/real.h"
#include "wire/sys.h"

#define ABSENT_DOUBLED 5 /* 32 s */
#define SERVED_DOUBLED 3 /* 8 s */

/* Will one of the pending signals, which `mask` lets in, end a wait? */
static bool await_is_interrupted(const struct sys_signals *mask)
{
	struct sys_signals pending = {{0}};
	struct sigaction action;

	sys(rt_sigpending, &pending, (long)SYS_SIGNALS_BYTES);
	for (int sig = 1; sig < _NSIG; sig++)
		if (sys_has_signal(&pending, sig) && !sys_has_signal(mask, sig) && sigaction(sig, NULL, &action) == 0 &&
		    action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN && !(action.sa_flags & SA_RESTART))
			return true;
	return false;
}

/* -EINTR; 1: a keeper listens; 0: none does. */
static int await_look(const char *dir)
{
	struct sys_signals all, mask;
	bool answered, interrupted;

	memset(&all, 0xff, sizeof(all));
	sys(rt_sigprocmask, SIG_SETMASK, &all, &mask, (long)SYS_SIGNALS_BYTES);
	answered = ask_is_answered(dir);
	interrupted = await_is_interrupted(&mask);
	sys(rt_sigprocmask, SIG_SETMASK, &mask, NULL, (long)SYS_SIGNALS_BYTES);
	return interrupted ? -EINTR : answered;
}

/* Opens the timer in the place of the socket: so ask_close() and abandoned.c close it. */
static int await_open(struct ask *ask, struct itimerspec *timer, int64_t ns)
{
	static uint32_t number;
	int ret;

	if (start_is_restricted())
		return netted_is_caught() ? ASK_NETTED : -EPERM;
	ask->sock = sys_above_stdio((int)sys(timerfd_create, CLOCK_MONOTONIC, TFD_CLOEXEC));
	if (ask->sock < 0)
		return ask->sock;
	/* The interval is a mark, and does not come: ask_identity(). */
	*timer = (struct itimerspec){
		.it_interval.tv_sec = ASK_TIMER_MARK_S,
		.it_interval.tv_nsec = __atomic_add_fetch(&number, 1, __ATOMIC_RELAXED) % 1000000000,
		.it_value.tv_sec = ns / 1000000000,
		.it_value.tv_nsec = ns % 1000000000,
	};
	ret = (int)sys(timerfd_settime, ask->sock, 0L, timer, NULL);
	abandoned_note(ask);
	return ret;
}

/* libc's read(), since deferred cancellation acts only in libc's own calls. */
static int await_second(const struct ask *ask, const struct itimerspec *second)
{
	uint64_t passed;
	ssize_t n = sys(timerfd_settime, ask->sock, 0L, second, NULL);

	if (n < 0 || !ask->cancellable)
		return (int)(n < 0 ? n : sys(read, ask->sock, &passed, (long)sizeof(passed)));
	n = read(ask->sock, &passed, sizeof(passed));
	return n < 0 ? -errno : 0;
}

int await_pause(struct ask *ask, int64_t ns)
{
	struct itimerspec timer;
	uint64_t passed;
	int ret = await_open(ask, &timer, ns);

	if (ret >= 0)
		ret = (int)sys(read, ask->sock, &passed, (long)sizeof(passed));
	ask_close(ask);
	return ret < 0 ? ret : 0;
}

int await_keeper(struct ask *ask, const struct protect_by *by, unsigned tries)
{
	const unsigned most = ask->absent ? ABSENT_DOUBLED : SERVED_DOUBLED;
	unsigned seconds = 1u << (tries < most ? tries : most);
	struct itimerspec second;
	int ret = await_open(ask, &second, 1000000000), found = 0;

	for (; ret >= 0 && !found && seconds > 0; seconds--) {
		ret = await_second(ask, &second);
		if (ret >= 0 && ask->over && ask->over(ask))
			ret = -EINTR;
		if (ret >= 0 && ask->absent && by->dir[0])
			ret = found = await_look(by->dir);
	}
	ask_close(ask);
	if (ret < 0 && ret != -EINTR && ret != ASK_NETTED) {
		errno = -ret;
		note_refused(ask->fd, "this process cannot wait for a keeper: %m");
		return -ENOLCK;
	}
	return ret < 0 ? ret : 0;
}
