/*
 * waits HOW OPERATION FILE: one lock call, during which the test sends signals.
 * HOW: restart or interrupt, for the handler of SIGUSR1, which prints "signal"; fork: it also makes a child that
 * lives until standard input ends; held: the file is shared-locked before.
 */
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>

#include "tests/interpose/calls.h"

static bool forks;

static void handler(int sig)
{
	static const char said[] = "signal\n";
	ssize_t n = write(1, said, sizeof(said) - 1);

	(void)n;
	if (forks && sig == SIGUSR1 && fork() == 0)
		_exit((int)read(0, &sig, 1));
}

static int operation(const char *text)
{
	int op = 0;

	for (; *text; text++)
		op |= *text == 's' ? LOCK_SH : *text == 'x' ? LOCK_EX : LOCK_NB;
	return op;
}

int main(int argc, char **argv)
{
	struct sigaction act = {.sa_handler = handler};
	static sigset_t before, after; /* zero: libc fills in no more than the kernel has */
	int fd, status;

	if (argc != 4)
		return 99;
	fd = must_open(argv[3], O_RDWR | O_CREAT);
	forks = strcmp(argv[1], "fork") == 0;
	if (forks || strcmp(argv[1], "restart") == 0)
		act.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &act, NULL);
	sigaction(SIGCHLD, &act, NULL);
	if (strcmp(argv[1], "held") == 0)
		CALL("first", flock(fd, LOCK_SH));
	sigprocmask(SIG_SETMASK, NULL, &before);
	CALL("flock", flock(fd, operation(argv[2])));
	sigprocmask(SIG_SETMASK, NULL, &after);
	printf("mask %s\n", memcmp(&before, &after, sizeof(before)) ? "changed" : "same");
	CALL("children", waitpid(-1, &status, WNOHANG));
	CALL("children of all kinds", waitpid(-1, &status, WNOHANG | __WALL));
	print_descriptors();
	/* The lock stays until the test has looked at it. */
	if (read(0, &status, 1) < 0)
		return 99;
	return 0;
}
