/*
 * keeper/guard/freezer.c: a lease that is lost while the holders of another one are being killed. Real processes that hold
 * locks; this process is their parent and the keeper's. The log is a hook: it says when the first holder is being killed.
 */
#include "keeper/guard/freezer.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/guard/table_notes.h"
#include "keeper/guard/table_text.h"
#include "keeper/kernel/family.h"
#include "keeper/log.h"
#include "tests/unit/base_folder.h"
#include "tests/unit/suite.h"
#include "tests/unit/wait_until.h"

#define HOLDERS 2

static int dir_fd;
static struct table table;
static struct freezer *freezer;
static uint32_t slots[HOLDERS];
static pid_t holders[HOLDERS];
static volatile uint64_t *ran; /* each holder counts */
static bool lose_second;       /* when the first one is said to be killed */

void log_debug(const char *format, ...)
{
	(void)format;
}

void log_event(enum event_kind kind, const char *format, ...)
{
	(void)kind, (void)format;
}

void log_process(enum event_kind kind, pid_t pid, const char *format, ...)
{
	(void)kind, (void)pid, (void)format;
}

void log_about(enum event_kind kind, const struct log_about *about, const char *format, ...)
{
	(void)about, (void)format;
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

static void hold(int n)
{
	const struct timespec pause = {.tv_nsec = 50000};
	int fd = file_open(n), ready[2];
	char byte;

	ck_assert_int_eq(pipe(ready), 0);
	holders[n] = fork();
	if (holders[n] == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fd);
		if (!freopen("/dev/null", "w", stderr)) /* which is told why it ends */
			_exit(1);
		if (flock(file_open(n), LOCK_EX) != 0 || write(ready[1], "r", 1) != 1)
			_exit(1);
		for (;; nanosleep(&pause, NULL))
			ran[n]++;
	}
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(fd);
}

static void take_slot(int n)
{
	const struct store_range all = {.space = WIRE_FLOCK, .mode = WIRE_EXCLUSIVE, .to = WIRE_EOF};
	struct table_lease lease = {.token = "0123456789abcdef0123456789abcdef",
				    .name = "n",
				    .path = "/n",
				    .range = all,
				    .on_lost = ON_LOST_FREEZE};
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
	ran = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert(ran != MAP_FAILED);
	ck_assert_int_eq(table_open(&table, dir_fd, why, sizeof(why)), 0);
	ck_assert_int_eq(table_text_open(&table), 0);
	freezer = freezer_new(&table);
	ck_assert_ptr_nonnull(freezer);
	freezer_keeper(freezer, -1);
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
	table_close(&table);
	close(dir_fd);
	base_remove();
}

/* The leases cannot be renewed: all holders are stopped, and the leases unsure. */
static void freeze_all(void)
{
	int64_t now = clock_now_ns();

	table_renewed(&table, now - NS_PER_MS, now + 200 * NS_PER_MS);
	for (int i = 0; i < HOLDERS; i++)
		table_doubt(&table, slots[i]);
	freezer_look(freezer, 1000);
	ck_assert_uint_eq(table_frozen(&table), HOLDERS);
}

/* The store has answered. */
static void renew(void)
{
	int64_t now = clock_now_ns();

	table_renewed(&table, now + 20000 * NS_PER_MS, now + 30000 * NS_PER_MS);
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

START_TEST(holders_go_on_when_all_leases_stand)
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
END_TEST

START_TEST(holders_of_a_lost_lease_are_killed_while_they_are_stopped)
{
	freeze_all();
	renew();
	for (int i = 0; i < HOLDERS; i++)
		table_lose(&table, slots[i], TABLE_WHY_TAKEN);
	ck_assert(!runs_before_it_is_killed(0));
	ck_assert(!runs_before_it_is_killed(1));
}
END_TEST

START_TEST(a_lease_that_is_lost_meanwhile_keeps_its_holders_stopped)
{
	freeze_all();
	renew();
	lose_second = true;
	table_lose(&table, slots[0], TABLE_WHY_TAKEN);
	ck_assert(!runs_before_it_is_killed(0));
	ck_assert(!runs_before_it_is_killed(1));
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("freezer");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, holders_go_on_when_all_leases_stand);
	tcase_add_test(tests, holders_of_a_lost_lease_are_killed_while_they_are_stopped);
	tcase_add_test(tests, a_lease_that_is_lost_meanwhile_keeps_its_holders_stopped);
	return suite_run_case("freezer", tests);
}
