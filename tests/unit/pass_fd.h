/* A descriptor on its way from one process to another: with one byte, through a Unix socket. */
#ifndef DFLOCK_TESTS_UNIT_PASS_FD_H
#define DFLOCK_TESTS_UNIT_PASS_FD_H

#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

static inline bool pass_fd(int to, int fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
	struct iovec iov = {.iov_base = "d", .iov_len = 1};
	struct msghdr message = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};

	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	return sendmsg(to, &message, 0) == 1;
}

/* -1: none came. */
static inline int receive_fd(int from)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	char byte;
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	struct msghdr message = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	int fd = -1;

	if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&message))
		memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
	return fd;
}

#endif
