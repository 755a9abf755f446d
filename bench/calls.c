/*
 * calls WHAT FILE BLOCKS BLOCK_US: what a call on FILE costs. Every sample is the mean of a block of calls that
 * takes about BLOCK_US, since one call may be shorter than reading the clock; with 0 it is a single call.
 */
#include <sys/file.h>

#include "bench/bench.h"

/* A call that neither the shim nor the filter of the net looks at. */
static void passed(int fd)
{
	(void)fd;
	syscall(SYS_getppid);
}

static void getfl(int fd)
{
	if (fcntl(fd, F_GETFL) < 0)
		bench_die("fcntl(F_GETFL)");
}

static void flock_pair(int fd)
{
	if (flock(fd, LOCK_EX) != 0)
		bench_die("flock(LOCK_EX)");
	if (flock(fd, LOCK_UN) != 0)
		bench_die("flock(LOCK_UN)");
}

static void set_record(int fd, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_len = 1};

	if (fcntl(fd, F_SETLK, &lock) != 0)
		bench_die("fcntl(F_SETLK)");
}

static void fcntl_pair(int fd)
{
	set_record(fd, F_WRLCK);
	set_record(fd, F_UNLCK);
}

static void getlk(int fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};

	if (fcntl(fd, F_GETLK, &lock) != 0)
		bench_die("fcntl(F_GETLK)");
}

static const struct {
	const char *name;
	void (*make)(int fd);
} calls[] = {
	{"getppid", passed}, {"getfl", getfl}, {"flock-pair", flock_pair}, {"fcntl-pair", fcntl_pair}, {"getlk", getlk},
};

static double block_ns(void (*make)(int fd), int fd, long count)
{
	double from = bench_now_ns();

	for (long i = 0; i < count; i++)
		make(fd);
	return bench_now_ns() - from;
}

/* How many calls fill a block. It also warms up what the first calls find cold. */
static long calls_per_block(void (*make)(int fd), int fd, double wanted_ns)
{
	long count = 1;

	make(fd);
	while (block_ns(make, fd, count) < wanted_ns)
		count *= 2;
	return count;
}

int main(int argc, char **argv)
{
	void (*make)(int fd) = NULL;
	double *samples;
	long blocks, count;
	int fd;

	if (argc != 5)
		bench_die("calls WHAT FILE BLOCKS BLOCK_US");
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		if (strcmp(argv[1], calls[i].name) == 0)
			make = calls[i].make;
	if (!make)
		bench_die("no such call");
	fd = bench_open(argv[2], O_RDWR | O_CREAT);
	blocks = bench_number(argv[3]);
	count = calls_per_block(make, fd, (double)bench_number(argv[4]) * 1e3);
	samples = bench_samples(blocks);
	for (long i = 0; i < blocks; i++)
		samples[i] = block_ns(make, fd, count) / (double)count;
	return bench_print(samples, blocks);
}
