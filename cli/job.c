#include "cli/job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The signals that are passed on, and SIGCHLD. The others stop this process, or are its own mistakes. */
static void fill_relayed(sigset_t *set)
{
	static const int own[] = {SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, SIGSEGV, SIGBUS,
				  SIGFPE,  SIGILL,  SIGTRAP, SIGSYS,  SIGABRT};

	sigfillset(set);
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		sigdelset(set, own[i]);
}

/* Has the job got the signal itself? So it has those that the kernel sends to all processes of a terminal, and those
 * that the job's own processes send to their group. An alarm that was set before dflock was executed comes to this
 * process alone, and so does a signal from outside of the pid namespace (si_pid is 0). */
static bool is_to_relay(const siginfo_t *info)
{
	if (info->si_code > 0)
		return info->si_signo != SIGINT && info->si_signo != SIGQUIT && info->si_signo != SIGHUP &&
		       info->si_signo != SIGWINCH;
	return info->si_pid == 0 || getpgid(info->si_pid) != getpgrp();
}

static void wait_for(pid_t pid, const sigset_t *relayed, int *status)
{
	pid_t ended;
	siginfo_t info;
	int sig;

	while ((ended = waitpid(-1, status, WNOHANG)) != pid) {
		if (ended > 0)
			continue;
		sig = sigwaitinfo(relayed, &info);
		if (sig > 0 && sig != SIGCHLD && is_to_relay(&info))
			kill(pid, sig);
	}
}

static void __attribute__((noreturn)) become(char *const argv[], int failed)
{
	int err;

	execvp(argv[0], argv);
	err = errno;
	_exit(write(failed, &err, sizeof(err)) < 0 ? EXIT_FAILURE : 0);
}

int job_run(char *const argv[], bool stay_blocked, int *status)
{
	const struct sigaction usual = {.sa_handler = SIG_DFL};
	struct sigaction before;
	sigset_t relayed, mask;
	int failed[2], err = 0;
	pid_t pid;

	if (pipe2(failed, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	fill_relayed(&relayed);
	sigprocmask(SIG_BLOCK, &relayed, &mask);
	/* A parent may have left it ignored: then no child could be waited for. */
	sigaction(SIGCHLD, &usual, &before);
	pid = fork();
	if (pid == 0) {
		sigaction(SIGCHLD, &before, NULL);
		sigprocmask(SIG_SETMASK, &mask, NULL);
		become(argv, failed[1]);
	}
	if (pid < 0)
		err = errno;
	else
		wait_for(pid, &relayed, status);
	if (!stay_blocked)
		sigprocmask(SIG_SETMASK, &mask, NULL);
	close(failed[1]);
	if (pid > 0 && read(failed[0], &err, sizeof(err)) != sizeof(err))
		err = 0;
	close(failed[0]);
	return -err;
}

int job_exit(int status)
{
	const struct rlimit none = {0, 0};
	sigset_t set;
	int sig;

	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	sig = WTERMSIG(status);
	setrlimit(RLIMIT_CORE, &none);
	signal(sig, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, sig);
	raise(sig);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	return 128 + sig;
}
