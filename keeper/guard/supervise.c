/* See supervise.h. */
#include "keeper/guard/supervise.h"

#include <errno.h>
#include <limits.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/guard/deeds.h"
#include "keeper/guard/freeze.h"
#include "keeper/guard/manager.h"
#include "keeper/guard/table_file.h"
#include "keeper/guard/table.h"
#include "keeper/guard/table_words.h"
#include "keeper/kernel/family.h"
#include "keeper/log.h"

#define SUPERVISE_END_MS    200 /* a killed keeper ends within this time, unless one of its threads cannot */
#define SUPERVISE_LOOK_MS   50  /* pause between two looks at it */
#define SUPERVISE_FIRST_MS  100 /* between two starts; twice as long each time */
#define SUPERVISE_MOST_MS   2000
#define SUPERVISE_STEADY_MS 10000 /* after a keeper that lived so long, the pauses begin with the first again */

/* A page that the parent and its keepers share. */
struct shared {
	uint32_t serves; /* the first keeper serves */
	uint32_t
		ended; /* the keeper has ended by itself: 1 + its enum keeper_exit. A thread of it may hang nevertheless */
};

struct supervisor {
	const struct supervise *options;
	struct table table; /* a keeper's process goes on with its copy */
	struct freeze *freezer;
	int parent_fd, keeper_fd; /* two ends of a pipe */
	int ready_fd;
	struct shared *shared;
	struct manager *manager;
	sigset_t waited;  /* the signals that the parent waits for */
	sigset_t keepers; /* blocked when a keeper begins */
	int64_t pause_ms; /* until the next keeper is started */
};

/* --- one keeper --- */

static pid_t supervise_start(struct supervisor *s)
{
	const struct supervised keeper = {
		.table = &s->table, .parent_fd = s->keeper_fd, .ready_fd = s->ready_fd, .serves = &s->shared->serves};
	int exit_status;
	pid_t pid;

	table_put32(&s->shared->ended, 0);
	pid = fork();
	if (pid != 0)
		return pid;
	sigprocmask(SIG_SETMASK, &s->keepers, NULL);
	prctl(PR_SET_NAME, "dflockd");
	close(s->parent_fd);
	manager_end(s->manager);
	log_begin_keeper();
	exit_status = s->options->run(s->options->arg, &keeper);
	log_flush();
	table_put32(&s->shared->ended, (uint32_t)exit_status + 1); /* mutant: supervise-ended */
	exit(exit_status);
}

/* A program that signals both keeper and parent wants to be counted once. */
static void supervise_told_to_end(struct table *table)
{
	static int64_t first_ns;
	int64_t now = clock_now_ns();

	if (table->head->ending > TABLE_TOLD_TO_END)
		return;
	if (!table->head->ending)
		first_ns = now;
	if (!table->head->ending || now - first_ns > KEEPER_AGAIN_MS * NS_PER_MS) /* mutant: supervise-again */
		table_put32(&table->head->ending, table->head->ending ? TABLE_TOLD_AT_ONCE : TABLE_TOLD_TO_END);
}

/* Waits until a signal comes or the time is over, and passes on a signal to end or to reload. pid 0: between two keepers; the next one looks
 * whether it is to end. */
static void supervise_wait(struct supervisor *s, pid_t pid, int wait_ms)
{
	struct timespec wait = {.tv_nsec = 0};
	int number;

	wait_ms = manager_wait_ms(s->manager, wait_ms);
	wait = (struct timespec){.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * NS_PER_MS};
	number = sigtimedwait(&s->waited, NULL, &wait);
	if (number == SIGHUP && pid)
		kill(pid, SIGHUP);
	if (number == SIGQUIT)
		table_put32(&s->table.head->ending, TABLE_TOLD_TO_MAKE_WAY);
	else if (number == SIGTERM || number == SIGINT)
		supervise_told_to_end(&s->table);
	else
		return;
	manager_stopping(s->manager); /* before the keeper ends: then nothing looks any more */
	if (pid)
		kill(pid, SIGTERM);
}

