/*
 * See session.h.
 *
 * Freeing: the session's timer closes in the loop, after the events of this turn; a worker that looks at the session's
 * descriptor keeps the session alive, too. The last user frees it (uses). So an event of this turn may name a session
 * that is closed, but never one that is freed.
 */
#include "keeper/callers/session.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/kernel/comm.h"
#include "keeper/kernel/copies.h"
#include "keeper/leases/keeper.h"
#include "wire/text.h"

int sessions_init(struct keeper *k)
{
	k->sessions = calloc(1, sizeof(*k->sessions));
	if (!k->sessions)
		return -ENOMEM;
	k->sessions->epoll = epoll_create1(EPOLL_CLOEXEC);
	k->sessions->idle_since_ns = clock_now_ns();
	return k->sessions->epoll < 0 ? -errno : 0;
}

void sessions_free(struct keeper *k)
{
	close(k->sessions->epoll);
	free(k->sessions);
	k->sessions = NULL;
}

struct session *session_new(struct keeper *k, int fd, const struct ucred *peer, bool foreign)
{
	struct session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->keeper = k;
	s->fd = fd;
	s->peer = *peer;
	s->connected = peer->pid;
	s->foreign = foreign;
	s->reading = (struct front_connection){.fronts = k->fronts, .owner = s, .uid = peer->uid, .fd = fd};
	s->lookup = (struct lookup)LOOKUP_NONE;
	s->uses = 1; /* the timer's */
	uv_timer_init(k->loop, &s->timer);
	s->timer.data = s;
	DL_APPEND(k->sessions->all, s);
	DL_APPEND2(k->sessions->resting, s, rest_prev, rest_next);
	s->waiter.rests = true;
	k->sessions->rests++;
	k->sessions->count++;
	k->sessions->accepted++;
	return s;
}

static void session_rests_no_more(struct session *s)
{
	if (!s->waiter.rests)
		return;
	s->waiter.rests = false;
	DL_DELETE2(s->keeper->sessions->resting, s, rest_prev, rest_next);
	s->keeper->sessions->rests--;
}

void session_watch(struct session *s)
{
	/* A front reads a foreign connection later, so epoll reports each message once (edge-triggered). */
	struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | (s->foreign ? EPOLLET : 0), .data.ptr = s};

	if (s->waiter.rests && epoll_ctl(s->keeper->sessions->epoll, EPOLL_CTL_ADD, s->fd, &event) == 0)
		session_rests_no_more(s);
}

bool session_has_hung_up(const struct session *s)
{
	struct pollfd one = {.fd = s->fd};

	return poll(&one, 1, 0) == 1 && one.revents & POLLHUP;
}

void session_enter(struct session *s, enum session_state state)
{
	struct sessions *sessions = s->keeper->sessions;

	/* The request is another one only after the session has left SESSION_WAITING. */
	sessions->waiting[s->request.space] -= s->state == SESSION_WAITING;
	sessions->waiting[s->request.space] += state == SESSION_WAITING;
	sessions->counts.abandoned += s->state == SESSION_WAITING && state == SESSION_CLOSED;
	s->state = state;
}

void session_ask_for(struct session *s, const struct onbehalf *who)
{
	s->behalf = *who;
	s->again = s->called_back = false;
	s->peer.pid = who->thread ? who->pid : s->connected;
}

void session_command(const struct session *s, char out[JOB_COMMAND_BYTES])
{
	_Static_assert(JOB_COMMAND_BYTES == WIRE_COMMAND_BYTES && JOB_COMMAND_BYTES == COMM_BYTES, "the same names");
	memcpy(out, s->request.command, JOB_COMMAND_BYTES);
	out[JOB_COMMAND_BYTES - 1] = '\0';
	if (*out)
		text_make_printable(out, strlen(out));
	else
		comm_read(s->peer.pid, out);
}

void session_use(struct session *s)
{
	s->uses++;
}

void session_unuse(struct session *s)
{
	if (--s->uses == 0)
		free(s);
}

static void on_session_timer_closed(uv_handle_t *handle)
{
	session_unuse(handle->data);
}

bool session_is_asking(const struct keeper *k, pid_t pid)
{
	const struct session *s;

	DL_FOREACH (k->sessions->all, s)
		if (s->peer.pid == pid)
			return true;
	return false;
}

void session_stop_waiting(struct session *s)
{
	if (!s->waiter.lock)
		return;
	uv_timer_stop(&s->timer);
	room_leave(&s->waiter);
	waiters_remove(&s->waiter);
}

void session_end(struct session *s)
{
	struct sessions *sessions = s->keeper->sessions;

	session_enter(s, SESSION_CLOSED);
	session_rests_no_more(s);
	DL_DELETE(sessions->all, s);
	quota_give(s->keeper, s->peer.uid, QUOTA_CONNECTION);
	if (!--sessions->count)
		sessions->idle_since_ns = clock_now_ns();
	/* close() does that, but not while there is a copy: a front may have one. */
	if (s->foreign || copies_are_possible())
		epoll_ctl(sessions->epoll, EPOLL_CTL_DEL, s->fd, NULL);
	uv_close((uv_handle_t *)&s->timer, on_session_timer_closed);
}
