/*
 * unshared FILE: a thread with a descriptor table of its own has FILE locked, shared, or for any argument more
 * exclusively; then the first thread asks for a shared lock, without waiting. Both have the same pid, and are two
 * owners of POSIX locks.
 */
#include <pthread.h>
#include <sched.h>

#include "tests/interpose/calls.h"

static const char *path;
static short type = F_RDLCK;
static pthread_barrier_t barrier;

static void *other(void *arg)
{
	struct flock lock = {.l_type = type, .l_len = 10};
	int fd;

	CALL("unshare", unshare(CLONE_FILES));
	fd = must_open(path, O_RDWR | O_CREAT);
	CALL("other thread", fcntl(fd, F_SETLK, &lock));
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	close(fd);
	return arg;
}

/* What a third owner would meet, and so what the first thread has when the other one has gone. */
static void print_left(int fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_len = 10};

	if (fcntl(fd, F_OFD_GETLK, &lock) == 0)
		printf("left: %s\n", lock.l_type == F_UNLCK ? "nothing" : "a lock");
}

int main(int argc, char **argv)
{
	struct flock lock = {.l_type = F_RDLCK, .l_len = 10};
	pthread_t thread;
	int fd;

	if (argc < 2)
		return 99;
	path = argv[1];
	if (argc > 2)
		type = F_WRLCK;
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, other, NULL);
	pthread_barrier_wait(&barrier);
	fd = must_open(path, O_RDWR);
	CALL("first thread", fcntl(fd, F_SETLK, &lock));
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	print_left(fd);
	return 0;
}