static const char *supervise_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The other libraries are the keeper's. What the linker has without rights ("---p") is only room. */
bool supervise_needs(const struct procfs_map *map, const char *program)
{
	if (map->rights[0] != 'r')
		return false;
	return strcmp(map->name, program) == 0 || strcmp(map->name, "[heap]") == 0 ||
	       strcmp(map->name, "[stack]") == 0 || strncmp(supervise_base_name(map->name), "libc.", 5) == 0 ||
	       strncmp(supervise_base_name(map->name), "libc-", 5) == 0 ||
	       strncmp(supervise_base_name(map->name), "ld-", 3) == 0;
}

static int supervise_lock_map(void *arg, const struct procfs_map *map)
{
	if (supervise_needs(map, arg) && mlock((const void *)(uintptr_t)map->from, map->to - map->from) != 0)
		return -errno;
	return 0;
}

static int supervise_lock_needed(const void *shared, size_t size)
{
	char program[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);

	if (len <= 0 || mlock(shared, size) != 0)
		return -errno;
	program[len] = '\0';
	return procfs_maps(getpid(), supervise_lock_map, program);
}

/*
 * Locks all of the process, as it is now, into memory, so that it can stop holders in time on a machine that swaps; where the limit
 * (RLIMIT_MEMLOCK, 8 MB for ordinary users) does not allow that, what is needed to stop processes: the table, which grows while the
 * keeper works, the program, libc, the heap and the stack. Where even that is too much, the log says so, once. Not inherited by fork().
 */
static void supervise_stay_resident(struct supervisor *s, uint32_t *room)
{
	static bool said;
	struct rlimit limit = {0};
	int ret;

	if (s->table.room == *room)
		return;
	*room = s->table.room;
	if (mlockall(MCL_CURRENT) == 0)
		return;
	ret = supervise_lock_needed(s->table.head, table_file_bytes(&s->table));
	if (ret == 0)
		log_stay_resident();
	if (ret == 0 || said)
		return;
	said = true;
	getrlimit(RLIMIT_MEMLOCK, &limit);
	log_event(
		LINE_PARENT_SWAPPABLE,
		"the keeper's parent cannot be locked into memory (%s; the limit is %llu kB): on a machine that swaps it "
		"may stop the holders of locks too late; raise RLIMIT_MEMLOCK (ulimit -l, LimitMEMLOCK=) to 16 MB",
		strerror(-ret), (unsigned long long)limit.rlim_cur / 1024);
}

static void supervise_tell_manager(struct supervisor *s)
{
	if (table_get32(&s->shared->serves))
		manager_ready(s->manager);
	if (s->table.head->ending)
		manager_stopping(s->manager);
	manager_alive(s->manager, clock_now_ns());
}

/*
 * Waits until the keeper ends; tells it to end when the parent is told to, kills it if it hangs, and stops the
 * processes that it cannot protect any more. Returns its status as waitpid() has it.
 */
static int supervise_watch(struct supervisor *s, pid_t pid)
{
	struct table *table = &s->table;
	struct pulse pulse;
	int64_t killed_ns = 0; /* since when it is known that it runs no more; 0: it does */
	uint32_t resident_room = 0;
	int status;

	pulse_start(&pulse, clock_now_ns());
	freeze_set_keeper(s->freezer, pid);
	for (;;) {
		int64_t patience_ns = table_patience_ns(table, pulse.since_ns), now;
		char state;

		supervise_stay_resident(s, &resident_room);
		supervise_tell_manager(s);
		log_tick();
		supervise_wait(s, pid,
			       freezer_look(s->freezer, killed_ns ? SUPERVISE_LOOK_MS : pulse_period_ms(patience_ns)));
		if (waitpid(pid, &status, WNOHANG) == pid)
			return status;
		leftover_reap();
		now = clock_now_ns();
		state = family_state(pid);
		/* The first thread has ended. If the process has not, a thread that cannot end keeps it. */
		if (!killed_ns && state == 'Z')
			killed_ns = now;
		if (killed_ns && now - killed_ns > SUPERVISE_END_MS * NS_PER_MS) {
			uint32_t ended = table_get32(&s->shared->ended);

			leftover_leave(pid);
			return ended ? W_EXITCODE((int)ended - 1, 0) : SIGKILL; /* as waitpid() would say it */
		}
		patience_ns = table_patience_ns(table, pulse.since_ns);
		if (!killed_ns &&
		    pulse_hangs(&pulse, table_get_ns(&table->head->alive), now, patience_ns, state == 'R')) {
			log_event(LINE_KEEPER_HANGS, "the keeper (pid %d) hangs: it is killed and started again",
				  (int)pid);
			kill(pid, SIGKILL);
			deeds_count(table, DEEDS_HANGS, 1);
			killed_ns = now;
		}
	}
}

