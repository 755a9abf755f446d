#include "wire/passing.h"

#include <string.h>
#include <sys/socket.h>

#include "wire/sys.h"

union passing_room {
	struct cmsghdr head;
	char bytes[CMSG_SPACE(sizeof(int) * PASSING_FDS)];
};

int passing_send(int socket, const struct iovec *parts, size_t count, int fd, int flags)
{
	union passing_room room = {.bytes = {0}};
	struct msghdr msg = {.msg_iov = (struct iovec *)parts, .msg_iovlen = count};
	long ret;

	if (fd >= 0) {
		msg.msg_control = &room;
		msg.msg_controllen = CMSG_SPACE(sizeof(fd));
		room.head = (struct cmsghdr){
			.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(fd))};
		memcpy(CMSG_DATA(&room.head), &fd, sizeof(fd));
	}
	ret = sys_raw(SYS_sendmsg, socket, &msg, flags | MSG_NOSIGNAL);
	return ret < 0 ? (int)ret : 0;
}

ssize_t passing_receive(int socket, void *message, size_t size, struct passing *came, int flags)
{
	struct iovec iov = {.iov_base = message, .iov_len = size};
	union passing_room room;
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = sizeof(room)};
	ssize_t n = recvmsg(socket, &msg, flags | MSG_CMSG_CLOEXEC);

	if (n < 0)
		n = -errno;
	*came = (struct passing){.cut = n >= 0 && msg.msg_flags & MSG_CTRUNC};
	for (struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len && came->count < PASSING_FDS;
		     at += sizeof(int))
			memcpy(&came->fds[came->count++], (char *)c + at, sizeof(int));
	}
	return n;
}

ssize_t passing_receive_one(int socket, void *message, size_t size, int *fd, int flags)
{
	struct passing came;
	ssize_t n;

	while ((n = passing_receive(socket, message, size, &came, flags)) == -EINTR)
		;
	*fd = came.count ? came.fds[came.count - 1] : -1;
	for (unsigned i = 0; i + 1 < came.count; i++)
		sys_raw(SYS_close, came.fds[i]);
	return n;
}
