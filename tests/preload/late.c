/*
 * A preload for the keeper that puts time between a look at the clock and the message that is received next: while the
 * file that DFLOCK_TEST_LATE names exists, recvmsg() on a SOCK_SEQPACKET socket removes that file, waits until there is
 * something to receive (at most WAIT_MS), and only then receives.
 */
#include <dlfcn.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
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
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_SEQPACKET && path && unlink(path) == 0)
		poll(&question, 1, WAIT_MS);
	return real_recvmsg(fd, msg, flags);
}
