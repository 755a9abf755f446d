/*
 * keeper/guard/freezer.c: real processes that hold locks; this process is their parent and the keeper's. The log is a hook: it says what
 * the parent is about to do. A table has leases for files 0 and 1 of a folder.
 */
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "keeper/clock.h"
#include "keeper/guard/farewell.h"
#include "keeper/guard/freeze.h"
#include "keeper/guard/table.h"
#include "keeper/guard/table_text.h"
#include "tests/unit/base_folder.h"
#include "tests/unit/pass_fd.h"
#include "tests/unit/wait_until.h"

#define PATIENCE_NS (20000 * NS_PER_MS) /* on a machine with too much to do */

static unsigned vain; /* so many times */

static bool vain_freeze_until(struct freeze *f, struct family *family, unsigned which, int64_t patient_ns,
			      int64_t until_ns)
{
	bool done = freeze_until(f, family, which, patient_ns, until_ns + PATIENCE_NS);

	return vain ? vain--, false : done;
}

static unsigned late; /* so many times there is not enough time for the line */
static bool line_written;

static bool late_farewell(struct table *t, const struct family *family, enum farewell_end how, bool last)
{
	line_written = !late || last;
	return late ? late--, false : true;
}

#define freeze_until vain_freeze_until
#define farewell     late_farewell
#pragma GCC diagnostic ignored "-Wshadow" /* of names there by names here */
#include "keeper/guard/freezer.c"

#define FILES     2
#define REPRIEVES 10  /* as often as it is put off */
#define PATIENCE  300 /* looks */

/* Shared with the processes. */
static struct shared {
	volatile uint64_t ran[FILES]; /* each holder counts */
	volatile bool heir_may, heir_has;
} * shared;

static int dir_fd;
static struct table table;
static uint32_t slots[FILES];
static struct freeze freeze;
static pid_t started[4], heir;
static unsigned started_count;
static bool lose_second; /* when the first holder is said to be killed */

void log_debug(const char *format, ...) {}
void log_event(enum event_kind kind, const char *format, ...) {}

/* The holder is about to be killed: the heir receives the descriptor. */
void log_process(enum event_kind kind, pid_t pid, const char *format, ...)
{
	if (kind != LINE_PROCESS_KILLED || !heir || pid == heir)
		return;
	shared->heir_may = true;
	wait_until(shared->heir_has);
}

void log_about(enum event_kind kind, const struct log_about *about, const char *format, ...)
{
	if (lose_second && kind == EVENT_HOLDERS_KILLED)
		table_lose(&table, slots[1], TABLE_WHY_TAKEN);
}

