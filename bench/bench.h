/*
 * What the measuring programs share. Each prints its samples on standard output, one a line, in nanoseconds, after
 * the last one was taken, and nothing else; if it cannot measure it says why on standard error and exits with 1.
 */
#ifndef DFLOCK_BENCH_BENCH_H
#define DFLOCK_BENCH_BENCH_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline double bench_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

/* Says what failed, with errno's text if errno is set, and ends. */
static inline void __attribute__((noreturn)) bench_die(const char *what)
{
	fprintf(stderr, "%s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
	exit(EXIT_FAILURE);
}

/* A whole number from the command line. */
static inline long bench_number(const char *word)
{
	char *end;
	long value = strtol(word, &end, 10);

	if (!*word || *end || value < 0) {
		fprintf(stderr, "not a number: %s\n", word);
		exit(EXIT_FAILURE);
	}
	return value;
}

static inline int bench_open(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);

	if (fd < 0)
		bench_die(path);
	return fd;
}

/* Room for `count` samples, touched already: page faults are not what is measured. Never freed. */
static inline double *bench_samples(long count)
{
	double *samples = malloc((size_t)count * sizeof(*samples));

	if (!samples)
		bench_die("samples");
	for (long i = 0; i < count; i++)
		samples[i] = -1;
	return samples;
}

static inline int bench_print(const double *samples, long count)
{
	for (long i = 0; i < count; i++)
		printf("%.1f\n", samples[i]);
	return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Marks the begin or the end of what is measured for bench/tracing.py: a system call that nothing traced makes else. Not within a
 * time that is taken. */
static inline void bench_mark(void)
{
	syscall(SYS_getppid);
}

static inline void bench_rest(long us)
{
	const struct timespec rest = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};

	if (us)
		nanosleep(&rest, NULL);
}

#endif
