/* See supervise.h. */
#include "keeper/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/family.h"
#include "keeper/freeze.h"
#include "keeper/leftover.h"
#include "keeper/log.h"

#define CHECK_MS       1000
#define HUNG_CHECKS    5 /* of CHECK_MS each, in which the loop did not turn once */
#define END_MS         200 /* in which a keeper that was killed ends, unless one of its threads cannot */
#define END_LOOK_MS    50
#define LEFT_MAX       64
#define BACKOFF_MAX_MS 2000
#define STEADY_MS      10000 /* a keeper that lived as long starts the backoff anew */

static pid_t start_keeper(struct keeper_options *options, int parent_end, const sigset_t *signals)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	sigprocmask(SIG_SETMASK, signals, NULL);
	prctl(PR_SET_NAME, "dflockd");
	close(parent_end);
	exit(keeper_run(options));
}

/* Whoever signals both of us means it once. */
static void told_to_end(struct fence *fence)
{
	static int64_t first_ns;
	int64_t now = clock_now_ns();

	if (!fence->ending)
		first_ns = now;
	if (!fence->ending || now - first_ns > KEEPER_AGAIN_MS * NS_PER_MS)
		__atomic_store_n(&fence->ending, fence->ending ? 2 : 1, __ATOMIC_RELAXED);
}

/* Keepers that were killed and have not ended yet; beyond these they are not reaped before we end. */
static pid_t left[LEFT_MAX];

static void reap_left(void)
{
	for (int i = 0; i < LEFT_MAX; i++)
		if (left[i] && waitpid(left[i], NULL, WNOHANG) != 0)
			left[i] = 0;
}

/*
 * Gives up on the end of a keeper that was killed. Nothing of it runs any more, so the next one may start: it cannot write to
 * the fence, nor to the journal, and what it sent to the store may arrive late, as from every keeper that died.
 */
static int leave_behind(pid_t pid)
{
	int ret = leftover_cut_off(pid), i = 0;

	log_error("the keeper (pid %d) was killed, but a thread of it waits for a file system that does not answer: it "
		  "is not waited for",
		  (int)pid);
	if (ret < 0)
		log_error("programs that wait for an answer of that keeper (pid %d) wait until it has ended: its "
			  "connections cannot be ended (%s)",
			  (int)pid, strerror(-ret));
	while (i < LEFT_MAX && left[i])
		i++;
	if (i < LEFT_MAX)
		left[i] = pid;
	return SIGKILL; /* as waitpid() would say it */
}

/*
 * Waits until the keeper ends; tells it to end when we are told, kills it if it hangs, and stops the processes that it
 * cannot protect any more.
 */
static int watch_keeper(pid_t pid, const sigset_t *signals, struct fence *fence, struct freezer *freezer)
{
	int64_t seen = -1, checked_ns = clock_now_ns();
	int64_t killed_ns = 0; /* since when it is known that it runs no more; 0: it does */
	int same = 0, status;

	freezer_keeper(freezer, pid);
	for (;;) {
		int wait_ms = freezer_look(freezer, killed_ns ? END_LOOK_MS : CHECK_MS);
		struct timespec wait = {.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * NS_PER_MS};
		int number = sigtimedwait(signals, NULL, &wait);

		if (number == SIGTERM || number == SIGINT) {
			told_to_end(fence);
			kill(pid, SIGTERM);
		}
		if (waitpid(pid, &status, WNOHANG) == pid)
			return status;
		reap_left();
		/* The first thread ends with the process, or all are about to: one that cannot has kept it. */
		if (!killed_ns && family_state(pid) == 'Z')
			killed_ns = clock_now_ns();
		if (killed_ns && clock_now_ns() - killed_ns > END_MS * NS_PER_MS)
			return leave_behind(pid);
		if (clock_now_ns() - checked_ns < CHECK_MS * NS_PER_MS)
			continue;
		int64_t now = __atomic_load_n(&fence->alive, __ATOMIC_RELAXED);
		same = now == seen ? same + 1 : 0;
		seen = now;
		checked_ns = clock_now_ns();
		if (same == HUNG_CHECKS) {
			log_error("the keeper (pid %d) hangs: it is killed and started again", (int)pid);
			kill(pid, SIGKILL);
			killed_ns = checked_ns;
		}
	}
}

