/* places WHERE FILE: takes and gives up a lock from an unusual place. */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>

#include "tests/interpose/calls.h"

static const char *path;

static void lock_twice(const char *who)
{
	int fd = must_open(path, O_RDWR | O_CREAT);

	CALL(who, flock(fd, LOCK_EX));
	CALL(who, flock(fd, LOCK_UN));
	CALL(who, flock(fd, LOCK_SH | LOCK_NB));
	CALL(who, fcntl(fd, F_GETFD));
	close(fd);
}

/* Runs before the constructor of any library. */
static void early(int argc, char **argv, char **envp)
{
	(void)envp;
	if (argc == 3 && strcmp(argv[1], "preinit") == 0) {
		path = argv[2];
		lock_twice("preinit");
	}
}
__attribute__((section(".preinit_array"), used)) static void (*const preinit)(int, char **, char **) = early;

__attribute__((constructor)) static void at_start(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "constructor") == 0) {
		path = argv[2];
		lock_twice("constructor");
	}
}

static void handler(int sig)
{
	(void)sig;
	lock_twice("handler");
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
		lock_twice(who);
		fflush(stdout);
		_exit(0);
	}
	CALL("waited", waitpid(pid, &status, 0) == pid ? status : -1);
}

static void *many_locks(void *arg)
{
	long *failures = arg;

	for (int i = 0; i < 200; i++) {
		int fd = must_open(path, O_RDWR | O_CREAT);

		/* Eight descriptions: the kernel makes them wait for each other. */
		if (flock(fd, LOCK_EX) < 0 || flock(fd, LOCK_UN) < 0)
			++*failures;
		if (flock(fd, LOCK_SH | LOCK_NB) < 0 && errno != EWOULDBLOCK)
			++*failures;
		close(fd);
	}
	return NULL;
}

static void in_threads(bool forking)
{
	pthread_t threads[8];
	char child_path[512];
	long failures[8] = {0}, sum = 0;

	snprintf(child_path, sizeof(child_path), "%s.child", path);
	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, many_locks, &failures[i]);
	for (int i = 0; forking && i < 5; i++) {
		pid_t pid = fork();

		/* A file of its own: it has copies of descriptors that were locked when it was made. */
		if (pid == 0) {
			long failed = 0;

			path = child_path;
			many_locks(&failed);
			_exit(failed != 0);
		}
		int status = -1;

		waitpid(pid, &status, 0);
		sum += status != 0;
	}
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], NULL);
		sum += failures[i];
	}
	printf("failures: %ld\n", sum);
}

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
	if (strcmp(argv[1], "handler") == 0)
		in_handler();
	if (strcmp(argv[1], "fork") == 0)
		in_child(fork(), "child");
	if (strcmp(argv[1], "vfork") == 0)
		in_child(vfork(), "vfork child");
	if (strcmp(argv[1], "threads") == 0)
		in_threads(false);
	if (strcmp(argv[1], "threads-fork") == 0)
		in_threads(true);
	if (strcmp(argv[1], "cancel") == 0)
		in_cancelled_thread();
	print_descriptors();
	return 0;
}
