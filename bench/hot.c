/*
 * hot FILE MS: locks and unlocks FILE in a tight loop for so long. Says "ready" and begins with the first line of its
 * standard input. Prints two numbers: how many pairs there were, and the longest time that one flock() took, in ns.
 */
#include <sys/file.h>

#include "bench/bench.h"

int main(int argc, char **argv)
{
	double results[2] = {0, 0}, begin, now;
	long ms;
	int fd;

	if (argc != 3)
		bench_die("hot FILE MS");
	fd = bench_open(argv[1], O_RDWR | O_CREAT);
	ms = bench_number(argv[2]);
	puts("ready");
	fflush(stdout);
	if (getchar() == EOF)
		bench_die("standard input");
	begin = now = bench_now_ns();
	while (now - begin < (double)ms * 1e6) {
		double before = now;

		if (flock(fd, LOCK_EX) != 0)
			bench_die("flock(LOCK_EX)");
		now = bench_now_ns();
		if (now - before > results[1])
			results[1] = now - before;
		if (flock(fd, LOCK_UN) != 0)
			bench_die("flock(LOCK_UN)");
		results[0]++;
	}
	return bench_print(results, 2);
}
