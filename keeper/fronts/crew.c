/* See crew.h. */
#include "keeper/fronts/crew.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/fronts/door.h"
#include "keeper/log.h"
#include "wire/passing.h"

static bool crew_is_slow(const struct front *front, int64_t now_ns)
{
	return front->busy && now_ns - front->since_ns > FRONTS_SLOW_MS * NS_PER_MS;
}

#define GRAVES_APART 16 /* of one user; more share pits */

bool crew_buries_first(const struct front_user *user)
{
	return !user->queue || user->graves.count >= GRAVES_APART;
}

struct front *crew_find_idle(const struct front_user *user)
{
	struct front *front, *found = NULL;
	unsigned idle = 0;

	DL_FOREACH (user->fronts, front)
		if (!front->busy && !front->settled && !front->ending) {
			found = front;
			idle++;
		}
	return crew_buries_first(user) || user->readers - idle < FRONTS_PER_USER ? found : NULL;
}

bool crew_needs_another(const struct front_user *user, unsigned limit, int64_t now_ns)
{
	bool soon = user->readers < 2 || user->graves.count >= GRAVES_APART;
	int64_t patience = (soon ? FRONTS_BUSY_MS : FRONTS_SLOW_MS) * NS_PER_MS;
	const struct front *front;

	if (user->readers >= limit)
		return false;
	DL_FOREACH (user->fronts, front)
		if (!front->settled && !front->ending && now_ns - front->since_ns < patience)
			return false;
	return true;
}

bool crew_all_hang(const struct front_user *user, int64_t now_ns)
{
	const struct front *front;
	unsigned slow = 0;

	DL_FOREACH (user->fronts, front)
		slow += !front->settled && crew_is_slow(front, now_ns);
	return slow >= FRONTS_PER_USER;
}

void crew_note_hung(struct front *front, int64_t now_ns)
{
	struct front_user *user = front->user;
	unsigned oldest = 0;

	if (!front->dev || !crew_is_slow(front, now_ns))
		return;
	for (unsigned i = 0; i < FRONT_MAX_HUNG; i++) {
		if (user->hung[i].dev == front->dev) {
			oldest = i;
			break;
		}
		if (user->hung[i].seen_ns < user->hung[oldest].seen_ns)
			oldest = i;
	}
	user->hung[oldest].dev = front->dev;
	user->hung[oldest].seen_ns = now_ns;
}

void crew_tell_hung(const struct front_user *user, struct front_ask *ask, int64_t now_ns)
{
	for (unsigned i = 0; i < FRONT_MAX_HUNG; i++)
		if (user->hung[i].dev && now_ns - user->hung[i].seen_ns < FRONTS_HUNG_MS * NS_PER_MS)
			ask->hung[ask->hung_count++] = user->hung[i].dev;
}

struct grave {
	int fd;         /* the connection; of a pit: the end that a front will close */
	int in;         /* of a pit: the other end; -1: this is no pit */
	unsigned holds; /* of a pit: so many connections */
	struct grave *prev, *next;
};

/* Nothing can be added to the connection any more. Does it have something unread? */
static bool crew_has_unread(int fd)
{
	struct msghdr msg = {0};
	int on = 1;

	/* Asking for credentials without room for them (MSG_CTRUNC) tells even an empty message from the end. */
	setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
	shutdown(fd, SHUT_RDWR);
	return recvmsg(fd, &msg, MSG_PEEK | MSG_DONTWAIT) >= 0 && msg.msg_flags;
}

static void crew_append_grave(struct front_user *user, struct grave *grave)
{
	DL_APPEND(user->graves.all, grave);
	user->graves.count++;
}

/* Puts the connection into the last pit, or a new one. The close here is not the last one: the sent copy is on its
 * way. */
static bool crew_into_pit(struct front_user *user, struct grave *grave)
{
	struct grave *pit = user->graves.all->prev;
	struct iovec part = {.iov_base = (void *)"", .iov_len = 1};
	int ends[2];

	if (user->all->in_pits >= user->all->pits_hold)
		return false;
	if (pit->in < 0 || passing_send(pit->in, &part, 1, grave->fd, MSG_DONTWAIT) < 0) {
		pit = calloc(1, sizeof(*pit));
		if (!pit || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
			free(pit);
			return false;
		}
		pit->in = ends[0];
		pit->fd = ends[1];
		crew_append_grave(user, pit);
		if (passing_send(pit->in, &part, 1, grave->fd, MSG_DONTWAIT) < 0)
			return false;
	}
	pit->holds++;
	user->all->in_pits++;
	close(grave->fd);
	free(grave);
	return true;
}

struct front_user *crew_bury(struct fronts *fronts, uid_t uid, int fd)
{
	struct grave *grave = crew_has_unread(fd) ? calloc(1, sizeof(*grave)) : NULL;
	struct front_user *user = grave ? crew_user(fronts, uid) : NULL;

	if (!user) {
		free(grave);
		close(fd);
		return NULL;
	}
	grave->fd = fd;
	grave->in = -1;
	if (user->graves.count < GRAVES_APART || !crew_into_pit(user, grave))
		crew_append_grave(user, grave);
	return user;
}

