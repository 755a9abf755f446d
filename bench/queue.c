/*
 * queue FILE SHARED COUNT HOLD_US: waits for the lock, keeps it for HOLD_US, gives it to the next one in the queue,
 * COUNT times, with others that do the same on other hosts. A sample is the time from the unlock of whoever had it
 * before to the return of flock(). SHARED is a file where the time of the last unlock stands. Says "ready"; begins with
 * the first line of its standard input.
 */
#include <sys/file.h>
#include <sys/mman.h>

#include "bench/bench.h"

struct last {
	double at_ns;
	pid_t by;
};

int main(int argc, char **argv)
{
	double *samples;
	volatile struct last *last;
	long count, taken = 0, hold_us;
	int fd;

	if (argc != 5)
		bench_die("queue FILE SHARED COUNT HOLD_US");
	count = bench_number(argv[3]);
	hold_us = bench_number(argv[4]);
	samples = bench_samples(count);
	last = mmap(NULL, sizeof(*last), PROT_READ | PROT_WRITE, MAP_SHARED, bench_open(argv[2], O_RDWR), 0);
	if (last == MAP_FAILED)
		bench_die(argv[2]);
	fd = bench_open(argv[1], O_RDWR | O_CREAT);
	puts("ready");
	fflush(stdout);
	if (getchar() == EOF)
		bench_die("standard input");
	for (long i = 0; i < count; i++) {
		double called = bench_now_ns(), now;

		if (flock(fd, LOCK_EX) != 0)
			bench_die("flock(LOCK_EX)");
		now = bench_now_ns();
		/* Else nobody waited, or it came too late to be handed over to. */
		if (last->by && last->by != getpid() && called < last->at_ns)
			samples[taken++] = now - last->at_ns;
		bench_rest(hold_us);
		last->by = getpid();
		last->at_ns = bench_now_ns();
		if (flock(fd, LOCK_UN) != 0)
			bench_die("flock(LOCK_UN)");
	}
	return bench_print(samples, taken);
}
