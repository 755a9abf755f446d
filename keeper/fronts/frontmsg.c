/* See frontmsg.h. */
#include "keeper/fronts/frontmsg.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int frontmsg_send(int socket, const struct iovec *parts, size_t count, int fd, int flags)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.room = {0}};
	struct msghdr msg = {.msg_iov = (struct iovec *)parts, .msg_iovlen = count};

	if (fd >= 0) {
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
		control.head = (struct cmsghdr){
			.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	}
	while (sendmsg(socket, &msg, flags | MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

ssize_t frontmsg_recv(int socket, void *message, size_t size, int *fd, int flags)
{
	struct iovec iov = {.iov_base = message, .iov_len = size};
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	ssize_t n;

	*fd = -1;
	while ((n = recvmsg(socket, &msg, flags | MSG_CMSG_CLOEXEC)) < 0)
		if (errno != EINTR)
			return -errno;
	if (CMSG_FIRSTHDR(&msg) && CMSG_FIRSTHDR(&msg)->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(*fd));
	return n;
}

void frontmsg_say(const struct front_answer *answer, const struct held *before, int fd)
{
	struct iovec parts[] = {{.iov_base = (void *)answer, .iov_len = sizeof(*answer)},
				{.iov_base = (void *)before, .iov_len = answer->before_count * sizeof(*before)}};

	if (frontmsg_send(FRONT_CONTROL, parts, answer->before_count ? 2 : 1, fd, 0) < 0)
		_exit(0);
}
