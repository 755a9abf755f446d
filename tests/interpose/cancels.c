/*
 * cancels CALL WHEN FILE: a thread that is cancelled in a lock call.
 * CALL: setlkw, ofd, lockf, setlk, tlock, getlk, flock, and syssetlkw, sysflock by syscall(). WHEN: before (it is
 * pending when the call begins), or order: when a line comes on standard input. The process has a shared lock on [5, 8)
 * of the file, and asks for [0, 10). Then it prints whether the call came to its end, and lives until standard input
 * ends.
 */
#include <pthread.h>
#include <stdbool.h>
#include <sys/syscall.h>

#include "tests/interpose/calls.h"

static const char *name;
static int fd, result, error;
static bool returned, before;

static void *caller(void *arg)
{
	struct flock lock = {.l_type = F_WRLCK, .l_len = 10};

	if (before)
		pthread_cancel(pthread_self());
	errno = 77;
	if (strcmp(name, "setlkw") == 0)
		result = fcntl(fd, F_SETLKW, &lock);
	if (strcmp(name, "ofd") == 0)
		result = fcntl(fd, F_OFD_SETLKW, &lock);
	if (strcmp(name, "setlk") == 0)
		result = fcntl(fd, F_SETLK, &lock);
	if (strcmp(name, "getlk") == 0)
		result = fcntl(fd, F_GETLK, &lock);
	if (strcmp(name, "lockf") == 0)
		result = lockf(fd, F_LOCK, 10);
	if (strcmp(name, "tlock") == 0)
		result = lockf(fd, F_TLOCK, 10);
	if (strcmp(name, "flock") == 0)
		result = flock(fd, LOCK_EX);
	if (strcmp(name, "syssetlkw") == 0)
		result = (int)syscall(SYS_fcntl, fd, F_SETLKW, &lock);
	if (strcmp(name, "sysflock") == 0)
		result = (int)syscall(SYS_flock, fd, LOCK_EX);
	/* No printing here: that is a cancellation point. */
	error = errno;
	returned = true;
	pthread_testcancel();
	return arg;
}

int main(int argc, char **argv)
{
	struct flock lock = {.l_type = F_RDLCK, .l_start = 5, .l_len = 3};
	pthread_t thread;
	void *ended;
	char c;

	if (argc != 4)
		return 99;
	name = argv[1];
	before = strcmp(argv[2], "before") == 0;
	fd = must_open(argv[3], O_RDWR | O_CREAT);
	CALL("first", fcntl(fd, strcmp(name, "ofd") == 0 ? F_OFD_SETLK : F_SETLK, &lock));
	pthread_create(&thread, NULL, caller, NULL);
	if (!before && read(0, &c, 1) != 1)
		return 99;
	if (!before)
		pthread_cancel(thread);
	pthread_join(thread, &ended);
	if (returned)
		CALL(name, (errno = error, result));
	printf("returned %d, cancelled %d\n", returned, ended == PTHREAD_CANCELED);
	print_descriptors();
	/* The locks stay until the test has looked at them. */
	return read(0, &c, 1) < 0 ? 99 : 0;
}
