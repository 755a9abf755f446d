/* See graves.h. */
#include "keeper/fronts/graves.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/fronts/door.h"
#include "wire/passing.h"

#define GRAVES_APART 16 /* of one user; more share pits */

struct grave {
	int fd; /* the connection; of a pit: the end that a front will close */
	int in; /* of a pit: the other end; -1: this is no pit */
	struct grave *prev, *next;
};

/* Nothing can be added to the connection any more. Does it have something unread? */
static bool graves_has_unread(int fd)
{
	struct msghdr msg = {0};
	int on = 1;

	/* Asking for credentials without room for them (MSG_CTRUNC) tells even an empty message from the end. */
	setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
	shutdown(fd, SHUT_RDWR);
	return recvmsg(fd, &msg, MSG_PEEK | MSG_DONTWAIT) >= 0 && msg.msg_flags;
}

static void graves_append(struct front_user *user, struct grave *grave)
{
	DL_APPEND(user->graves.all, grave);
	user->graves.count++;
}

/* Puts the connection into the last pit, or a new one. The close here is not the last one: the sent copy is on its
 * way. */
static bool graves_into_pit(struct front_user *user, struct grave *grave)
{
	struct grave *pit = user->graves.all->prev;
	struct iovec part = {.iov_base = (void *)"", .iov_len = 1};
	int ends[2];

	if (pit->in < 0 || passing_send(pit->in, &part, 1, grave->fd, MSG_DONTWAIT) < 0) {
		pit = calloc(1, sizeof(*pit));
		if (!pit || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
			free(pit);
			return false;
		}
		pit->in = ends[0];
		pit->fd = ends[1];
		graves_append(user, pit);
		if (passing_send(pit->in, &part, 1, grave->fd, MSG_DONTWAIT) < 0)
			return false;
	}
	close(grave->fd);
	free(grave);
	return true;
}

struct front_user *graves_add(struct fronts *fronts, uid_t uid, int fd)
{
	struct grave *grave = graves_has_unread(fd) ? calloc(1, sizeof(*grave)) : NULL;
	struct front_user *user = grave ? crew_user(fronts, uid) : NULL;

	if (!user) {
		free(grave);
		close(fd);
		return NULL;
	}
	grave->fd = fd;
	grave->in = -1;
	if (user->graves.count < GRAVES_APART || !graves_into_pit(user, grave))
		graves_append(user, grave);
	return user;
}

int graves_give(struct front *front)
{
	const struct front_ask ask = {.op = FRONT_BURY};
	struct front_user *user = front->user;
	struct grave *grave = user->graves.all;
	int ret = crew_give_work(front, &ask, grave->fd);

	if (ret < 0) {
		crew_end(front);
		return ret;
	}
	DL_DELETE(user->graves.all, grave);
	user->graves.count--;
	close(grave->fd); /* not the last close: a copy is on its way */
	if (grave->in >= 0)
		close(grave->in);
	free(grave);
	return 0;
}

void graves_leave(struct front_user *user)
{
	struct grave *grave, *next;

	DL_FOREACH_SAFE (user->graves.all, grave, next) {
		door_leave(user->all->door, grave->fd);
		free(grave); /* its descriptors end with the process */
	}
	user->graves.all = NULL;
}
