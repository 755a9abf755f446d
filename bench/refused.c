/* refused FILE COUNT: how long flock(LOCK_EX | LOCK_NB) takes to say that somebody else has the lock. */
#include <sys/file.h>

#include "bench/bench.h"

int main(int argc, char **argv)
{
	double *samples, from;
	long count;
	int fd;

	if (argc != 3)
		bench_die("refused FILE COUNT");
	fd = bench_open(argv[1], O_RDWR | O_CREAT);
	count = bench_number(argv[2]);
	samples = bench_samples(count);
	for (long i = 0; i < count; i++) {
		from = bench_now_ns();
		if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
			errno = 0;
			bench_die("the lock was free");
		}
		samples[i] = bench_now_ns() - from;
		if (errno != EWOULDBLOCK)
			bench_die("flock(LOCK_EX | LOCK_NB)");
	}
	return bench_print(samples, count);
}