/* Between two keepers. */
static void wait_and_look(struct freezer *freezer, int64_t ms)
{
	int64_t end = clock_now_ns() + ms * NS_PER_MS, left_ms;

	while ((left_ms = (end - clock_now_ns()) / NS_PER_MS) > 0) {
		int wait_ms = freezer_look(freezer, (int)left_ms);
		struct timespec wait = {.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * NS_PER_MS};

		nanosleep(&wait, NULL);
	}
}

static int cannot_start(const struct keeper_options *o)
{
	char line[PATH_MAX + 256];

	snprintf(line, sizeof(line), "%s/" FENCE_NAME ": %s; the keeper cannot start without it", o->runtime_dir,
		 strerror(errno));
	log_error("%s", line);
	if (o->ready_fd >= 0 && write(o->ready_fd, line, strlen(line)) < 0)
		log_error("nobody reads why: %s", strerror(errno));
	return KEEPER_EXIT_CONFIG;
}

int supervise(struct keeper_options *options)
{
	struct freezer *freezer;
	struct fence *fence;
	sigset_t signals, begin;
	int64_t backoff_ms = 100;
	int pipe_fds[2];

	fence = fence_open(options->dir_fd);
	freezer = fence ? freezer_new(fence) : NULL;
	if (!freezer || pipe2(pipe_fds, O_CLOEXEC) != 0)
		return cannot_start(options);
	options->fence = fence;
	options->parent_fd = pipe_fds[0];
	prctl(PR_SET_NAME, "dflockd-parent");
	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGUSR1); /* fence_notify() */
	sigprocmask(SIG_BLOCK, &signals, &begin);
	sigaddset(&begin, SIGTERM); /* the keeper's, until it can act on them */
	sigaddset(&begin, SIGINT);
	for (;;) {
		int64_t started = clock_now_ns();
		pid_t pid = start_keeper(options, pipe_fds[1], &begin);

		if (pid < 0) {
			log_error("the keeper cannot be started: %s", strerror(errno));
			return KEEPER_EXIT_CONFIG;
		}
		if (options->ready_fd >= 0)
			close(options->ready_fd);
		options->ready_fd = -1;
		if (mlockall(MCL_CURRENT) != 0)
			log_debug("the keeper's parent is not locked into memory: %s", strerror(errno));
		int status = watch_keeper(pid, &signals, fence, freezer);
		fence_unsure(fence);
		/* One that cannot start leaves its predecessor's leases behind: their holders must be stopped in time.
		 */
		if (WIFEXITED(status) && (WEXITSTATUS(status) == KEEPER_EXIT_IDLE ||
					  (WEXITSTATUS(status) == KEEPER_EXIT_CONFIG && !fence_in_use(fence))))
			return WEXITSTATUS(status);
		if (fence->ending > 1) { /* what it had is in the journal */
			log_error("the keeper (pid %d) died while it ended (%s %d)", (int)pid,
				  WIFSIGNALED(status) ? "signal" : "status",
				  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
			return KEEPER_EXIT_IDLE;
		}
		log_error("the keeper (pid %d) died (%s %d): started again", (int)pid,
			  WIFSIGNALED(status) ? "signal" : "status",
			  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		if (clock_now_ns() - started > STEADY_MS * NS_PER_MS)
			backoff_ms = 100;
		/* The first time at once: leases are running out. */
		wait_and_look(freezer, backoff_ms - 100);
		backoff_ms = backoff_ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : backoff_ms * 2;
	}
}