/* --- the parent --- */

/*
 * Puts the parent before all other programs of a busy machine: it sleeps unless leases run out, and then each process
 * that it finds too late is a risk. Only root may do that. Not a real-time class: several parents that search /proc at
 * the same time would leave no processor to the keepers, which must renew. The keepers, which are forked, get the usual
 * priority.
 */
static void supervise_go_first(void)
{
	const struct sched_param param = {.sched_priority = 0};

	if (sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &param) != 0 ||
	    setpriority(PRIO_PROCESS, 0, -20) != 0)
		log_debug("the keeper's parent has no priority over other programs: %s", strerror(errno));
}

/* Between two keepers. False: told to end, and none is to be started. A keeper that is to end in good order is started at once. */
static bool supervise_pause(struct supervisor *s, int64_t ms)
{
	int64_t end = clock_now_ns() + ms * NS_PER_MS, left_ms;
	const uint32_t ending = s->table.head->ending;

	while (s->table.head->ending == ending && (left_ms = (end - clock_now_ns()) / NS_PER_MS) > 0) {
		supervise_wait(s, 0, freezer_look(s->freezer, (int)left_ms)); /* mutant: supervise-pause */
		supervise_tell_manager(s);
		log_tick();
	}
	if (s->table.head->ending <= TABLE_TOLD_TO_END)
		return true;
	log_event(LINE_KEEPER_ENDS, "ends between two keepers: what the last one had is in the table");
	return false;
}

void supervise_serves(const struct table *table, uint32_t *serves)
{
	if (!serves)
		return;
	table_put32(serves, 1);
	table_notify(table);
}

