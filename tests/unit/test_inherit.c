/* What a keeper undoes of what it inherited from the program that started it. Each test is a process of its own, also
 * without Check's fork. */
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "keeper/guard/inherit.h"
#include "tests/unit/suite.h"

/* The exit status of a child that runs this function; the effects stay in the child. */
static int in_child(int (*run)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(run());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int signals(void)
{
	sigset_t all, now;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	signal(SIGTERM, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	inherit_take_back();
	sigprocmask(SIG_SETMASK, NULL, &now);
	for (int number = 1; number < NSIG; number++)
		if (sigismember(&now, number) == 1)
			return number;
	return signal(SIGTERM, SIG_DFL) == SIG_DFL && signal(SIGPIPE, SIG_DFL) == SIG_DFL ? 0 : 255;
}

TEST(no_signal_is_blocked_or_ignored) { ck_assert_int_eq(in_child(signals), 0); }

static int limits(void)
{
	const struct rlimit few = {64, 512}, small = {1 << 20, 8 << 20}, stack = {1 << 20, RLIM_INFINITY};
	struct rlimit now;

	setrlimit(RLIMIT_NOFILE, &few);
	setrlimit(RLIMIT_CORE, &small);
	setrlimit(RLIMIT_STACK, &stack);
	inherit_take_back();
	if (getrlimit(RLIMIT_NOFILE, &now) != 0 || now.rlim_cur != 512)
		return 1;
	if (getrlimit(RLIMIT_STACK, &now) != 0 || now.rlim_cur != 8 << 20)
		return 2; /* without a limit the kernel lays out memory in another way */
	if (getrlimit(RLIMIT_CORE, &now) != 0 || now.rlim_cur != 1 << 20)
		return 3; /* no affair of the keeper's work */
	return 0;
}

TEST(soft_limits_rise_to_the_hard_ones) { ck_assert_int_eq(in_child(limits), 0); }

static const struct rlimit hard = {1 << 20, 1 << 20}, none = {RLIM_INFINITY, RLIM_INFINITY};

/* root may, but not in every container */
static int may_raise(void)
{
	setrlimit(RLIMIT_FSIZE, &hard);
	return setrlimit(RLIMIT_FSIZE, &none) == 0;
}

static int is_raised(void)
{
	struct rlimit now;

	setrlimit(RLIMIT_FSIZE, &hard);
	inherit_take_back();
	return getrlimit(RLIMIT_FSIZE, &now) == 0 && now.rlim_max == RLIM_INFINITY;
}

TEST(a_hard_limit_of_the_file_size_goes_where_that_is_allowed)
{
	ck_assert_int_eq(in_child(is_raised), in_child(may_raise));
}

static int attention(void)
{
	char text[16] = "";
	const struct sched_param plain = {0};
	cpu_set_t set;
	int fd;

	prctl(PR_SET_TIMERSLACK, 1000000000L, 0, 0, 0);
	sched_setscheduler(0, SCHED_BATCH, &plain);
	CPU_ZERO(&set);
	CPU_SET(0, &set);
	sched_setaffinity(0, sizeof(set), &set);
	fd = open("/proc/self/oom_score_adj", O_WRONLY);
	if (fd < 0 || write(fd, "500", 3) != 3)
		return 1;
	close(fd);
	inherit_take_back();
	if (prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0) != 50000 || sched_getscheduler(0) != SCHED_OTHER)
		return 2;
	if (sched_getaffinity(0, sizeof(set), &set) != 0 || CPU_COUNT(&set) != sysconf(_SC_NPROCESSORS_ONLN))
		return 3;
	fd = open("/proc/self/oom_score_adj", O_RDONLY);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 1 || atoi(text) > 0)
		return 4;
	return 0;
}

TEST(it_runs_when_it_has_to) { ck_assert_int_eq(in_child(attention), 0); }

static int nice_value(void)
{
	if (setpriority(PRIO_PROCESS, 0, 10) != 0)
		return 1;
	inherit_take_back();
	return getpriority(PRIO_PROCESS, 0) == 0 ? 0 : 2;
}

TEST(nice_is_taken_back_by_root)
{
	if (geteuid() == 0)
		ck_assert_int_eq(in_child(nice_value), 0);
}
