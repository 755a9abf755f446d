/* See supervise.h. */
#include "keeper/guard/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/kernel/family.h"
#include "keeper/guard/freezer.h"
#include "keeper/guard/leftover.h"
#include "keeper/log.h"
#include "keeper/guard/resident.h"
#include "keeper/guard/table_file.h"
#include "keeper/guard/table_notes.h"
#include "keeper/guard/table_words.h"

#define CHECK_MS       1000
#define QUICK_MS       100 /* where leases run out soon */
#define HUNG_NS        (5000 * NS_PER_MS) /* in which the loop did not turn once, though it may only want for a processor */
#define END_MS         200 /* in which a keeper that was killed ends, unless one of its threads cannot */
#define END_LOOK_MS    50
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
static void told_to_end(struct table *table)
{
	static int64_t first_ns;
	int64_t now = clock_now_ns();

	if (!table->head->ending)
		first_ns = now;
	if (!table->head->ending || now - first_ns > KEEPER_AGAIN_MS * NS_PER_MS)
		table_put32(&table->head->ending, table->head->ending ? 2 : 1);
}

/* What the parent knows of the keeper's loop. */
struct pulse {
	int64_t alive, looked_ns;
	int64_t since_ns; /* it was seen to turn last */
	int64_t still_ns; /* since then, but for the time in which we did not run either (a suspended machine) */
};

/* How often to look: a loop that stands still is noticed two periods later than it might be. */
static int pulse_period_ms(const struct pulse *p, struct table *table)
{
	return table_patience_ns(table, p->since_ns) < HUNG_NS ? QUICK_MS : CHECK_MS;
}

/*
 * Does it hang? One that wants for a processor is given more time than there may be: to kill it helps nobody, since the
 * next one would have none either.
 */
static bool pulse_hangs(struct pulse *p, pid_t pid, struct table *table)
{
	int64_t alive = table_get_ns(&table->head->alive), now = clock_now_ns();
	int64_t passed = now - p->looked_ns, most = 2 * pulse_period_ms(p, table) * NS_PER_MS;

	p->looked_ns = now;
	if (alive != p->alive) {
		p->alive = alive;
		p->since_ns = now;
		p->still_ns = 0;
		return false;
	}
	p->still_ns += passed < most ? passed : most;
	return p->still_ns >= table_patience_ns(table, p->since_ns) &&
	       (p->still_ns >= HUNG_NS || family_state(pid) != 'R');
}

/*
 * Waits until the keeper ends; tells it to end when we are told, kills it if it hangs, and stops the processes that it
 * cannot protect any more.
 */
static int watch_keeper(pid_t pid, const sigset_t *signals, struct table *table, struct freezer *freezer)
{
	struct pulse pulse = {.alive = -1, .since_ns = clock_now_ns()};
	int64_t killed_ns = 0; /* since when it is known that it runs no more; 0: it does */
	uint32_t resident_room = 0;
	int status;

	pulse.looked_ns = pulse.since_ns;
	freezer_keeper(freezer, pid);
	for (;;) {
		if (table->room != resident_room) { /* it grows while the keeper works */
			resident_room = table->room;
			resident_stay(table->head, table_file_bytes(table));
		}
		int wait_ms = freezer_look(freezer, killed_ns ? END_LOOK_MS : pulse_period_ms(&pulse, table));
		struct timespec wait = {.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * NS_PER_MS};
		int number = sigtimedwait(signals, NULL, &wait);

		if (number == SIGTERM || number == SIGINT) {
			told_to_end(table);
			kill(pid, SIGTERM);
		}
		if (waitpid(pid, &status, WNOHANG) == pid)
			return status;
		leftover_reap();
		/* The first thread ends with the process, or all are about to: one that cannot has kept it. */
		if (!killed_ns && family_state(pid) == 'Z')
			killed_ns = clock_now_ns();
		if (killed_ns && clock_now_ns() - killed_ns > END_MS * NS_PER_MS) {
			leftover_leave(pid);
			return SIGKILL; /* as waitpid() would say it */
		}
		if (!killed_ns && pulse_hangs(&pulse, pid, table)) {
			log_error("the keeper (pid %d) hangs: it is killed and started again", (int)pid);
			kill(pid, SIGKILL);
			killed_ns = clock_now_ns();
		}
	}
}

/*
 * Ahead of whatever makes this machine slow: the parent sleeps unless leases run out, and then each process that it finds
 * late may be one too many. Only root may. Not a real-time class: several parents that search /proc at a time would leave
 * nothing to the keepers, which are to renew. These, being forked, have the usual priority.
 */
static void go_first(void)
{
	const struct sched_param param = {.sched_priority = 0};

	if (sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &param) != 0 ||
	    setpriority(PRIO_PROCESS, 0, -20) != 0)
		log_debug("the keeper's parent has no priority over other programs: %s", strerror(errno));
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

/* NULL with errno. */
static struct freezer *open_table(const struct keeper_options *o, struct table *table)
{
	char why[256];
	int ret = table_open(table, o->dir_fd, why, sizeof(why));

	if (*why)
		log_error("%s: %s", o->runtime_dir, why);
	errno = -ret;
	return ret == 0 ? freezer_new(table) : NULL;
}

static int cannot_start(const struct keeper_options *o)
{
	char line[PATH_MAX + 256];

	snprintf(line, sizeof(line), "%s/" TABLE_NAME ": %s; the keeper cannot start without it", o->runtime_dir,
		 strerror(errno));
	log_error("%s", line);
	if (o->ready_fd >= 0 && write(o->ready_fd, line, strlen(line)) < 0)
		log_error("nobody reads why: %s", strerror(errno));
	return KEEPER_EXIT_CONFIG;
}

int supervise(struct keeper_options *options)
{
	struct freezer *freezer;
	static struct table table; /* the keeper goes on with its copy */
	sigset_t signals, begin;
	int64_t backoff_ms = 100;
	int pipe_fds[2];

	freezer = open_table(options, &table);
	if (!freezer || pipe2(pipe_fds, O_CLOEXEC) != 0)
		return cannot_start(options);
	options->table = &table;
	options->parent_fd = pipe_fds[0];
	prctl(PR_SET_NAME, "dflockd-parent");
	go_first();
	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGUSR1); /* table_notify() */
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
		int status = watch_keeper(pid, &signals, &table, freezer);
		table_unsure(&table);
		/* One that cannot start leaves its predecessor's leases behind: their holders must be stopped in time.
		 */
		if (WIFEXITED(status) && (WEXITSTATUS(status) == KEEPER_EXIT_IDLE ||
					  (WEXITSTATUS(status) == KEEPER_EXIT_CONFIG && !table_in_use(&table))))
			return WEXITSTATUS(status);
		if (table.head->ending > 1) { /* what it had is in the table */
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
