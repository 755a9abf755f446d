/* record_places WHERE FILE: takes and gives up record locks from an unusual place. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "tests/interpose/calls.h"

static const char *path;

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

__attribute__((constructor)) static void at_start(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "constructor") == 0) {
		path = argv[2];
		lock_all("constructor");
	}
}

static void handler(int sig)
{
	(void)sig;
	lock_all("handler");
}

static void in_handler(void)
{
	/* The smallest stack that a program may reasonably give its handlers. */
	static char memory[16384];
	stack_t stack = {.ss_sp = memory, .ss_size = sizeof(memory)};
	struct sigaction act = {.sa_handler = handler, .sa_flags = SA_ONSTACK};

	sigaltstack(&stack, NULL);
	sigaction(SIGUSR1, &act, NULL);
	raise(SIGUSR1);
}

static void in_child(pid_t pid, const char *who)
{
	int status;

	if (pid == 0) {
		lock_all(who);
		fflush(stdout);
		_exit(0);
	}
	CALL("waited", waitpid(pid, &status, 0) == pid ? status : -1);
}

static void *many_locks(void *arg)
{
	long *failures = arg;

	for (int i = 0; i < 100; i++) {
		int fd = must_open(path, O_RDWR | O_CREAT);

		/* Eight descriptions: the kernel makes them wait for each other. */
		if (lock(fd, F_OFD_SETLKW, F_WRLCK, 0) < 0 || lock(fd, F_OFD_SETLK, F_UNLCK, 0) < 0)
			++*failures;
		if (lock(fd, F_OFD_SETLK, F_RDLCK, 5) < 0 && errno != EAGAIN)
			++*failures;
		close(fd);
	}
	return NULL;
}

static void in_threads(void)
{
	pthread_t threads[8];
	long failures[8] = {0}, sum = 0;

	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, many_locks, &failures[i]);
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], NULL);
		sum += failures[i];
	}
	printf("failures: %ld\n", sum);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 99;
	path = argv[2];
	if (strcmp(argv[1], "handler") == 0)
		in_handler();
	if (strcmp(argv[1], "fork") == 0)
		in_child(fork(), "child");
	if (strcmp(argv[1], "vfork") == 0)
		in_child(vfork(), "vfork child");
	if (strcmp(argv[1], "threads") == 0)
		in_threads();
	print_descriptors();
	return 0;
}
