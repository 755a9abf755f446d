/* first PREFIX COUNT [REST_US]: the latency of the first flock() of each of COUNT new files, PREFIX0, PREFIX1, ..., after a rest before
 * each. */
#include <limits.h>
#include <sys/file.h>

#include "bench/bench.h"

static double first_lock_ns(const char *prefix, long number, long rest_us)
{
	char path[PATH_MAX];
	double from, took;
	int fd;

	snprintf(path, sizeof(path), "%s%ld", prefix, number);
	fd = bench_open(path, O_RDWR | O_CREAT | O_EXCL);
	bench_rest(rest_us);
	bench_mark();
	from = bench_now_ns();
	if (flock(fd, LOCK_EX) != 0)
		bench_die("flock(LOCK_EX)");
	took = bench_now_ns() - from;
	bench_mark();
	close(fd);
	return took;
}

int main(int argc, char **argv)
{
	double *samples;
	long count;

	if (argc != 3 && argc != 4)
		bench_die("first PREFIX COUNT [REST_US]");
	count = bench_number(argv[2]);
	samples = bench_samples(count);
	for (long i = 0; i < count; i++)
		samples[i] = first_lock_ns(argv[1], i, argc == 4 ? bench_number(argv[3]) : 0);
	return bench_print(samples, count);
}
