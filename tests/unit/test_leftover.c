/*
 * keeper/guard/leftover.c: a process is cut off from outside. What it had open for programs ends, the locks of its probes are
 * given back, and what is not its own stays. (A process that hangs in the kernel is in tests/cluster/test_keeper_dies.py and
 * tests/faults/; here it only sleeps, which makes no difference to what is done from outside.)
 */
#include "keeper/guard/supervise.h"

#include <poll.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "tests/unit/base_folder.h"
#include "tests/unit/wait_until.h"

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif

static char own_path[128], passed_path[128];
static int passed;     /* a program's description, with its lock */
static int connection; /* of a program; the other end is the keeper's */
static struct sockaddr_un address;
static pid_t keeper;

static int open_new(char path[128], const char *name)
{
	int fd;

	snprintf(path, 128, "%s/%s", base, name);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static void *sleep_on(void *arg)
{
	for (;;)
		pause();
	return arg;
}

/* The dead keeper: a listening socket, a connection, a probe's lock, and the descriptor that a program passed. */
static _Noreturn void be_keeper(void)
{
	int probe = open_new(own_path, "own"), listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	pthread_t thread;

	if (flock(probe, LOCK_EX | LOCK_NB) != 0 || bind(listener, (void *)&address, sizeof(address)) != 0 ||
	    listen(listener, 5) != 0 || pthread_create(&thread, NULL, sleep_on, NULL) != 0)
		_exit(1);
	suite_rest();
}

static void begin(void)
{
	int ends[2];

	base_make();
	snprintf(own_path, sizeof(own_path), "%s/own", base);
	address = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", base);
	passed = open_new(passed_path, "passed");
	ck_assert_int_eq(flock(passed, LOCK_EX | LOCK_NB), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	connection = ends[0];
	keeper = suite_fork();
	if (keeper == 0) {
		close(ends[0]);
		be_keeper();
	}
	close(ends[1]);
}

static void end(void)
{
	kill(keeper, SIGKILL);
	waitpid(keeper, NULL, 0);
	close(passed);
	close(connection);
	base_remove();
}
FIXTURE(begin, end)

/* Linux 6.9 */
static bool can_cut_off(void)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), PIDFD_THREAD);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static int connect_to_it(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (connect(fd, (void *)&address, sizeof(address)) == 0)
		return fd;
	close(fd);
	return -1;
}

static bool has_ended(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char c;

	return poll(&p, 1, 10000) == 1 && recv(fd, &c, 1, MSG_DONTWAIT) <= 0;
}

static bool is_free(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	bool got = flock(fd, LOCK_EX | LOCK_NB) == 0;

	close(fd);
	return got;
}

TEST(cut_off)
{
	int waits = connect_to_it();

	ck_assert_int_ge(waits, 0); /* not accepted */
	ck_assert(!is_free(own_path));
	leftover_leave(keeper);
	if (!can_cut_off())
		return; /* it has said so */
	ck_assert(has_ended(connection));
	ck_assert(has_ended(waits));
	ck_assert_int_eq(connect_to_it(), -1);
	ck_assert(is_free(own_path));
	ck_assert(!is_free(passed_path)); /* a program's */
	close(waits);
}

TEST(reaped_when_it_has_ended)
{
	leftover_leave(keeper);
	leftover_reap();
	ck_assert_int_eq(kill(keeper, 0), 0); /* it lives */
	kill(keeper, SIGKILL);
	wait_until((leftover_reap(), kill(keeper, 0)) == -1);
	ck_assert_int_eq(errno, ESRCH);
}

TEST(other_children_are_not_reaped)
{
	pid_t other = fork();
	siginfo_t info;

	if (other == 0)
		_exit(3);
	leftover_leave(keeper);
	ck_assert_int_eq(waitid(P_PID, (id_t)other, &info, WEXITED | WNOWAIT), 0);
	leftover_reap();
	ck_assert_int_eq(waitid(P_PID, (id_t)other, &info, WEXITED), 0);
	ck_assert_int_eq(info.si_status, 3);
}
