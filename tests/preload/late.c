/*
 * A preload for the keeper that delays the next message after a look at the clock: while the file that DFLOCK_TEST_LATE
 * names exists, recvmsg() on a SOCK_SEQPACKET socket removes that file, waits until there is something to receive (at
 * most WAIT_MS), and only then receives.
 *
 * It also stops the keeper in the middle of writing new rules into the page, where the keeper looks at "/": while the
 * file that DFLOCK_TEST_ROOT names exists, stat("/") removes that file, and waits until it is there again (at most
 * WAIT_MS).
 */
#include <dlfcn.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define WAIT_MS 20000

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	static ssize_t (*real_recvmsg)(int, struct msghdr *, int);
	const char *path = getenv("DFLOCK_TEST_LATE");
	struct pollfd question = {.fd = fd, .events = POLLIN};
	socklen_t len = sizeof(int);
	int type = 0;

	if (!real_recvmsg)
		*(void **)&real_recvmsg = dlsym(RTLD_NEXT, "recvmsg");
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_SEQPACKET && path &&
	    unlink(path) == 0)
		poll(&question, 1, WAIT_MS);
	return real_recvmsg(fd, msg, flags);
}

int stat64(const char *restrict path, struct stat64 *restrict st)
{
	static int (*real_stat)(const char *, struct stat64 *);
	const char *sign = getenv("DFLOCK_TEST_ROOT");

	if (!real_stat)
		*(void **)&real_stat = dlsym(RTLD_NEXT, "stat64");
	if (sign && strcmp(path, "/") == 0 && unlink(sign) == 0)
		for (int ms = 0; ms < WAIT_MS && access(sign, F_OK) != 0; ms++)
			poll(NULL, 0, 1);
	return real_stat(path, st);
}
