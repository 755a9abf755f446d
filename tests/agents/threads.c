/*
 * threads FILE WITNESS ROUNDS [HOLD_MS]: eight threads, each with a descriptor of its own, lock FILE again and again.
 * The thread that has the lock makes and removes WITNESS, which all hosts share, and every fourth time takes up to HOLD_MS in
 * between; if it was there already, two had the lock: WITNESS.overlap says so and ends all of them. WITNESS.end, made
 * by the test, ends them, too. Prints how often a thread had the lock; a refused lock ends it with status 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define THREADS 8

static const char *file, *witness;
static char overlap[PATH_MAX], end[PATH_MAX];
static long rounds, hold_ms;

static void die(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

/* Alone? */
static bool look(void)
{
	long ms = hold_ms && random() % 4 == 0 ? random() % hold_ms : 0;
	const struct timespec hold = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	if (mkdir(witness, 0700) == 0) {
		nanosleep(&hold, NULL);
		if (rmdir(witness) != 0)
			die(witness);
		return true;
	}
	if (errno != EEXIST)
		die(witness);
	if (mkdir(overlap, 0700) != 0 && errno != EEXIST)
		die(overlap);
	return false;
}

static void *work(void *arg)
{
	long *had = arg;
	int fd = open(file, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		die(file);
	for (; *had < rounds && access(overlap, F_OK) != 0 && access(end, F_OK) != 0; ++*had) {
		if (flock(fd, LOCK_EX) != 0)
			die("flock");
		if (!look())
			break;
		if (flock(fd, LOCK_UN) != 0)
			die("unlock");
	}
	close(fd);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	long had[THREADS] = {0}, all = 0;

	if (argc != 4 && argc != 5)
		return 2;
	file = argv[1];
	witness = argv[2];
	rounds = atol(argv[3]);
	hold_ms = argc == 5 ? atol(argv[4]) : 0;
	snprintf(overlap, sizeof(overlap), "%s.overlap", witness);
	snprintf(end, sizeof(end), "%s.end", witness);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, work, &had[i]) != 0)
			die("pthread_create");
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		all += had[i];
	}
	printf("%ld\n", all);
	return 0;
}
