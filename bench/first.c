/* first PREFIX COUNT: the latency of the first flock() of each of COUNT new files, PREFIX0, PREFIX1, ... */
#include <limits.h>
#include <sys/file.h>

#include "bench/bench.h"

static double first_lock_ns(const char *prefix, long number)
{
	char path[PATH_MAX];
	double from, took;
	int fd;

	snprintf(path, sizeof(path), "%s%ld", prefix, number);
	fd = bench_open(path, O_RDWR | O_CREAT | O_EXCL);
	from = bench_now_ns();
	if (flock(fd, LOCK_EX) != 0)
		bench_die("flock(LOCK_EX)");
	took = bench_now_ns() - from;
	close(fd);
	return took;
}

int main(int argc, char **argv)
{
	double *samples;
	long count;

	if (argc != 3)
		bench_die("first PREFIX COUNT");
	count = bench_number(argv[2]);
	samples = bench_samples(count);
	for (long i = 0; i < count; i++)
		samples[i] = first_lock_ns(argv[1], i);
	return bench_print(samples, count);
}
