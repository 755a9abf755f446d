/*
 * keeper/guard/freezer.c: holders that are not stopped in time, and a lock that goes on to another process while they are killed.
 *
 * The race: the time for stopping is over, and the parent kills what it has found; a process that it has not found gets the
 * descriptor, and with it the lock. Nothing may free the slot then: the keeper would release the lease, and another host would
 * have the lock together with that process. Here the holder has sent its descriptor to an heir, and the log is a hook: at the
 * moment at which the holder is said to be killed, the heir receives it. That the time is over is what the test says.
 */
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "keeper/guard/farewell.h"
#include "keeper/guard/freeze.h"
#include "tests/unit/holders_fixture.h"
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
#pragma GCC diagnostic ignored "-Wshadow" /* of the fixture's names by its own */
#include "keeper/guard/freezer.c"

#define REPRIEVES 10  /* as often as it is put off */
#define PATIENCE  300 /* looks */

static struct freeze freeze;
static pid_t holder, heir;
static int to_heir, from_heir;

/* The holder is about to be killed: the heir receives the descriptor. */
void log_process(enum event_kind kind, pid_t pid, const char *format, ...)
{
	char byte;

	if (kind != LINE_PROCESS_KILLED || pid != holder)
		return;
	ck_assert_int_eq(write(to_heir, "n", 1), 1);
	ck_assert_int_eq(read(from_heir, &byte, 1), 1);
}

void log_about(enum event_kind kind, const struct log_about *about, const char *format, ...) {}

static pid_t start(void)
{
	pid_t pid = fork();

	if (pid == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) || !freopen("/dev/null", "w", stderr)))
		_exit(1);
	return pid;
}

static void pass(int to, int fd)
{
	struct iovec iov = {.iov_base = "d", .iov_len = 1};
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
	struct msghdr message = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};

	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	if (sendmsg(to, &message, 0) != 1)
		_exit(1);
}

static void receive(int from)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	struct msghdr message = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};

	if (recvmsg(from, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
		_exit(1);
}

static void setup(void)
{
	int way[2], said[2], told[2];
	char byte;

	holders_open();
	freeze_init(&freeze, &table);
	freeze_set_keeper(&freeze, -1);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, way), 0);
	ck_assert_int_eq(pipe2(said, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(told, O_CLOEXEC), 0);
	heir = start();
	if (heir == 0) {
		if (read(told[0], &byte, 1) != 1)
			_exit(1);
		receive(way[1]);
		if (write(said[1], "r", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	holder = start();
	if (holder == 0) {
		int fd = file_open(0);

		if (flock(fd, LOCK_EX) != 0)
			_exit(1);
		pass(way[0], fd);
		if (write(said[1], "h", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(way[0]);
	close(way[1]);
	close(said[1]);
	close(told[0]);
	to_heir = told[1];
	from_heir = said[0];
	ck_assert_int_eq(read(from_heir, &byte, 1), 1);
	take_slot(0);
}

static void teardown(void)
{
	for (int i = 0; i < 2; i++) {
		kill(i ? heir : holder, SIGKILL);
		waitpid(i ? heir : holder, NULL, __WALL);
	}
	close(to_heir);
	close(from_heir);
	holders_close();
}
FIXTURE(setup, teardown)

static bool runs_on(pid_t pid)
{
	char state = family_state(pid);

	return state && state != 'Z' && state != 'X';
}

static bool is_free(void) { return !slots_any(&table, SLOTS_IN(TABLE_LOST) | SLOTS_IN(TABLE_ENDING)); }

TEST(a_broken_lease_is_not_free_before_all_holders_were_found)
{
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
	for (int i = 0; i < PATIENCE && !is_free(); i++) /* a machine with too much to do may be late, too */
		freezer_end_lost(&freeze);
	wait_until(!runs_on(heir));
	ck_assert(is_free());
}

/* The lease may be another host's: the kill does not wait for those that were not found. */
TEST(holders_of_a_lost_lease_are_killed_at_once)
{
	table_lose(&table, slots[0], TABLE_WHY_TAKEN);
	vain = 1;
	freezer_end_lost(&freeze);
	wait_until(!runs_on(holder));
	ck_assert(is_free());
}

/* It is stopped, and relies on nothing. */
TEST(the_kill_waits_for_the_line)
{
	table_lose(&table, slots[0], TABLE_WHY_TAKEN);
	late = 2;
	for (int i = 0; i < 2; i++) {
		freezer_end_lost(&freeze);
		ck_assert(runs_on(holder) && family_is_held(holder));
		ck_assert(!is_free() && !line_written);
	}
	freezer_end_lost(&freeze);
	wait_until(!runs_on(holder));
	ck_assert(is_free() && line_written);
}

TEST(but_not_for_ever)
{
	table_lose(&table, slots[0], TABLE_WHY_TAKEN);
	late = REPRIEVES + 1;
	for (int i = 0; i < REPRIEVES; i++) {
		freezer_end_lost(&freeze);
		ck_assert(runs_on(holder) && !line_written);
	}
	freezer_end_lost(&freeze);
	wait_until(!runs_on(holder));
	ck_assert(is_free() && line_written);
}
