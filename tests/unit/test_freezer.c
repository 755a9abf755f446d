/*
 * keeper/guard/freezer.c: a lease that is lost while the holders of another one are being killed. Real processes that hold
 * locks; this process is their parent and the keeper's. The log is a hook: it says when the first holder is being killed.
 */
#include "keeper/guard/freeze.h"

#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "keeper/clock.h"
#include "keeper/kernel/family.h"
#include "tests/unit/holders_fixture.h"
#include "tests/unit/wait_until.h"

static struct freeze *freezer;
static pid_t holders[HOLDERS];
static volatile uint64_t *ran; /* each holder counts */
static bool lose_second;       /* when the first one is said to be killed */

void log_process(enum event_kind kind, pid_t pid, const char *format, ...) {}

void log_about(enum event_kind kind, const struct log_about *about, const char *format, ...)
{
	if (lose_second && kind == EVENT_HOLDERS_KILLED)
		table_lose(&table, slots[1], TABLE_WHY_TAKEN);
}

static void hold(int n)
{
	const struct timespec pause = {.tv_nsec = 50000};
	int fd = file_open(n);

	holders[n] = suite_fork();
	if (holders[n] == 0) {
		close(fd);
		if (!freopen("/dev/null", "w", stderr)) /* which is told why it ends */
			_exit(1);
		if (flock(file_open(n), LOCK_EX) != 0)
			_exit(1);
		suite_ready();
		for (;; nanosleep(&pause, NULL))
			ran[n]++;
	}
	close(fd);
}

static void setup(void)
{
	holders_open();
	ran = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert(ran != MAP_FAILED);
	freezer = freeze_new(&table);
	ck_assert_ptr_nonnull(freezer);
	freeze_set_keeper(freezer, -1);
	for (int i = 0; i < HOLDERS; i++) {
		hold(i);
		take_slot(i);
	}
	lose_second = false;
}

static void teardown(void)
{
	for (int i = 0; i < HOLDERS; i++) {
		kill(holders[i], SIGKILL);
		waitpid(holders[i], NULL, __WALL);
	}
	holders_close();
}
FIXTURE(setup, teardown)

/* The leases cannot be renewed: all holders are stopped, and the leases unsure. */
static void freeze_all(void)
{
	int64_t now = clock_now_ns();

	table_renewed(&table, 0, now - NS_PER_MS, now + 20000 * NS_PER_MS);
	for (int i = 0; i < HOLDERS; i++)
		table_doubt(&table, slots[i]);
	freezer_look(freezer, 1000);
	ck_assert_uint_eq(table_frozen(&table), HOLDERS);
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
	uint64_t before = ran[n];

	for (int64_t end = clock_now_ns() + 20000 * NS_PER_MS; clock_now_ns() < end;) {
		siginfo_t info = {0};

		/* The freezer may have collected it. */
		if (waitid(P_PID, (id_t)holders[n], &info, WEXITED | WNOWAIT | WNOHANG | __WALL) < 0 || info.si_pid)
			return ran[n] != before;
		freezer_look(freezer, 1000);
		nanosleep(&(struct timespec){.tv_nsec = 5 * NS_PER_MS}, NULL);
	}
	ck_abort_msg("holder %d was not killed", n);
}

TEST(holders_go_on_when_all_leases_stand)
{
	uint64_t before;

	freeze_all();
	before = ran[0];
	renew();
	table_hold(&table, slots[0]);
	freezer_look(freezer, 1000);
	ck_assert_uint_eq(table_frozen(&table), HOLDERS); /* the other one is not confirmed */
	ck_assert_uint_eq(ran[0], before);
	table_hold(&table, slots[1]);
	freezer_look(freezer, 1000);
	ck_assert_uint_eq(table_frozen(&table), 0);
	wait_until(ran[0] != before);
}

/* A store is away for long, so that searches for its holders have no bound of their own; the other one will be due soon. */
TEST(a_search_ends_when_another_store_is_due)
{
	int64_t now = clock_now_ns(), soon = now + 60000 * NS_PER_MS;

	table_vacate(&table, slots[1]);
	take_slot_in(1, 1);
	table_renewed(&table, 0, now - 2 * NS_PER_MS, now - NS_PER_MS);
	table_renewed(&table, 1, soon, soon + 30000 * NS_PER_MS);
	freezer_look(freezer, 1000);
	ck_assert_uint_eq(table_frozen(&table), 1);
	ck_assert_int_eq(freezer->relying.until_ns, soon);
	table_renewed(&table, 0, now - 2 * NS_PER_MS, now + 30000 * NS_PER_MS);
	freezer_look(freezer, 1000);
	ck_assert_int_gt(freezer->relying.until_ns, now);
	ck_assert_int_lt(freezer->relying.until_ns, soon); /* its own bound comes first */
}

TEST(holders_of_a_lost_lease_are_killed_while_they_are_stopped)
{
	freeze_all();
	renew();
	for (int i = 0; i < HOLDERS; i++)
		table_lose(&table, slots[i], TABLE_WHY_TAKEN);
	ck_assert(!runs_before_it_is_killed(0));
	ck_assert(!runs_before_it_is_killed(1));
}

TEST(a_lease_that_is_lost_meanwhile_keeps_its_holders_stopped)
{
	freeze_all();
	renew();
	lose_second = true;
	table_lose(&table, slots[0], TABLE_WHY_TAKEN);
	ck_assert(!runs_before_it_is_killed(0));
	ck_assert(!runs_before_it_is_killed(1));
}
