/*
 * waits HOW CALL FILE: one lock call, during which the test sends signals.
 * HOW: restart or interrupt, for the handler of SIGUSR1, which prints "signal"; fork: it also makes a child that lives until standard input
 * ends; held: there is a shared lock before, with a record call on [5, 8); before, order: the same, and the call is made by a thread that
 * is cancelled before it, or when a line comes on standard input.
 * CALL: s, x, sn or xn: flock(); or an exclusive lock on [0, 10): setlk, setlkw, ofd, lockf, tlock; getlk; sysflock, syssetlkw: by
 * syscall(). The program lives until standard input ends, and the lock, too.
 */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/interpose/calls.h"

static bool forks, returned, before;
static const char *name;
static int fd, result, error;

static void handler(int sig)
{
	static const char said[] = "signal\n";
	ssize_t n = write(1, said, sizeof(said) - 1);

	(void)n;
	if (forks && sig == SIGUSR1 && fork() == 0)
		_exit((int)read(0, &sig, 1));
}

static bool is_flock(void) { return strspn(name, "sxn") == strlen(name) || strcmp(name, "sysflock") == 0; }

static int call(void)
{
	static const struct {
		const char *name;
		int cmd;
	} records[] = {{"setlkw", F_SETLKW}, {"ofd", F_OFD_SETLKW}, {"setlk", F_SETLK}, {"getlk", F_GETLK}};
	struct flock lock = {.l_type = F_WRLCK, .l_len = 10};

	for (int i = 0; i < 4; i++)
		if (strcmp(name, records[i].name) == 0)
			return fcntl(fd, records[i].cmd, &lock);
	if (strcmp(name, "lockf") == 0 || strcmp(name, "tlock") == 0)
		return lockf(fd, *name == 'l' ? F_LOCK : F_TLOCK, 10);
	if (strcmp(name, "syssetlkw") == 0)
		return (int)syscall(SYS_fcntl, fd, F_SETLKW, &lock);
	if (strcmp(name, "sysflock") == 0)
		return (int)syscall(SYS_flock, fd, LOCK_EX);
	return flock(fd, (strchr(name, 's') ? LOCK_SH : LOCK_EX) | (strchr(name, 'n') ? LOCK_NB : 0));
}

static void *caller(void *arg)
{
	if (before)
		pthread_cancel(pthread_self());
	errno = 77;
	result = call();
	/* No printing here: that is a cancellation point. */
	error = errno;
	returned = true;
	pthread_testcancel();
	return arg;
}

static void in_thread(void)
{
	pthread_t thread;
	void *ended;
	char c;

	pthread_create(&thread, NULL, caller, NULL);
	if (!before && read(0, &c, 1) == 1)
		pthread_cancel(thread);
	pthread_join(thread, &ended);
	if (returned)
		CALL("call", (errno = error, result));
	printf("returned %d, cancelled %d\n", returned, ended == PTHREAD_CANCELED);
}

static void print_left(void)
{
	char path[64], line[256], type[16], last[32];
	long long first;
	FILE *info;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	info = fopen(path, "r");
	printf("left:");
	while (info && fgets(line, sizeof(line), info))
		if (sscanf(line, "lock: %*s %*s %*s %15s %*s %*s %lld %31s", type, &first, last) == 3)
			printf(" %s %lld %s", type, first, last);
	printf("\n");
	if (info)
		fclose(info);
}

int main(int argc, char **argv)
{
	struct sigaction act = {.sa_handler = handler};
	struct flock first = {.l_type = F_RDLCK, .l_start = 5, .l_len = 3};
	static sigset_t mask, after; /* zero: libc fills in no more than the kernel has */
	const char *how;
	int status;

	if (argc != 4)
		return 99;
	how = argv[1];
	name = argv[2];
	fd = must_open(argv[3], O_RDWR | O_CREAT);
	forks = strcmp(how, "fork") == 0;
	before = strcmp(how, "before") == 0;
	if (forks || strcmp(how, "restart") == 0)
		act.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &act, NULL);
	sigaction(SIGCHLD, &act, NULL);
	if (strcmp(how, "held") == 0 || strcmp(how, "order") == 0 || before)
		CALL("first", is_flock() ? flock(fd, LOCK_SH)
					 : fcntl(fd, strcmp(name, "ofd") == 0 ? F_OFD_SETLK : F_SETLK, &first));
	sigprocmask(SIG_SETMASK, NULL, &mask);
	if (before || strcmp(how, "order") == 0)
		in_thread();
	else
		CALL(is_flock() ? "flock" : "record", call());
	sigprocmask(SIG_SETMASK, NULL, &after);
	if (!is_flock())
		print_left();
	printf("mask %s\n", memcmp(&mask, &after, sizeof(mask)) ? "changed" : "same");
	CALL("children", waitpid(-1, &status, WNOHANG));
	CALL("children of all kinds", waitpid(-1, &status, WNOHANG | __WALL));
	print_descriptors();
	/* The lock stays until the test has looked at it. */
	return read(0, &status, 1) < 0 ? 99 : 0;
}