int crew_give_grave(struct front *front)
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
	user->all->in_pits -= grave->holds;
	close(grave->fd); /* not the last close: a copy is on its way */
	if (grave->in >= 0)
		close(grave->in);
	free(grave);
	return 0;
}

void crew_leave_graves(struct front_user *user)
{
	struct grave *grave, *next;

	DL_FOREACH_SAFE (user->graves.all, grave, next) {
		door_leave(user->all->door, grave->fd);
		free(grave); /* its descriptors end with the process */
	}
	user->graves.all = NULL;
}

struct front_user *crew_user(struct fronts *fronts, uid_t uid)
{
	struct front_user *user;

	HASH_FIND(hh, fronts->users, &uid, sizeof(uid), user);
	if (user)
		return user;
	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	user->all = fronts;
	user->uid = uid;
	HASH_ADD(hh, fronts->users, uid, sizeof(user->uid), user);
	return user;
}

void crew_put_user(struct front_user *user)
{
	if (user->fronts || user->queue || user->graves.all)
		return;
	HASH_DEL(user->all->users, user);
	free(user);
}

static void crew_on_poll(uv_poll_t *poll, int status, int events)
{
	struct front *front = poll->data;
	struct front_answer *a = (void *)front->fronts->buffer;
	ssize_t n;
	int fd;

	(void)status, (void)events;
	n = passing_receive_one(front->fd, a, FRONT_ANSWER_MAX, &fd, MSG_DONTWAIT);
	if (n == -EAGAIN)
		return;
	if (n >= (ssize_t)sizeof(*a))
		front->fronts->crew->said(front, a, (void *)(a + 1), fd);
	else
		front->fronts->crew->gone(front);
}

struct front *crew_start(struct front_user *user, bool settled)
{
	struct fronts *fronts = user->all;
	struct front *front = fronts->count < FRONTS_ALL ? calloc(1, sizeof(*front)) : NULL;

	if (!front)
		return NULL;
	front->fd = door_new_front(fronts->door);
	if (front->fd == -EPIPE || front->fd == -ECONNRESET) {
		log_event(LINE_FRONT_FAILED,
			  "the process that starts fronts has ended: the keeper ends, and the next one has another");
		abort();
	}
	if (front->fd < 0 || uv_poll_init(fronts->loop, &front->poll, front->fd) != 0) {
		log_event(LINE_FRONT_FAILED, "a front cannot be started: %s",
			  strerror(front->fd < 0 ? -front->fd : ENOMEM));
		if (front->fd >= 0)
			close(front->fd);
		free(front);
		return NULL;
	}
	front->fronts = fronts;
	front->user = user;
	front->settled = settled;
	front->since_ns = clock_now_ns();
	front->poll.data = front;
	uv_poll_start(&front->poll, UV_READABLE | UV_DISCONNECT, crew_on_poll);
	uv_unref((uv_handle_t *)&front->poll);
	DL_APPEND(user->fronts, front);
	fronts->count++;
	*(settled ? &user->keepers : &user->readers) += 1;
	return front;
}

void crew_end(struct front *front)
{
	if (!front->ending)
		shutdown(front->fd, SHUT_WR);
	front->ending = true;
}

static void crew_on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

void crew_unlink(struct front *front)
{
	struct front_user *user = front->user;

	DL_DELETE(user->fronts, front);
	*(front->settled ? &user->keepers : &user->readers) -= 1;
	front->fronts->count--;
}

void crew_close(struct front *front)
{
	uv_poll_stop(&front->poll);
	close(front->fd);
	uv_close((uv_handle_t *)&front->poll, crew_on_closed);
}

void crew_take(struct front *front, struct front_connection *connection)
{
	front->connection = connection;
	connection->front = front;
}

struct front_connection *crew_let_go(struct front *front)
{
	struct front_connection *connection = front->connection;

	front->connection = NULL;
	if (connection)
		connection->front = NULL;
	return connection;
}

int crew_tell(struct front *front, const struct front_ask *ask, int fd)
{
	struct iovec part = {.iov_base = (void *)ask, .iov_len = sizeof(*ask)};

	return passing_send(front->fd, &part, 1, fd, MSG_DONTWAIT);
}

int crew_give_work(struct front *front, const struct front_ask *ask, int fd)
{
	int ret = crew_tell(front, ask, fd);

	if (ret < 0)
		return ret;
	front->busy = true;
	front->dev = 0;
	front->since_ns = clock_now_ns();
	return 0;
}

static void crew_on_timer(uv_timer_t *timer)
{
	struct fronts *fronts = timer->data;

	fronts->crew->look(fronts);
}

void crew_look_in(struct fronts *fronts, uint64_t ms)
{
	uv_handle_t *timer = (uv_handle_t *)&fronts->timer;

	if (uv_is_active(timer) && uv_timer_get_due_in(&fronts->timer) <= ms)
		return;
	uv_timer_start(&fronts->timer, crew_on_timer, ms, 0);
	uv_unref(timer);
}
