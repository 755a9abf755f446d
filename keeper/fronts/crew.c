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
