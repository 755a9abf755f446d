/*
 * Messages over a Unix socket, with descriptors (SCM_RIGHTS). libc only, no allocation: callable anywhere, also in signal handlers, after
 * fork and before constructors. passing_send() leaves errno, and is no cancellation point.
 */
#ifndef DFLOCK_WIRE_PASSING_H
#define DFLOCK_WIRE_PASSING_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

/* No message of ours has more than one descriptor. Room for more, so that two can be told from one; the kernel drops the rest. */
#define PASSING_FDS 4

/* The receiver closes all of them. */
struct passing {
	int fds[PASSING_FDS];
	unsigned count;
	bool cut; /* more descriptors came with the message, or this process's own table is full */
};

/* Sends with one descriptor or none (-1). flags: those of sendmsg(); MSG_NOSIGNAL is added. 0 or -errno, -EINTR too. */
int passing_send(int socket, const struct iovec *parts, size_t count, int fd, int flags);
/* Receives one message; the descriptors are close-on-exec. flags: those of recvmsg(). The length; 0: the other side has ended, or the
 * message was empty; -errno, and nothing came. */
ssize_t passing_receive(int socket, void *message, size_t size, struct passing *came, int flags);
/* The same from a trusted peer: *fd is the last descriptor that came, or -1; this closes all others. Repeats calls that gave EINTR. */
ssize_t passing_receive_one(int socket, void *message, size_t size, int *fd, int flags);

#endif
