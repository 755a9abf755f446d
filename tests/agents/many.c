/*
 * Many locks in few processes; each process writes down when it runs.
 *
 *   many PREFIX COUNT PROCESSES STAMPS
 *
 * Process n of PROCESSES takes flock() on those of the files PREFIX0, PREFIX1, ... whose number modulo PROCESSES is n.
 * When all have their locks, the first says "held" on standard output. From then on, each writes CLOCK_MONOTONIC in ns
 * into the n-th 8 bytes of the file STAMPS, again and again with short pauses, until its parent ends, which it does
 * with its standard input.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
	fprintf(stderr, "many: %s: %s\n", what, strerror(errno));
	exit(3);
}

static void raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		fail("getrlimit");
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
		fail("setrlimit");
}

static void take(const char *prefix, long from, long count, long step)
{
	char path[4096];

	for (long i = from; i < count; i += step) {
		int fd;

		snprintf(path, sizeof(path), "%s%ld", prefix, i);
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0 || flock(fd, LOCK_EX) != 0)
			fail(path);
	}
}

static void stamp(volatile int64_t *at)
{
	const struct timespec pause = {.tv_nsec = 200000};
	struct timespec t;

	for (;;) {
		clock_gettime(CLOCK_MONOTONIC, &t);
		*at = t.tv_sec * 1000000000ll + t.tv_nsec;
		nanosleep(&pause, NULL);
	}
}

int main(int argc, char **argv)
{
	long count, processes;
	int stamps, ready[2];
	int64_t *at;
	char byte;

	if (argc != 5)
		return 2;
	count = strtol(argv[2], NULL, 10);
	processes = strtol(argv[3], NULL, 10);
	raise_limit();
	stamps = open(argv[4], O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (stamps < 0 || ftruncate(stamps, processes * (long)sizeof(*at)) != 0 || pipe(ready) != 0)
		fail(argv[4]);
	at = mmap(NULL, processes * sizeof(*at), PROT_READ | PROT_WRITE, MAP_SHARED, stamps, 0);
	if (at == MAP_FAILED)
		fail(argv[4]);
	for (long n = 0; n < processes; n++) {
		pid_t pid = fork();

		if (pid < 0)
			fail("fork");
		if (pid > 0)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		take(argv[1], n, count, processes);
		if (write(ready[1], "r", 1) != 1)
			fail("the pipe");
		stamp(at + n);
	}
	close(ready[1]);
	for (long n = 0; n < processes; n++)
		if (read(ready[0], &byte, 1) != 1)
			exit(3); /* a child said why */
	puts("held");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	return 0;
}