/* 0 or -errno. */
static int supervise_prepare(struct supervisor *s)
{
	int pipe_fds[2], ret;
	char why[256];

	ret = table_open(&s->table, s->options->dir_fd, why, sizeof(why));
	if (*why)
		log_event(LINE_TABLE_DAMAGED, "%s: %s", s->options->runtime_dir, why);
	if (ret < 0)
		return ret;
	s->table.deeds = deeds_new();
	s->freezer = freeze_new(&s->table);
	s->shared = mmap(NULL, sizeof(*s->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!s->freezer || s->shared == MAP_FAILED)
		return -ENOMEM;
	if (pipe2(pipe_fds, O_CLOEXEC) != 0)
		return -errno;
	s->keeper_fd = pipe_fds[0];
	s->parent_fd = pipe_fds[1];
	sigemptyset(&s->waited);
	sigaddset(&s->waited, SIGCHLD);
	sigaddset(&s->waited, SIGTERM);
	sigaddset(&s->waited, SIGINT);
	sigaddset(&s->waited, SIGQUIT);
	sigaddset(&s->waited, SIGHUP);
	sigaddset(&s->waited, SIGUSR1); /* table_notify() */
	sigprocmask(SIG_BLOCK, &s->waited, &s->keepers);
	sigaddset(&s->keepers, SIGTERM); /* until it can act on them */
	sigaddset(&s->keepers, SIGINT);
	sigaddset(&s->keepers, SIGHUP);
	return 0;
}

static int supervise_cannot(const struct supervise *o, int ret)
{
	char line[PATH_MAX + 256];

	snprintf(line, sizeof(line), "%s/" TABLE_NAME ": %s; the keeper cannot start without it%s", o->runtime_dir,
		 strerror(-ret), table_file_advice(ret));
	log_event(LINE_KEEPER_CANNOT_START, "%s", line);
	if (o->ready_fd >= 0 && write(o->ready_fd, line, strlen(line)) < 0)
		log_event(LINE_KEEPER_CANNOT_START, "the program that waits for the keeper cannot be told: %s",
			  strerror(errno));
	return KEEPER_EXIT_CONFIG;
}

/* A keeper has ended. Must another one be started? If not, *result is its enum keeper_exit. */
static bool supervise_goes_on(struct supervisor *s, pid_t pid, int status, int *result)
{
	const char *how = WIFSIGNALED(status) ? "signal" : "status";
	int number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);

	*result = number;
	if (WIFEXITED(status) && (number == KEEPER_EXIT_IDLE || number == KEEPER_EXIT_UNCONFIRMED))
		return false;
	/* A keeper that cannot start leaves its predecessor's leases behind: their holders must be stopped in time. */
	if (WIFEXITED(status) && number == KEEPER_EXIT_CONFIG &&
	    !table_in_use(&s->table)) /* mutant: supervise-cannot */
		return false;
	if (s->table.head->ending > TABLE_TOLD_TO_END) { /* what it had is in the table */
		log_event(LINE_KEEPER_DIED, "the keeper (pid %d) died while it ended (%s %d)", (int)pid, how, number);
		*result = KEEPER_EXIT_IDLE;
		return false;
	}
	log_event(LINE_KEEPER_DIED, "the keeper (pid %d) died (%s %d): started again", (int)pid, how, number);
	return true;
}

/* One keeper after the other. Returns the exit status. */
static int supervise_keepers(struct supervisor *s)
{
	for (;;) {
		int64_t started = clock_now_ns();
		pid_t pid = supervise_start(s);
		int status, ret;

		if (pid < 0) {
			log_event(LINE_KEEPER_CANNOT_START, "the keeper cannot be started: %s", strerror(errno));
			if (!table_in_use(&s->table)) /* mutant: supervise-no-fork */
				return KEEPER_EXIT_CONFIG;
			if (!supervise_pause(s, SUPERVISE_FIRST_MS))
				return KEEPER_EXIT_IDLE;
			continue;
		}
		if (s->ready_fd >= 0)
			close(s->ready_fd);
		s->ready_fd = -1;
		status = supervise_watch(s, pid);
		log_keeper_ended();
		table_unsure(&s->table); /* mutant: supervise-unsure */
		if (!supervise_goes_on(s, pid, status, &ret))
			return ret;
		deeds_count(&s->table, DEEDS_RESTARTS, 1);
		if (clock_now_ns() - started > SUPERVISE_STEADY_MS * NS_PER_MS)
			s->pause_ms = SUPERVISE_FIRST_MS;
		/* The first time at once: leases are running out. */
		if (!supervise_pause(s, s->pause_ms - SUPERVISE_FIRST_MS))
			return KEEPER_EXIT_IDLE;
		s->pause_ms = s->pause_ms * 2 > SUPERVISE_MOST_MS ? SUPERVISE_MOST_MS : s->pause_ms * 2;
	}
}

int supervise(const struct supervise *options)
{
	static struct manager none = {.fd = -1};
	static struct supervisor s;
	int ret;

	s = (struct supervisor){.options = options,
				.ready_fd = options->ready_fd,
				.manager = options->manager ? options->manager : &none,
				.pause_ms = SUPERVISE_FIRST_MS};
	ret = supervise_prepare(&s);
	if (ret < 0)
		return supervise_cannot(options, ret);
	prctl(PR_SET_NAME, "dflockd-parent");
	supervise_go_first();
	ret = supervise_keepers(&s);
	freezer_leave(s.freezer);
	return ret;
}
