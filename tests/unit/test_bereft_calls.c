/*
 * keeper/guard/freezer.c, and calls under way (underway.h): a lease is lost while one process holds the lock, another waits for it in the
 * kernel, and a third cannot be stopped, as if it were in the middle of its lock call.
 */
#include <sched.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "keeper/guard/freeze.h"
#include "keeper/guard/slots.h"
#include "tests/unit/holders_fixture.h"
#include "tests/unit/wait_until.h"

#define PATIENCE 300 /* looks */
#define SLOWER   20  /* how much slower than the machine's clock that of this process goes */

enum { HOLDER, WAITER, STUCK, PROCESSES };

static struct freeze freeze;
static pid_t pids[PROCESSES];

/* bereft_kill() has a tenth of a second to stop processes. On a busy machine that is no time: so it passes slowly here. */
int clock_gettime(clockid_t id, struct timespec *out)
{
	static int64_t first[16];
	struct timespec now;
	int64_t ns;

	if (syscall(SYS_clock_gettime, id, &now) != 0)
		return -1;
	ns = now.tv_sec * 1000000000ll + now.tv_nsec;
	if (id >= 0 && id < 16) {
		if (!first[id])
			first[id] = ns;
		ns = first[id] + (ns - first[id]) / SLOWER;
	}
	*out = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
	return 0;
}

void log_process(enum event_kind kind, pid_t pid, const char *format, ...) {}
void log_about(enum event_kind kind, const struct log_about *about, const char *format, ...) {}

/* A process that waits in vfork() cannot be stopped: its child does not end. */
static void be_stuck(void)
{
	pid_t pid = vfork();

	if (pid == 0) {
		for (;;)
			pause();
	}
	_exit(1);
}

static void be(int which)
{
	int fd = file_open(0);

	if (!freopen("/dev/null", "w", stderr)) /* the line that a killed process gets */
		_exit(1);
	if (which == STUCK)
		be_stuck();
	flock(fd, LOCK_EX);
	for (;;)
		pause();
}

static bool holds(void)
{
	int fd = file_open(0);
	bool is_free = flock(fd, LOCK_EX | LOCK_NB) == 0;

	close(fd);
	return !is_free;
}

static void note(pid_t pid)
{
	const struct table_slot *slot = &table.slots[slots[0]];
	const struct underway_call call = {.thread = pid,
					   .pid = pid,
					   .started = family_started(pid),
					   .number = 1,
					   .dev = slot->dev,
					   .ino = slot->ino,
					   .space = WIRE_FLOCK,
					   .to = WIRE_EOF};

	ck_assert_int_eq(underway_note(&table.underway, &call), 0);
}

static void setup(void)
{
	static const char *const states[PROCESSES] = {"S", "S", "D"};

	holders_open();
	freeze_init(&freeze, &table);
	freeze_set_keeper(&freeze, -1);
	take_slot(0);
	for (int i = 0; i < PROCESSES; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			setpgid(0, 0);
			be(i);
		}
		if (i == HOLDER)
			wait_until(holds());
		wait_until(family_state(pids[i]) == *states[i]);
		note(pids[i]);
	}
	table_lose(&table, slots[0], TABLE_WHY_TAKEN);
}

static void teardown(void)
{
	for (int i = 0; i < PROCESSES; i++) {
		kill(-pids[i], SIGKILL);
		waitpid(pids[i], NULL, __WALL);
	}
	holders_close();
}
FIXTURE(setup, teardown)

static bool runs_on(pid_t pid)
{
	char state = family_state(pid);

	return state && state != 'Z' && state != 'X';
}

static bool is_free(void) { return !slots_any(&table, SLOTS_IN(TABLE_LOST) | SLOTS_IN(TABLE_ENDING)); }

TEST(who_may_have_the_lock_is_killed)
{
	for (int i = 0; i < PATIENCE && !is_free(); i++)
		freezer_end_lost(&freeze);
	ck_assert(is_free());
	wait_until(!runs_on(pids[HOLDER]));
	wait_until(!runs_on(pids[STUCK]));
	wait_until(family_is_stopped(pids[WAITER])); /* it stops when it next runs */
	ck_assert(runs_on(pids[WAITER]));
}

/* Its call begins anew: what it does then, its net says. */
TEST(who_only_waits_goes_on)
{
	for (int i = 0; i < PATIENCE && !is_free(); i++)
		freezer_end_lost(&freeze);
	freeze_thaw(&freeze, 0);
	wait_until(family_state(pids[WAITER]) == 'S');
}
