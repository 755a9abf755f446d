/*
 * See fronts.h.
 *
 * Why nothing here waits: every socket to a front is non-blocking; what a keeping front does not take at once stays in
 * `unsent`. A front is asked one question at a time.
 *
 * Why a front is not lost sight of: it counts from its start until its socket says that the process has ended, which a
 * process that hangs does not do. One that is not needed is told by the end of its input.
 *
 * Closing connections: the last close of one closes what is in its queue. So a connection that has something unread
 * when nothing can be added to it any more (shutdown) is closed by a front, and waits in `graves` until one is free.
 * The keeper closes the others, which are nearly all.
 */
#include "keeper/fronts/fronts_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"
#include "keeper/callers/dispatch.h"
#include "keeper/callers/lookup.h"

/* --- fronts: start, ask, end --- */

struct front_user *front_user_get(struct fronts *fronts, uid_t uid)
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

static void user_put(struct fronts *fronts, struct front_user *user)
{
	if (user->fronts || user->queue || user->graves)
		return;
	HASH_DEL(fronts->users, user);
	free(user);
}

static void on_front(uv_poll_t *poll, int status, int events);

struct front *front_new(struct front_user *user, bool settled)
{
	struct fronts *fronts = user->all;
	struct front *front = fronts->count < FRONTS_ALL ? calloc(1, sizeof(*front)) : NULL;

	if (!front)
		return NULL;
	front->fd = front_start(fronts->door);
	if (front->fd == -EPIPE || front->fd == -ECONNRESET) {
		log_error("the process that starts fronts has ended: the keeper ends, and the next one has another");
		abort();
	}
	if (front->fd < 0 || uv_poll_init(fronts->k->loop, &front->poll, front->fd) != 0) {
		log_error("a front cannot be started: %s", strerror(front->fd < 0 ? -front->fd : ENOMEM));
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
	uv_poll_start(&front->poll, UV_READABLE | UV_DISCONNECT, on_front);
	uv_unref((uv_handle_t *)&front->poll);
	DL_APPEND(user->fronts, front);
	fronts->count++;
	*(settled ? &user->keepers : &user->readers) += 1;
	return front;
}

void front_end(struct front *front)
{
	if (!front->ending)
		shutdown(front->fd, SHUT_WR);
	front->ending = true;
}

int front_tell(struct front *front, const struct front_ask *ask, int fd)
{
	struct iovec part = {.iov_base = (void *)ask, .iov_len = sizeof(*ask)};

	return front_send(front->fd, &part, 1, fd, MSG_DONTWAIT);
}

static void on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static void front_gone(struct front *front)
{
	struct fronts *fronts = front->fronts;
	struct front_user *user = front->user;
	struct session *s = front->session;
	struct unsent *u, *next;

	if (front->settled && !front->ending)
		log_error("the front that keeps files of uid %u has ended", user->uid);
	front->session = NULL;
	if (front->giving)
		away_forget(front->giving);
	DL_DELETE(user->fronts, front);
	*(front->settled ? &user->keepers : &user->readers) -= 1;
	fronts->count--;
	away_lose(front);
	DL_FOREACH_SAFE (front->unsent, u, next) {
		DL_DELETE(front->unsent, u);
		free(u);
	}
	uv_poll_stop(&front->poll);
	close(front->fd);
	uv_close((uv_handle_t *)&front->poll, on_closed);
	if (s) {
		s->front = NULL;
		lookup_slow(s, FRONTS_SLOW_MS);
	}
	fronts_look_in(fronts, FRONTS_BUSY_MS); /* not at once: the next one may end as soon */
}

/* --- what they say --- */

void front_drop(struct front *front)
{
	const struct front_ask ask = {.op = FRONT_DROP};

	if (front->awaits && front_tell(front, &ask, -1) < 0)
		front_end(front);
	if (front->awaits && front->session) {
		front->session->front = NULL;
		front->session = NULL;
	}
	front->awaits = front->held = false;
}

void fronts_hold(struct session *s)
{
	struct front *front = s->front;

	front->held = true;
	front->dev = 0; /* that has answered */
	front->since_ns = clock_now_ns();
}

void fronts_release(struct session *s)
{
	if (!s->front || !s->front->held)
		return;
	s->front->held = false;
	front_drop(s->front);
	fronts_receive_again(s);
}

void fronts_receive_again(struct session *s)
{
	if (s->front_again && !s->front && s->state != SESSION_CLOSED)
		fronts_receive(s);
}

static void on_question(struct front *front, const struct front_answer *a, const struct held *before, int fd)
{
	struct session *s = front->session;

	front->awaits = a->away;
	front->reading = false;
	front->busy = !a->ready;
	front->dev = a->looked && !a->local ? a->dev : 0;
	if (!s) {
		if (fd >= 0)
			file_close(front->fronts->k, a->dev, fd, true);
		front_drop(front);
		return;
	}
	if (!a->away) {
		front->session = NULL;
		s->front = NULL;
	}
	dispatch_received(s, a, before, fd);
	if (!front->held)
		front_drop(front); /* unless it was told what to do with it */
	fronts_receive_again(s);
}

static void on_answer(struct front *front, const struct front_answer *a, const struct held *before, int fd)
{
	struct front_user *user = front->user;

	switch (a->said) {
	case FRONT_QUESTION:
		on_question(front, a, before, fd);
		break;
	case FRONT_LOOKING:
		front->dev = a->dev;
		break;
	case FRONT_READING:
		front->reading = true;
		front->dev = 0;
		break;
	case FRONT_READY:
		front->busy = false;
		front->since_ns = clock_now_ns();
		break;
	case FRONT_GIVEN:
		away_given(front, a);
		break;
	case FRONT_PROBED:
	case FRONT_TESTED:
	case FRONT_LOOKED:
		away_probed(front, a);
		break;
	case FRONT_FORGOT:
		break;
	}
	fronts_serve(user);
}

static void on_front(uv_poll_t *poll, int status, int events)
{
	struct front *front = poll->data;
	struct front_answer *a = (void *)front->fronts->buffer;
	ssize_t n;
	int fd;

	(void)status, (void)events;
	n = front_recv(front->fd, a, FRONT_ANSWER_MAX, &fd, MSG_DONTWAIT);
	if (n == -EAGAIN)
		return;
	if (n >= (ssize_t)sizeof(*a))
		on_answer(front, a, (void *)(a + 1), fd);
	else
		front_gone(front);
}

/* --- time --- */

static void look_at_front(struct front *front, int64_t now, bool *surplus)
{
	front_send_unsent(front);
	if (front->settled) {
		if (!front->away && !front->unsent && now - front->since_ns > FRONTS_IDLE_MS * NS_PER_MS)
			front_end(front);
		return;
	}
	if (front->busy) {
		front_note_hung(front);
		if (front->session && !front->held && !front->reading &&
		    now - front->session->front_since_ns > FRONTS_SLOW_MS * NS_PER_MS)
			lookup_slow(front->session, FRONTS_SLOW_MS);
		return;
	}
	/* Where nearly as many as there may be hang, a user keeps the one that it has. */
	if (*surplus || (now - front->since_ns > FRONTS_IDLE_MS * NS_PER_MS && front->fronts->count < FRONTS_ALL / 2))
		front_end(front);
	*surplus = true;
}

/* How soon to look again, in ms. */
static uint64_t look_at_user(struct front_user *user, int64_t now)
{
	struct front *front, *next;
	bool idle = false;
	uint64_t ms = FRONTS_IDLE_MS;

	DL_FOREACH_SAFE (user->fronts, front, next) {
		look_at_front(front, now, &idle);
		if (front->busy || front->unsent)
			ms = FRONTS_LOOK_MS;
	}
	fronts_refuse_old(user);
	fronts_serve(user);
	return user->queue || user->graves ? FRONTS_BUSY_MS : ms;
}

static void on_timer(uv_timer_t *timer)
{
	struct fronts *fronts = timer->data;
	struct front_user *user, *next;
	uint64_t ms = 0;
	int64_t now = clock_now_ns();

	HASH_ITER (hh, fronts->users, user, next) {
		uint64_t soon = look_at_user(user, now);

		if (!ms || soon < ms)
			ms = soon;
		user_put(fronts, user);
	}
	if (ms)
		fronts_look_in(fronts, ms);
}

void fronts_look_in(struct fronts *fronts, uint64_t ms)
{
	uv_handle_t *timer = (uv_handle_t *)&fronts->timer;

	if (uv_is_active(timer) && uv_timer_get_due_in(&fronts->timer) <= ms)
		return;
	uv_timer_start(&fronts->timer, on_timer, ms, 0);
	uv_unref(timer);
}

/* --- start and end --- */

struct fronts *fronts_new(struct keeper *k, int door)
{
	struct fronts *fronts = calloc(1, sizeof(*fronts));

