/* hold PREFIX COUNT: locks PREFIX0, PREFIX1, ..., says "held", and keeps them until its standard input ends. */
#include <limits.h>
#include <sys/file.h>

#include "bench/bench.h"

int main(int argc, char **argv)
{
	char path[PATH_MAX], byte;
	long count;

	if (argc != 3)
		bench_die("hold PREFIX COUNT");
	count = bench_number(argv[2]);
	for (long i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s%ld", argv[1], i);
		if (flock(bench_open(path, O_RDWR | O_CREAT), LOCK_EX) != 0)
			bench_die("flock(LOCK_EX)");
	}
	puts("held");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return EXIT_SUCCESS;
}
