/*
 * crowd NUMBER one|own PATH TIMES WORK_US: so many programs at a time. A sample is what one lock takes, as a share of the
 * time of all, in ns; there is only one.
 *
 * one: all lock the same file, PATH, TIMES times each, and work for WORK_US under the lock. Measured from when all are
 *      ready until all have done it.
 * own: each locks a file of its own, PATH0, PATH1, ... Measured from the start of the first program until the end of the
 *      last: what a machine does that starts many jobs at a time.
 *
 * crowd PATH TIMES WORK_US READY START: one of them. It writes a byte to descriptor READY, waits for the end of START,
 * and writes another byte to READY when it has done its work. READY "-": it begins at once.
 */
#include <limits.h>
#include <spawn.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "bench/bench.h"

static void work(double us)
{
	double until = bench_now_ns() + us * 1e3;

	while (us > 0 && bench_now_ns() < until)
		;
}

static void say(int ready)
{
	if (ready >= 0 && write(ready, "", 1) != 1)
		bench_die("the others have ended");
}

static int member(char **argv)
{
	int fd = bench_open(argv[1], O_RDWR | O_CREAT), ready = strcmp(argv[4], "-") == 0 ? -1 : atoi(argv[4]);
	long times = bench_number(argv[2]), us = bench_number(argv[3]);
	char byte;

	say(ready);
	if (ready >= 0 && read(atoi(argv[5]), &byte, 1) != 0)
		bench_die("no start");
	for (long i = 0; i < times; i++) {
		if (flock(fd, LOCK_EX) != 0)
			bench_die("flock(LOCK_EX)");
		work((double)us);
		if (flock(fd, LOCK_UN) != 0)
			bench_die("flock(LOCK_UN)");
	}
	say(ready);
	return 0;
}

static void hear(int ready, long number)
{
	char bytes[256];
	ssize_t n;

	for (; number > 0; number -= n) {
		n = read(ready, bytes, number < 256 ? (size_t)number : sizeof(bytes));
		if (n <= 0)
			bench_die("a program has ended");
	}
}

static pid_t start(char *self, const char *path, char **argv, int ready, int gate)
{
	char ready_word[16] = "-", gate_word[16] = "-";
	char *words[] = {self, (char *)path, argv[4], argv[5], ready_word, gate_word, NULL};
	pid_t pid;

	if (ready >= 0) {
		snprintf(ready_word, sizeof(ready_word), "%d", ready);
		snprintf(gate_word, sizeof(gate_word), "%d", gate);
	}
	errno = posix_spawn(&pid, self, NULL, NULL, words, environ);
	if (errno)
		bench_die(self);
	return pid;
}

static void reap(long number)
{
	bool failed = false;
	int status;

	for (long i = 0; i < number; i++) {
		if (wait(&status) < 0)
			bench_die("wait");
		failed |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
	}
	errno = 0;
	if (failed)
		bench_die("a program has failed");
}

static double of_one_file(char **argv, long number)
{
	int ready[2], gate[2];
	double from, took;

	if (pipe(ready) != 0 || pipe(gate) != 0 || fcntl(gate[1], F_SETFD, FD_CLOEXEC) != 0 ||
	    fcntl(ready[0], F_SETFD, FD_CLOEXEC) != 0)
		bench_die("pipe");
	for (long i = 0; i < number; i++)
		start(argv[0], argv[3], argv, ready[1], gate[0]);
	close(ready[1]);
	hear(ready[0], number);
	from = bench_now_ns();
	close(gate[1]);
	hear(ready[0], number);
	took = bench_now_ns() - from;
	reap(number);
	return took / (double)number / (double)bench_number(argv[4]);
}

static double of_own_files(char **argv, long number)
{
	double from = bench_now_ns();
	char path[PATH_MAX];

	for (long i = 0; i < number; i++) {
		snprintf(path, sizeof(path), "%s%ld", argv[3], i);
		start(argv[0], path, argv, -1, -1);
	}
	reap(number);
	return (bench_now_ns() - from) / (double)number;
}

int main(int argc, char **argv)
{
	double sample;
	long number;

	if (argc == 6 && strcmp(argv[2], "one") != 0 && strcmp(argv[2], "own") != 0)
		return member(argv);
	if (argc != 6)
		bench_die("crowd NUMBER one|own PATH TIMES WORK_US");
	number = bench_number(argv[1]);
	sample = strcmp(argv[2], "one") == 0 ? of_one_file(argv, number) : of_own_files(argv, number);
	return bench_print(&sample, 1);
}
