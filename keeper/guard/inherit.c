/* See inherit.h. inherit_take_back() ignores errors: inherit_tell() reads what could not be taken back. */
#include "keeper/guard/inherit.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "keeper/log.h"

#define IOPRIO_OF_PROCESS    1
#define MEMORY_FROM_ANY_NODE 0
#define TIMER_SLACK_NS       50000L /* the kernel's own default: 0 would mean the program's */
#define STACK_SANE           ((rlim_t)8 << 20)

static const struct {
	int which;
	const char *name;
} hurting[] = {
	{RLIMIT_CPU, "CPU time (ulimit -t)"},
	{RLIMIT_FSIZE, "file size (ulimit -f)"},
	{RLIMIT_AS, "memory (ulimit -v)"},
	{RLIMIT_DATA, "data (ulimit -d)"},
};

static void take_back_limits(void)
{
	const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
	struct rlimit limit;

	for (size_t i = 0; i < sizeof(hurting) / sizeof(*hurting); i++)
		setrlimit(hurting[i].which, &none);
	for (int which = 0; which < RLIM_NLIMITS; which++) {
		if (which == RLIMIT_CORE || getrlimit(which, &limit) != 0)
			continue;
		limit.rlim_cur = limit.rlim_max;
		/* Without a limit the kernel lays out memory in another way. */
		if (which == RLIMIT_STACK && limit.rlim_cur > STACK_SANE)
			limit.rlim_cur = STACK_SANE;
		setrlimit(which, &limit);
	}
}

static void take_back_signals(void)
{
	sigset_t none;

	for (int number = 1; number < _NSIG; number++)
		signal(number, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

void inherit_reset_oom(int sign)
{
	int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
	char text[16] = "";

	if (fd < 0)
		return;
	if (read(fd, text, sizeof(text) - 1) > 0 && sign * atoi(text) > 0 && pwrite(fd, "0", 1, 0) < 0)
		text[0] = '\0'; /* a limit that root has set: it cannot be changed */
	close(fd);
}

void inherit_take_back(void)
{
	const struct sched_param plain = {0};
	cpu_set_t all;

	memset(&all, 0xff, sizeof(all));
	/* A process may leave SCHED_IDLE only with a nice value that it may have, so nice is set first; and again
	 * afterwards, since some classes have no nice value. */
	setpriority(PRIO_PROCESS, 0, 0);
	if (sched_setscheduler(0, SCHED_OTHER, &plain) == 0)
		setpriority(PRIO_PROCESS, 0, 0);
	sched_setaffinity(0, sizeof(all), &all);
	syscall(SYS_set_mempolicy, MEMORY_FROM_ANY_NODE, NULL, 0);
	syscall(SYS_ioprio_set, IOPRIO_OF_PROCESS, 0, 0);
	prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
	inherit_reset_oom(1); /* the kernel would kill the keeper before others */
	take_back_limits();
	take_back_signals();
}

void inherit_tell(void)
{
	int nice_value = getpriority(PRIO_PROCESS, 0), policy = sched_getscheduler(0);
	struct rlimit limit;

	if (nice_value > 0 || policy == SCHED_IDLE)
		log_event(
			LINE_INHERITED_LIMIT,
			"the program that started this keeper had nice %d%s, and the keeper may not take that back: on a busy "
			"machine its leases may run out and their holders be frozen; start dflockd before such programs",
			nice_value, policy == SCHED_IDLE ? " and SCHED_IDLE" : "");
	for (size_t i = 0; i < sizeof(hurting) / sizeof(*hurting); i++)
		if (getrlimit(hurting[i].which, &limit) == 0 && limit.rlim_max != RLIM_INFINITY)
			log_about(
				LINE_INHERITED_LIMIT, &(struct log_about){.subject = hurting[i].name},
				"the program that started this keeper had a limit of %s, and the keeper may not take that "
				"back: it ends when it reaches it; start dflockd before such programs",
				hurting[i].name);
}