static int file_open(int n)
{
	char name[2] = {(char)('0' + n), '\0'};
	int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static enum on_lost on_lost; /* ON_LOST_FREEZE */

static void take_slot(int n, unsigned member)
{
	const struct store_range all = {.space = WIRE_FLOCK, .mode = WIRE_EXCLUSIVE, .to = WIRE_EOF};
	struct table_lease lease = {.token = "0123456789abcdef0123456789abcdef",
				    .name = "n",
				    .path = "/n",
				    .range = all,
				    .member = member,
				    .on_lost = on_lost};
	int fd = file_open(n);
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	lease.file.dev = st.st_dev;
	lease.file.ino = st.st_ino;
	ck_assert_int_eq(table_ask(&table, &lease, &slots[n]), 0);
	table_grant(&table, slots[n], 1, &all, &lease.file);
	close(fd);
}

static void setup(void)
{
	char why[256];

	base_make();
	dir_fd = base_open();
	ck_assert_int_eq(table_open(&table, dir_fd, why, sizeof(why)), 0);
	ck_assert_int_eq(table_text_open(&table), 0);
	freeze_init(&freeze, &table);
	freeze_set_keeper(&freeze, -1);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
}

static void teardown(void)
{
	for (unsigned i = 0; i < started_count; i++) {
		kill(-started[i], SIGKILL);
		waitpid(started[i], NULL, __WALL);
	}
	table_close(&table);
	close(dir_fd);
	base_remove();
}
FIXTURE(setup, teardown)

/* fork(), as suite_fork(); a killed process is told on its standard error why it ends. */
static pid_t start(void)
{
	pid_t pid = suite_fork();

	if (pid)
		started[started_count++] = pid;
	else if (setpgid(0, 0) != 0 || !freopen("/dev/null", "w", stderr))
		_exit(1);
	return pid;
}

static int locked(int n)
{
	int fd = file_open(n);

	if (flock(fd, LOCK_EX) != 0)
		_exit(1);
	return fd;
}

static bool runs_on(pid_t pid)
{
	char state = family_state(pid);

	return state && state != 'Z' && state != 'X';
}

static bool is_free(void) { return !slots_any(&table, SLOTS_IN(TABLE_LOST) | SLOTS_IN(TABLE_ENDING)); }

/* A machine with too much to do may be late, too. */
static void end_lost_until_free(void)
{
	for (int i = 0; i < PATIENCE && !is_free(); i++)
		freezer_end_lost(&freeze);
	ck_assert(is_free());
}

/*
 * --- holders that are not stopped in time, and a lock that goes on to another process while they are killed ---
 *
 * The race: the time for stopping is over, and the parent kills what it has found; a process that it has not found gets the
 * descriptor, and with it the lock. Nothing may free the slot then: the keeper would release the lease, and another host would
 * have the lock together with that process. Here the holder has sent its descriptor to an heir, which receives it at the moment at
 * which the holder is said to be killed. That the time is over is what the test says.
 */
static pid_t holder_with_heir(void)
{
	pid_t holder;
	int way[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, way), 0);
	heir = start();
	if (heir == 0) {
		suite_ready();
		wait_until(shared->heir_may);
		shared->heir_has = receive_fd(way[1]) >= 0;
		for (;;)
			pause();
	}
	holder = start();
	if (holder == 0) {
		if (!pass_fd(way[0], locked(0)))
			_exit(1);
		suite_rest();
	}
	close(way[0]);
	close(way[1]);
	take_slot(0, 0);
	return holder;
}

TEST(a_broken_lease_is_not_free_before_all_holders_were_found)
{
	pid_t holder = holder_with_heir();

	table_lose(&table, slots[0], TABLE_WHY_BROKEN);
	vain = REPRIEVES + 1;
	for (int i = 0; i < REPRIEVES; i++) {
		freezer_end_lost(&freeze);
		ck_assert(runs_on(holder)); /* so that it gets its line */
		ck_assert(!is_free());
	}
	freezer_end_lost(&freeze);
	wait_until(!runs_on(holder));
	ck_assert(runs_on(heir));
	ck_assert(!is_free());
	end_lost_until_free();
	wait_until(!runs_on(heir));
}

/* The lease may be another host's: the kill does not wait for those that were not found. */
TEST(holders_of_a_lost_lease_are_killed_at_once)
{
	pid_t holder = holder_with_heir();

	table_lose(&table, slots[0], TABLE_WHY_TAKEN);
	vain = 1;
	freezer_end_lost(&freeze);
	wait_until(!runs_on(holder));
	ck_assert(is_free());
}

/* It is stopped, and relies on nothing. But the kill does not wait for ever. */
TEST_EACH(the_kill_waits_for_the_line, 2)
{
	const int times = _i ? REPRIEVES : 2;
	pid_t holder = holder_with_heir();

	table_lose(&table, slots[0], TABLE_WHY_TAKEN);
	late = _i ? REPRIEVES + 1 : 2;
	for (int i = 0; i < times; i++) {
		freezer_end_lost(&freeze);
		ck_assert(runs_on(holder) && family_is_held(holder));
		ck_assert(!is_free() && !line_written);
	}
	freezer_end_lost(&freeze);
	wait_until(!runs_on(holder));
	ck_assert(is_free() && line_written);
}

/* --- calls under way (underway.h) --- */

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

/* A process that waits in vfork() cannot be stopped, as if it were in the middle of its lock call: its child does not end. */
static void be_stuck(void)
{
	pid_t pid = vfork();

	if (pid == 0)
		for (;;)
			pause();
	_exit(1);
}

