/*
 * Runs under a lock that another program took (flock(1), a shell): writes down when it really ran, and adds one to a
 * number.
 *
 *   holder STAMPS SLOT COUNTER HOLD_US
 *
 * STAMPS is a file of records as tests/nemesis/stamps.py has them, which fills in the first half of record SLOT before
 * it starts the command; we fill in the rest. Until HOLD_US have passed, the time (CLOCK_BOOTTIME) is written into the
 * record again and again without a pause: a process that is stopped or dead writes none. At the end of an exclusive
 * lock the number at the beginning of COUNTER becomes one more than it was at the beginning; under a shared one it must
 * not have changed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ASKED = 1, RUNS, ENDED };

struct record {
	int64_t state, begun, exclusive, from, to;
	char name[16], how[16];
	int64_t pid, first, last, gap, intends, wrote, torn;
};
_Static_assert(sizeof(struct record) == 128, "as in stamps.py");

static void fail(const char *what)
{
	fprintf(stderr, "holder: %s: %s\n", what, strerror(errno));
	exit(3);
}

/* The true time, also under the preload that makes clocks wrong (tests/preload/clock.c). */
static int64_t now_ns(void)
{
	struct timespec t;

	syscall(SYS_clock_gettime, CLOCK_BOOTTIME, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static volatile struct record *map_record(const char *path, const char *slot)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	long page = sysconf(_SC_PAGESIZE), offset = strtol(slot, NULL, 10) * (long)sizeof(struct record);
	char *at;

	if (fd < 0)
		fail(path);
	at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset / page * page);
	if (at == MAP_FAILED)
		fail(path);
	close(fd);
	return (volatile struct record *)(at + offset % page);
}

static int64_t read_counter(int fd)
{
	int64_t value = 0;

	if (pread(fd, &value, sizeof(value), 0) < 0)
		fail("the counter");
	return value;
}

static void stamp(volatile struct record *r)
{
	int64_t now = now_ns(), gap = now - r->last;

	r->last = now;
	if (gap > r->gap)
		r->gap = gap;
}

int main(int argc, char **argv)
{
	int64_t value, end;
	int counter;

	if (argc != 5)
		return 2;
	volatile struct record *r = map_record(argv[1], argv[2]);
	counter = open(argv[3], O_RDWR | O_CLOEXEC);
	if (counter < 0)
		fail(argv[3]);
	r->pid = getpid();
	r->first = r->last = now_ns();
	r->state = RUNS;
	value = read_counter(counter);
	end = r->first + strtol(argv[4], NULL, 10) * 1000;
	do
		stamp(r);
	while (r->last < end);
	if (r->exclusive) {
		value++;
		r->intends = value;
		if (pwrite(counter, &value, sizeof(value), 0) != sizeof(value))
			fail("the counter");
		r->wrote = value;
	} else {
		r->torn = read_counter(counter) != value;
	}
	stamp(r);
	r->state = ENDED;
	return 0;
}
