/* See container.h. Any process may start others meanwhile, so /proc is looked at again until nothing is found. */
#include "cli/container.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "procfs/procfs.h"

#define LOOK_FIRST_MS  5
#define LOOK_MOST_MS   100
#define TOLD_MAX       64 /* keepers beyond these are not told */
#define ANCESTORS_MOST 64

/* The names that keepers give themselves (keeper/main.c, keeper/guard/supervise.c). A program that takes such a name is
 * killed with the namespace, as without dflock. */
#define KEEPER_NAME "dflockd"
#define PARENT_NAME "dflockd-parent"
#define UNCONFIRMED 3 /* a keeper's exit status: the store has not confirmed that all was given back (dflockd(8)) */

enum part { PART_OTHER, PART_JOB, PART_KEEPER };

struct member {
	pid_t pid, parent;
	bool is_keeper, is_keepers_parent;
};

struct container {
	struct member *members; /* every process that one look at /proc found, but this one */
	size_t count, room;
	pid_t told[TOLD_MAX]; /* keepers' parents that were told to end */
	size_t told_count;
	bool unconfirmed;
};

bool container_is_first(void)
{
	return getpid() == 1;
}

int container_begin(void)
{
	return container_is_first() || prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 ? 0 : -errno;
}

/* --- which processes there are --- */

static int container_add(struct container *c, const struct member *member)
{
	if (c->count == c->room) {
		size_t room = c->room ? c->room * 2 : 64;
		struct member *more = reallocarray(c->members, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		c->members = more;
		c->room = room;
	}
	c->members[c->count++] = *member;
	return 0;
}

/* False: it has ended, even if its parent has not waited for it. */
static bool member_read(pid_t pid, struct member *member)
{
	char name[64], comm[32];
	struct procfs_stat stat;

	snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid);
	if (!procfs_stat_read(AT_FDCWD, name, &stat) || stat.state == 'Z' || stat.state == 'X')
		return false;
	snprintf(name, sizeof(name), "/proc/%d/comm", (int)pid);
	if (procfs_head(AT_FDCWD, name, comm, sizeof(comm)) <= 0)
		return false;
	comm[strcspn(comm, "\n")] = '\0';
	*member = (struct member){.pid = pid, .parent = stat.parent};
	member->is_keepers_parent = strcmp(comm, PARENT_NAME) == 0;
	member->is_keeper = member->is_keepers_parent || strcmp(comm, KEEPER_NAME) == 0;
	return true;
}

static int container_look(struct container *c)
{
	struct procfs_walk walk;
	struct member member;
	int ret, pid;

	c->count = 0;
	for (ret = procfs_walk(&walk, AT_FDCWD, "/proc"); ret == 0 && (pid = procfs_next(&walk)) >= 0;)
		if (pid != getpid() && member_read(pid, &member))
			ret = container_add(c, &member);
	procfs_walk_end(&walk);
	return ret;
}

static const struct member *container_find(const struct container *c, pid_t pid)
{
	for (size_t i = 0; i < c->count; i++)
		if (c->members[i].pid == pid)
			return &c->members[i];
	return NULL;
}

/* What a keeper started goes with the keeper. A look is no snapshot, so the parents that it found may be a circle. */
static enum part container_part(const struct container *c, const struct member *member)
{
	bool inside = container_is_first(), keepers = false;

	for (size_t steps = 0; member && steps < c->count; steps++) {
		keepers = keepers || member->is_keeper;
		inside = inside || member->parent == getpid();
		member = container_find(c, member->parent);
	}
	if (!inside)
		return PART_OTHER;
	return keepers ? PART_KEEPER : PART_JOB;
}

/* --- ending them --- */

static bool container_was_told(const struct container *c, pid_t pid)
{
	for (size_t i = 0; i < c->told_count; i++)
		if (c->told[i] == pid)
			return true;
	return false;
}

/* Once each: a second signal would end the keeper at once. */
static void container_tell(struct container *c, const struct member *member)
{
	if (!member->is_keepers_parent || container_was_told(c, member->pid) || c->told_count == TOLD_MAX)
		return;
	c->told[c->told_count++] = member->pid;
	kill(member->pid, SIGTERM);
}

static void container_reap(struct container *c)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (container_was_told(c, pid) && (!WIFEXITED(status) || WEXITSTATUS(status) == UNCONFIRMED))
			c->unconfirmed = true;
}