/* A lease is lost while one process holds the lock, another waits for it in the kernel, and a third cannot be stopped. */
TEST(of_calls_under_way_who_may_have_the_lock_is_killed)
{
	enum { HOLDER, WAITER, STUCK, PROCESSES };
	pid_t pids[PROCESSES];

	take_slot(0, 0);
	for (int i = 0; i < PROCESSES; i++) {
		pids[i] = start();
		if (pids[i] == 0) {
			if (i == HOLDER)
				locked(0);
			suite_ready();
			if (i == STUCK)
				be_stuck();
			if (i == WAITER)
				locked(0);
			for (;;)
				pause();
		}
		wait_until(family_state(pids[i]) == (i == STUCK ? 'D' : 'S'));
		note(pids[i]);
	}
	table_lose(&table, slots[0], TABLE_WHY_TAKEN);
	end_lost_until_free();
	wait_until(!runs_on(pids[HOLDER]));
	wait_until(!runs_on(pids[STUCK]));
	wait_until(family_is_stopped(pids[WAITER])); /* it stops when it next runs */
	ck_assert(runs_on(pids[WAITER]));
	/* Its call begins anew: what it does then, its net says. */
	freeze_thaw(&freeze, 0);
	wait_until(family_state(pids[WAITER]) == 'S');
}

/* --- a lease that is lost while the holders of another one are being killed --- */

static void hold_all(unsigned other_store)
{
	const struct timespec pause = {.tv_nsec = 50000};

	for (int i = 0; i < FILES; i++) {
		if (start() == 0) {
			locked(i);
			suite_ready();
			for (;; nanosleep(&pause, NULL))
				shared->ran[i]++;
		}
		take_slot(i, i * other_store);
	}
}

/* The leases cannot be renewed: all holders are stopped, and the leases unsure. */
static void freeze_all(void)
{
	int64_t now;

	hold_all(0);
	now = clock_now_ns();
	table_renewed(&table, 0, now - NS_PER_MS, now + 20000 * NS_PER_MS);
	for (int i = 0; i < FILES; i++)
		table_doubt(&table, slots[i]);
	freezer_look(&freeze, 1000);
	ck_assert_uint_eq(table_frozen(&table), FILES);
}

/* The store has answered. */
static void renew(void)
{
	int64_t now = clock_now_ns();

	table_renewed(&table, 0, now + 20000 * NS_PER_MS, now + 30000 * NS_PER_MS);
}

/* Looks until the process has ended, and says whether it ran meanwhile. */
static bool runs_before_it_is_killed(int n)
{
	uint64_t before = shared->ran[n];

	for (int64_t end = clock_now_ns() + PATIENCE_NS; clock_now_ns() < end;) {
		siginfo_t info = {0};

		/* The freezer may have collected it. */
		if (waitid(P_PID, (id_t)started[n], &info, WEXITED | WNOWAIT | WNOHANG | __WALL) < 0 || info.si_pid)
			return shared->ran[n] != before;
		freezer_look(&freeze, 1000);
		nanosleep(&(struct timespec){.tv_nsec = 5 * NS_PER_MS}, NULL);
	}
	ck_abort_msg("holder %d was not killed", n);
}

TEST(holders_go_on_when_all_leases_stand)
{
	uint64_t before;

	freeze_all();
	before = shared->ran[0];
	renew();
	table_hold(&table, slots[0]);
	freezer_look(&freeze, 1000);
	ck_assert_uint_eq(table_frozen(&table), FILES); /* the other one is not confirmed */
	ck_assert_uint_eq(shared->ran[0], before);
	table_hold(&table, slots[1]);
	freezer_look(&freeze, 1000);
	ck_assert_uint_eq(table_frozen(&table), 0);
	wait_until(shared->ran[0] != before);
}

/* A store is away for long, so that searches for its holders have no bound of their own; the other one will be due soon. */
TEST(a_search_ends_when_another_store_is_due)
{
	int64_t now = clock_now_ns(), soon = now + 60000 * NS_PER_MS;

	hold_all(1);
	table_renewed(&table, 0, now - 2 * NS_PER_MS, now - NS_PER_MS);
	table_renewed(&table, 1, soon, soon + 30000 * NS_PER_MS);
	freezer_look(&freeze, 1000);
	ck_assert_uint_eq(table_frozen(&table), 1);
	ck_assert_int_eq(freeze.relying.until_ns, soon);
	table_renewed(&table, 0, now - 2 * NS_PER_MS, now + 30000 * NS_PER_MS);
	freezer_look(&freeze, 1000);
	ck_assert_int_gt(freeze.relying.until_ns, now);
	ck_assert_int_lt(freeze.relying.until_ns, soon); /* its own bound comes first */
}

