/* See seize.h. */
#include "keeper/guard/seize.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "keeper/log.h"

#define SEIZE_OPTIONS (PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK)

static sigjmp_buf seize_out;
static volatile sig_atomic_t seize_armed;
static timer_t seize_timer;
static bool seize_has_timer;

static void seize_on_timer(int number)
{
	(void)number;
	if (seize_armed) {
		seize_armed = 0;
		siglongjmp(seize_out, 1);
	}
}

/* SA_NODEFER leaves the signal mask as it is over the jump. */
void seize_prepare(void)
{
	struct sigaction action = {.sa_handler = seize_on_timer, .sa_flags = SA_NODEFER};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
	sigset_t alarm;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	seize_has_timer = sigaction(SIGALRM, &action, NULL) == 0 && sigprocmask(SIG_UNBLOCK, &alarm, NULL) == 0 &&
			  timer_create(CLOCK_MONOTONIC, &event, &seize_timer) == 0;
	if (!seize_has_timer)
		log_event(LINE_NOT_STOPPABLE,
			  "no timer (%s): a process that hangs in execve() when its lease runs out may keep the "
			  "keeper's parent from stopping the others",
			  strerror(errno));
}

static void seize_set_timer(int64_t ns)
{
	const struct itimerspec when = {.it_value.tv_nsec = ns};

	if (seize_has_timer)
		timer_settime(seize_timer, 0, &when, NULL);
}

int seize_thread(pid_t tid, int64_t limit_ns)
{
	volatile int ret = -ETIMEDOUT;

	if (sigsetjmp(seize_out, 0) == 0) {
		seize_armed = 1;
		seize_set_timer(limit_ns);
		ret = syscall(SYS_ptrace, (long)PTRACE_SEIZE, (long)tid, 0l, (long)SEIZE_OPTIONS) == 0 ? 0 : -errno;
		seize_armed = 0;
	}
	seize_set_timer(0);
	if (ret == 0 || ret == -ETIMEDOUT)
		return ptrace(PTRACE_INTERRUPT, tid, 0, 0) == 0 ? 0 : ret;
	return ret;
}
