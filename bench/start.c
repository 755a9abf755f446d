/* start COUNT PROGRAM [WORD...]: from starting PROGRAM with these words, in this program's own environment, to having waited for its end. */
#include <spawn.h>
#include <sys/wait.h>

#include "bench/bench.h"

static double start_ns(char *const argv[])
{
	double from = bench_now_ns();
	int status;
	pid_t pid;

	errno = posix_spawn(&pid, argv[0], NULL, NULL, argv, environ);
	if (errno)
		bench_die(argv[0]);
	if (waitpid(pid, &status, 0) != pid)
		bench_die("waitpid");
	errno = 0;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		bench_die("the program has failed");
	return bench_now_ns() - from;
}

int main(int argc, char **argv)
{
	double *samples;
	long count;

	if (argc < 3)
		bench_die("start COUNT PROGRAM [WORD...]");
	count = bench_number(argv[1]);
	samples = bench_samples(count);
	for (long i = 0; i < count; i++)
		samples[i] = start_ns(argv + 2);
	return bench_print(samples, count);
}