	if (!fronts)
		return NULL;
	fronts->k = k;
	fronts->door = door;
	uv_timer_init(k->loop, &fronts->timer);
	fronts->timer.data = fronts;
	return fronts;
}

int fronts_listen(struct fronts *fronts, int listen_fd)
{
	return front_leave_with_door(fronts->door, listen_fd);
}

int fronts_abandon(struct fronts *fronts, int fd)
{
	return front_leave_with_door(fronts->door, fd);
}

static void free_front(struct front *front)
{
	struct unsent *u, *next;
	struct away *away, *next_away;

	DL_FOREACH_SAFE (front->unsent, u, next)
		free(u);
	away_free_probes(front);
	DL_FOREACH_SAFE (front->away, away, next_away) {
		if (away->owner)
			*away->owner = NULL;
		free(away);
	}
	uv_poll_stop(&front->poll);
	close(front->fd);
	uv_close((uv_handle_t *)&front->poll, on_closed);
}

void fronts_free(struct fronts *fronts)
{
	struct front_user *user, *next_user;
	struct front *front, *next;
	struct grave *grave, *next_grave;

	if (!fronts)
		return;
	HASH_ITER (hh, fronts->users, user, next_user) {
		DL_FOREACH_SAFE (user->fronts, front, next)
			free_front(front);
		DL_FOREACH_SAFE (user->graves, grave, next_grave) {
			front_leave_with_door(fronts->door, grave->fd);
			free(grave); /* its descriptors end with the process */
		}
		HASH_DEL(fronts->users, user);
		free(user);
	}
	close(fronts->door);
	fronts->door = -1;
	fronts->timer.data = fronts;
	uv_close((uv_handle_t *)&fronts->timer, on_closed);
}