/* Looks, and sends the signal (0: none) to each process of this part. How many there are, or -errno. */
static ssize_t container_signal(struct container *c, enum part part, int sig)
{
	int ret = container_look(c);
	ssize_t found = 0;

	if (ret)
		return ret;
	for (size_t i = 0; i < c->count; i++) {
		if (container_part(c, &c->members[i]) != part)
			continue;
		found++;
		if (part == PART_KEEPER)
			container_tell(c, &c->members[i]);
		else if (sig)
			kill(c->members[i].pid, sig);
	}
	return found;
}

/* False: not all of this part have ended within the time. */
static bool container_wait(struct container *c, enum part part, int sig, int seconds)
{
	int64_t until = cli_now_ms() + (int64_t)seconds * 1000;
	long pause_ms = LOOK_FIRST_MS;
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	for (;;) {
		ssize_t found = container_signal(c, part, sig);

		container_reap(c); /* after the look, which leaves out those that can be reaped */
		if (found <= 0)
			return found == 0;
		if (cli_now_ms() >= until)
			return false;
		sigtimedwait(&child, NULL, &(struct timespec){.tv_nsec = pause_ms * 1000000});
		pause_ms = pause_ms * 2 > LOOK_MOST_MS ? LOOK_MOST_MS : pause_ms * 2;
	}
}

static void container_end_all(struct container *c, int patience_s)
{
	container_signal(c, PART_JOB, SIGTERM);
	if (!container_wait(c, PART_JOB, 0, patience_s) && !container_wait(c, PART_JOB, SIGKILL, CONTAINER_KILL_S))
		cli_error("processes that the job has left cannot be ended");
	if (!container_wait(c, PART_KEEPER, 0, CONTAINER_GIVE_BACK_S))
		cli_error("a keeper has not given everything back within %d s (is the store reachable?): what was "
			  "locked here may stay taken for other hosts for ttl_ms",
			  CONTAINER_GIVE_BACK_S);
	else if (c->unconfirmed)
		cli_error("the store has not confirmed that everything was given back (is it reachable?): what was "
			  "locked here may stay taken for other hosts for ttl_ms");
}

void container_end(int patience_s)
{
	char why[CLI_LINE_BYTES];
	struct container c = {.count = 0};
	ssize_t keepers = -ENOENT;

	/* No keeper runs where /proc is another namespace's. */
	if (procfs_check(why, sizeof(why)) == 0)
		keepers = container_look(&c) ? -ENOMEM : 0;
	for (size_t i = 0; i < c.count && keepers >= 0; i++)
		keepers += container_part(&c, &c.members[i]) == PART_KEEPER;
	if (keepers > 0)
		container_end_all(&c, patience_s);
	free(c.members);
}

/* The signals that are passed on, and SIGCHLD. The others stop this process, or are its own mistakes. */
static void fill_relayed(sigset_t *set)
{
	static const int own[] = {SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, SIGSEGV, SIGBUS,
				  SIGFPE,  SIGILL,  SIGTRAP, SIGSYS,  SIGABRT};

	sigfillset(set);
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		sigdelset(set, own[i]);
}

/* Is it the job's, or did the job start it? False also if it has ended. */
static bool is_of_job(pid_t pid)
{
	char name[64];
	struct procfs_stat stat;

	for (int steps = 0; steps < ANCESTORS_MOST && pid > 1; steps++) {
		snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid);
		if (!procfs_stat_read(AT_FDCWD, name, &stat))
			return false;
		pid = stat.parent;
		if (pid == getpid())
			return true;
	}
	return false;
}

/* Has the job got the signal itself? So it has those that the kernel sends to all processes of a terminal, and those
 * that the job's own processes send to their group. An alarm that was set before dflock was executed comes to this
 * process alone, and so does a signal from outside of the pid namespace (si_pid is 0). That a terminal is gone is told to the leader of its
 * session alone, and to others when that one ends. A script that has started dflock in its own group mostly means dflock alone (kill $!);
 * where it means the group, the job gets the signal twice, which is better than not at all. */
static bool is_to_relay(const siginfo_t *info)
{
	if (info->si_code > 0 && info->si_signo == SIGHUP)
		return getsid(0) == getpid();
	if (info->si_code > 0)
		return info->si_signo != SIGINT && info->si_signo != SIGQUIT && info->si_signo != SIGWINCH;
	return info->si_pid == 0 || getpgid(info->si_pid) != getpgrp() || !is_of_job(info->si_pid);
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
