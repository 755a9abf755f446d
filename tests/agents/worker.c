/*
 * A worker: takes and leaves locks at random until its standard input ends, and writes down what it does.
 *
 *   worker KIND HOST SEED NB HOLD HISTORY FILE...
 *
 * KIND: flock, or record: OFD locks of the whole file, which also belong to the description. NB: how many of 100 calls
 * are LOCK_NB. HOLD: for how many µs at most a lock is held.
 *
 * It makes all kinds of calls: shared and exclusive, waiting, interrupted and LOCK_NB, conversions, the same
 * description again or a new one, and locks that live on in a child. Locks end by LOCK_UN, by close, by the child's
 * exit, or because a test kills the worker. HISTORY gets lines (O_APPEND, one write each; NS is CLOCK_MONOTONIC):
 *
 *   call NS HOST SEED N FILE MODE FLAG    before the call; MODE: shared, exclusive. FLAG: wait, nb
 *   got NS HOST SEED N FILE MODE          after it succeeded
 *   failed NS HOST SEED N FILE ERRNO      after it failed
 *   end NS HOST SEED N                    before the lock is left or converted: until here it was certain
 *
 * SEED and N name one lock, also where a child of the worker holds it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_MAX_US 1500
#define ALARM_MAX_US 5000

static const char *host;
static bool records;
static unsigned nonblocking, hold_us;
static int history = -1;
static unsigned long long seed;
static unsigned long number;
static uint64_t random_state;

static unsigned below(unsigned n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (random_state >> 11) % n;
}

static void fail(const char *what)
{
	fprintf(stderr, "worker %llu: %s: %s\n", seed, what, strerror(errno));
	exit(2);
}

__attribute__((format(printf, 2, 3))) static void note(const char *event, const char *format, ...)
{
	struct timespec t;
	char line[512];
	va_list args;
	int n;

	clock_gettime(CLOCK_MONOTONIC, &t);
	n = snprintf(line, sizeof(line), "%s %lld %s %llu %lu", event, t.tv_sec * 1000000000ll + t.tv_nsec, host, seed,
		     number);
	va_start(args, format);
	n += vsnprintf(line + n, sizeof(line) - n, format, args);
	va_end(args);
	if (n + 1 >= (int)sizeof(line))
		fail("a line that is too long");
	line[n] = '\n';
	if (write(history, line, n + 1) != n + 1)
		fail("the history");
}

static void spend(unsigned max_us)
{
	unsigned us = below(2) ? 0 : below(max_us);
	struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000l};

	nanosleep(&t, NULL);
}

static void on_alarm(int sig) {}

static void set_alarm(unsigned us)
{
	struct itimerval timer = {.it_value.tv_usec = us, .it_interval.tv_usec = us ? 1000 : 0};

	setitimer(ITIMER_REAL, &timer, NULL);
}

/* As flock(2). */
static int lock(int fd, int op)
{
	struct flock range = {.l_whence = SEEK_SET};

	if (!records)
		return flock(fd, op);
	range.l_type = op & LOCK_EX ? F_WRLCK : op & LOCK_SH ? F_RDLCK : F_UNLCK;
	return fcntl(fd, op & (LOCK_NB | LOCK_UN) ? F_OFD_SETLK : F_OFD_SETLKW, &range);
}

/* convert: it has the lock in some mode. Two that wait to make a shared record lock exclusive would wait for each other
 * for ever. */
static bool take(int fd, const char *file, bool exclusive, bool convert)
{
	bool nonblock = below(100) < nonblocking || (records && convert), interrupt = !nonblock && below(8) == 0;
	const char *mode = exclusive ? "exclusive" : "shared";
	int ret, err;

	number++;
	note("call", " %s %s %s", file, mode, nonblock ? "nb" : "wait");
	if (interrupt)
		set_alarm(1 + below(ALARM_MAX_US));
	ret = lock(fd, (exclusive ? LOCK_EX : LOCK_SH) | (nonblock ? LOCK_NB : 0));
	err = errno;
	if (ret == 0)
		note("got", " %s %s", file, mode);
	if (interrupt)
		set_alarm(0);
	if (ret == 0)
		return true;
	errno = err;
	note("failed", " %s %s", file, strerrorname_np(err));
	/* A conversion that failed may have lost the lock that it converted. */
	lock(fd, LOCK_UN);
	return false;
}

/* The lock lives on in a child, as in `flock -n 9` of a shell. */
static void leave_to_child(int fd)
{
	switch (fork()) {
	case -1:
		fail("fork");
		break;
	case 0:
		spend(hold_us);
		note("end", "%s", "");
		_exit(0);
	default:
		close(fd);
	}
}

/* Returns the description if it is still open, else -1. */
static int leave(int fd, const char *file)
{
	switch (below(8)) {
	case 0:
		leave_to_child(fd);
		return -1;
	case 1:
		note("end", "%s", "");
		close(fd);
		return -1;
	case 2:
	case 3:
		note("end", "%s", "");
		if (!take(fd, file, below(2), true))
			return fd;
		spend(hold_us);
	}
	note("end", "%s", "");
	lock(fd, LOCK_UN);
	return fd;
}

static bool told_to_stop(void)
{
	struct pollfd in = {.fd = 0, .events = POLLIN};

	return poll(&in, 1, 0) > 0;
}

int main(int argc, char **argv)
{
	int fd = -1, file = 0;

	if (argc < 8)
		return 2;
	records = strcmp(*++argv, "record") == 0;
	argc--;
	host = argv[1];
	seed = strtoull(argv[2], NULL, 10);
	random_state = (seed + 1) * 0x9e3779b97f4a7c15ull;
	nonblocking = atoi(argv[3]);
	hold_us = atoi(argv[4]);
	history = open(argv[5], O_WRONLY | O_APPEND | O_CLOEXEC);
	if (history < 0)
		fail(argv[5]);
	signal(SIGCHLD, SIG_IGN);
	sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm}, NULL);
	while (!told_to_stop()) {
		if (fd >= 0 && below(4) == 0) {
			close(fd);
			fd = -1;
		}
		if (fd < 0) {
			/* Most meet at the first file. */
			file = below(4) ? 6 : 6 + below(argc - 6);
			fd = open(argv[file], O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		}
		if (fd < 0)
			fail(argv[file]);
		const char *name = strrchr(argv[file], '/');
		if (take(fd, name ? name + 1 : argv[file], below(3) > 0, false)) {
			spend(hold_us);
			fd = leave(fd, name ? name + 1 : argv[file]);
		}
		spend(PAUSE_MAX_US);
	}
	return 0;
}
