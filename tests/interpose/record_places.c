/* record_places WHERE FILE: takes and gives up record locks from an unusual place. */
#define THREAD_ROUNDS 100
#include "tests/interpose/places.h"

static int lock(int fd, int cmd, short type, off_t start)
{
	struct flock lock = {.l_type = type, .l_start = start, .l_len = 10};

	return fcntl(fd, cmd, &lock);
}

static void lock_all(const char *who)
{
	int fd = must_open(path, O_RDWR | O_CREAT);

	CALL(who, lock(fd, F_SETLK, F_WRLCK, 0));
	CALL(who, lock(fd, F_SETLKW, F_RDLCK, 5));
	CALL(who, lock(fd, F_GETLK, F_WRLCK, 0));
	CALL(who, lock(fd, F_SETLK, F_UNLCK, 0));
	CALL(who, lock(fd, F_OFD_SETLKW, F_WRLCK, 20));
	CALL(who, lockf(fd, F_LOCK, 5));
	CALL(who, lockf(fd, F_TEST, 5));
	close(fd);
}

static long lock_in_thread(int fd)
{
	long failures = lock(fd, F_OFD_SETLKW, F_WRLCK, 0) < 0 || lock(fd, F_OFD_SETLK, F_UNLCK, 0) < 0;

	return failures + (lock(fd, F_OFD_SETLK, F_RDLCK, 5) < 0 && errno != EAGAIN);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 99;
	path = argv[2];
	lock_from(argv[1]);
	print_descriptors();
	return 0;
}