TEST_EACH(holders_of_lost_leases_are_killed_while_they_are_stopped, 2)
{
	freeze_all();
	renew();
	lose_second = _i; /* meanwhile */
	for (int i = 0; i < (_i ? 1 : FILES); i++)
		table_lose(&table, slots[i], TABLE_WHY_TAKEN);
	for (int i = 0; i < FILES; i++)
		ck_assert(!runs_before_it_is_killed(i));
}

/* Lines were written since the search, and a number may be another process's by now. */
TEST_EACH(a_number_of_another_process, 2)
{
	struct procfs_stat stat;
	struct family family = {0};
	int status;

	if (start() == 0) {
		signal(SIGTERM, SIG_DFL); /* Check's own */
		suite_rest();
	}
	ck_assert(family_stat(started[0], &stat));
	stat.started -= (unsigned)_i;
	family_add(&family, started[0]);
	family_add_descendants_of(&family, 0, &stat, 1);
	freeze_signal(&family, SIGTERM);
	if (_i)
		ck_assert_int_eq(kill(started[0], SIGUSR1), 0);
	ck_assert_int_eq(waitpid(started[0], &status, 0), started[0]);
	ck_assert_int_eq(WTERMSIG(status), _i ? SIGUSR1 : SIGTERM);
	family_free(&family);
}

/* --- on_lost = "kill" --- */

static void on_told(int number) { shared->ran[0]++; }

/* It was asked to end. */
static void wait_until_told(uint64_t times) { wait_until((freezer_look(&freeze, 1000), shared->ran[0] == times)); }

static pid_t obstinate(void)
{
	pid_t pid;

	on_lost = ON_LOST_KILL;
	pid = start();
	if (pid == 0) {
		signal(SIGTERM, on_told);
		locked(0);
		suite_rest();
	}
	take_slot(0, 0);
	return pid;
}

static void be_due(unsigned member, int64_t since_ms, int64_t left_ms)
{
	int64_t now = clock_now_ns();

	table_renewed(&table, member, now - since_ms * NS_PER_MS, now + left_ms * NS_PER_MS);
}

/* Another store is away for all that time. */
TEST(a_holder_is_asked_to_end_in_each_outage)
{
	pid_t holder = obstinate();

	on_lost = ON_LOST_FREEZE;
	take_slot(1, 1);
	be_due(1, 1000, 100000);
	for (uint64_t times = 1; times <= 2; times++) {
		be_due(0, 0, 100000);
		wait_until_told(times);
		be_due(0, -100000, 200000);
		freezer_look(&freeze, 1000);
	}
	ck_assert(runs_on(holder));
}

/* A job whose holder has obeyed. The keeper may have given the lease back meanwhile, since no process has the lock. */
TEST_EACH(what_an_ended_holder_has_started_is_killed, 2)
{
	int way[2];
	pid_t job;

	ck_assert_int_eq(pipe2(way, O_CLOEXEC), 0);
	on_lost = ON_LOST_KILL;
	if (start() == 0) {
		signal(SIGTERM, SIG_DFL); /* Check's own */
		job = fork();
		if (job == 0) {
			signal(SIGTERM, on_told);
			signal(SIGALRM, SIG_DFL); /* Check's own, too */
			alarm(60);                /* also if the test fails; nobody waits for its output */
			close(STDOUT_FILENO);
			for (;;)
				pause();
		}
		locked(0);
		if (write(way[1], &job, sizeof(job)) != sizeof(job))
			_exit(1);
		suite_rest();
	}
	ck_assert_int_eq(read(way[0], &job, sizeof(job)), sizeof(job));
	take_slot(0, 0);
	be_due(0, 0, 100000);
	wait_until_told(1);
	wait_until(!runs_on(started[0]));
	if (_i) {
		table_return(&table, slots[0]);
		freezer_look(&freeze, 1000);
	}
	ck_assert(runs_on(job));
	be_due(0, 1000, 500);
	wait_until((freezer_look(&freeze, 1000), !runs_on(job)));
}
