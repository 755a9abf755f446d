/* places WHERE FILE: takes and gives up a lock from an unusual place. */
#define THREAD_ROUNDS 200
#include "tests/interpose/places.h"

static void lock_all(const char *who)
{
	int fd = must_open(path, O_RDWR | O_CREAT);

	CALL(who, flock(fd, LOCK_EX));
	CALL(who, flock(fd, LOCK_UN));
	CALL(who, flock(fd, LOCK_SH | LOCK_NB));
	CALL(who, fcntl(fd, F_GETFD));
	close(fd);
}

static long lock_in_thread(int fd)
{
	long failures = flock(fd, LOCK_EX) < 0 || flock(fd, LOCK_UN) < 0;

	return failures + (flock(fd, LOCK_SH | LOCK_NB) < 0 && errno != EWOULDBLOCK);
}

/* Runs before the constructor of any library. */
static void early(int argc, char **argv, char **envp)
{
	if (argc == 3 && strcmp(argv[1], "preinit") == 0) {
		path = argv[2];
		lock_all("preinit");
	}
}
__attribute__((section(".preinit_array"), used)) static void (*const preinit)(int, char **, char **) = early;

struct cancelled {
	int fd, taken, released, done;
};

static void *cancelled(void *arg)
{
	struct cancelled *c = arg;

	/* Pending from here on; flock() must not act on it. */
	pthread_cancel(pthread_self());
	c->taken = flock(c->fd, LOCK_EX);
	c->released = flock(c->fd, LOCK_UN);
	c->done = 1;
	pthread_testcancel();
	return arg;
}

static void in_cancelled_thread(void)
{
	struct cancelled c = {.fd = must_open(path, O_RDWR | O_CREAT), .taken = -1, .released = -1};
	pthread_t thread;
	void *result;

	pthread_create(&thread, NULL, cancelled, &c);
	pthread_join(thread, &result);
	printf("done %d: %d %d, cancelled %d\n", c.done, c.taken, c.released, result == PTHREAD_CANCELED);
	close(c.fd);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 99;
	path = argv[2];
	lock_from(argv[1]);
	if (strcmp(argv[1], "cancel") == 0)
		in_cancelled_thread();
	print_descriptors();
	return 0;
}
