/*
 * A preload that stops a process at a place, while a file that a variable names exists. It makes a second file, that name with ".reached"
 * behind it, and waits until the first one is gone (at most WAIT_MS):
 *
 *   DFLOCK_TEST_HELD    just before the kernel takes a lock of flock(), behind the shim (after it in LD_PRELOAD); not before unlocking
 *   DFLOCK_TEST_TAKEN   just after that, as in a keeper's probe
 *   DFLOCK_TEST_FORK    before a _Fork()
 *
 * And in a keeper, where the file is removed when the place is reached:
 *
 *   DFLOCK_TEST_LATE    after a look at the clock: recvmsg() on a SOCK_SEQPACKET socket waits until there is something to receive
 *   DFLOCK_TEST_ROOT    in the middle of writing new rules into the page, where the keeper looks at "/": waits until the file is there again
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define WAIT_MS    20000
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void wait_until(const char *path, bool there)
{
	for (int ms = 0; ms < WAIT_MS && (access(path, F_OK) == 0) != there; ms++)
		poll(NULL, 0, 1);
}

static void wait_while_there(const char *variable)
{
	const char *path = getenv(variable);
	char reached[4096];

	if (!path || access(path, F_OK) != 0)
		return;
	snprintf(reached, sizeof(reached), "%s.reached", path);
	close(open(reached, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	wait_until(path, false);
}

int flock(int fd, int op)
{
	int ret;

	if (!(op & LOCK_UN))
		wait_while_there("DFLOCK_TEST_HELD");
	ret = REAL(flock)(fd, op);
	if (ret == 0 && !(op & LOCK_UN))
		wait_while_there("DFLOCK_TEST_TAKEN");
	return ret;
}

pid_t _Fork(void)
{
	wait_while_there("DFLOCK_TEST_FORK");
	return REAL(_Fork)();
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	const char *path = getenv("DFLOCK_TEST_LATE");
	struct pollfd question = {.fd = fd, .events = POLLIN};
	socklen_t len = sizeof(int);
	int type = 0;

	if (path && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_SEQPACKET &&
	    unlink(path) == 0)
		poll(&question, 1, WAIT_MS);
	return REAL(recvmsg)(fd, msg, flags);
}

int stat64(const char *restrict path, struct stat64 *restrict st)
{
	const char *sign = getenv("DFLOCK_TEST_ROOT");

	if (sign && strcmp(path, "/") == 0 && unlink(sign) == 0)
		wait_until(sign, true);
	return REAL(stat64)(path, st);
}
