/*
 * See sessions.h. A session is one connection: it reads a question, passes the descriptor to a worker, and
 * then waits in serve.c until there is an answer (replies.c). What a peer sends is checked in question.c.
 *
 * Freeing: the timer of a session closes in the loop, after the events of this turn; a worker that looks at its
 * descriptor keeps it alive, too. The last of them frees it (uses). So an event of this turn may name a session that
 * is closed, but never one that is freed.
 */
#include "keeper/callers/sessions.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/leases/act.h"
#include "keeper/clock.h"
#include "keeper/callers/control.h"
#include "keeper/fronts/frontmsg.h"
#include "keeper/fronts/fronts.h"
#include "keeper/fronts/reading.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"
#include "keeper/callers/lookup.h"
#include "keeper/kernel/overflowuid.h"
#include "keeper/fronts/question.h"
#include "keeper/callers/serve.h"

#define LISTEN_BACKLOG 4096

void session_unuse(struct session *s)
{
	if (--s->uses == 0)
		free(s);
}

static void on_timer_closed(uv_handle_t *handle)
{
	session_unuse(handle->data);
}

static void session_close(struct session *s)
{
	struct keeper *k = s->keeper;

	if (s->state == SESSION_CLOSED)
		return;
	serve_end(s);
	before_free(&s->before);
	if (s->foreign)
		reading_leave(&s->reading);
	lookup_leave(s);
	s->state = SESSION_CLOSED;
	DL_DELETE(k->sessions, s);
	if (!--k->session_count)
		k->idle_since_ns = clock_now_ns();
	uv_close((uv_handle_t *)&s->timer, on_timer_closed);
	if (!s->foreign) {
		close(s->fd); /* leaves session_epoll by that */
		return;
	}
	epoll_ctl(k->session_epoll, EPOLL_CTL_DEL, s->fd, NULL); /* a front may have a copy */
	fronts_bury(k->fronts, s->peer.uid, s->fd);
}

void session_slow(struct session *s, int ms)
{
	if (s->foreign)
		reading_leave(&s->reading);
	lookup_leave(s);
	session_refuse(
		s, "its file system has not answered the keeper for %d s: is the server that it is mounted from away?",
		ms / 1000);
}

/* --- questions --- */

/* Not about a lock. */
static void on_question(struct session *s, const struct wire_request *r, enum question_kind kind)
{
	switch (kind) {
	case QUESTION_BEFORE:
		return session_tell_before(s, r->from);
	case QUESTION_CONTROL:
		s->request = *r;
		return control_question(s);
	case QUESTION_OTHER_VERSION:
		session_refuse(s,
			       "the keeper (dflockd " DFLOCK_VERSION
			       ", protocol %d) and libdflock.so (protocol %d) are of "
			       "different versions: end the keeper with `dflock stop`",
			       WIRE_VERSION, r->version);
		return;
	default:
		log_info("pid %d sent a malformed question: disconnected", (int)s->peer.pid);
		return session_close(s);
	}
}

static void close_all(struct keeper *k, const struct question_fds *came)
{
	for (unsigned i = 0; i < came->count; i++)
		lookup_close(k, came->fds[i]);
}

/* n as of question_receive(). May the question be looked at? If not, the peer has been told, or disconnected. */
static bool is_in_turn(struct session *s, ssize_t n)
{
	if (n == -EMFILE) {
		session_refuse(s, "the keeper has no descriptor left: raise its RLIMIT_NOFILE");
		return false;
	}
	if (n == -EBADMSG)
		log_info("pid %d sent more than one descriptor: disconnected", (int)s->peer.pid);
	if (n > 0 && s->state == SESSION_PINNED) { /* ends the pin; an early answer is re-asked for */
		serve_end(s);
		s->state = SESSION_READING;
	}
	if (n > 0 && s->state != SESSION_READING)
		log_info("pid %d asked again before it had its answer: disconnected", (int)s->peer.pid);
	if (n <= 0 || s->state != SESSION_READING) {
		session_close(s);
		return false;
	}
	s->started = time(NULL);
	return true;
}

static void session_readable(struct session *s)
{
	struct wire_request request = {0};
	struct question_fds came;
	enum question_kind kind;
	ssize_t n;

	n = question_receive(s->fd, &request, &came);
	if (n == -EAGAIN || n == -EINTR)
		return;
	s->received_ns = clock_now_ns(); /* only now: see session_grant() */
	if (!is_in_turn(s, n)) {
		close_all(s->keeper, &came);
		return;
	}
	kind = question_check(&request, n, came.count > 0);
	if (kind == QUESTION_LOCK) {
		s->request = request;
		return lookup_start(s, came.fds[0]);
	}
	close_all(s->keeper, &came);
	on_question(s, &request, kind);
}

static void on_received(struct front_connection *reading, const struct front_answer *a, const struct held *before,
			int fd)
{
	struct session *s = reading->owner;

	if (a->n == -EAGAIN || a->n == -EINTR)
		return;
	s->received_ns = a->received_ns;
	if (is_in_turn(s, a->n)) {
		if (!a->looked)
			return on_question(s, &a->request, question_check(&a->request, a->n, a->has_fd));
		s->request = a->request;
		return lookup_received(s, a, before, fd);
	}
	file_close(s->keeper, a->dev, fd, true);
	/* A session that was closed has left the front, which is told by reading.c; one that was refused has not. */
}

static void on_slow(struct front_connection *reading, int ms)
{
	session_slow(reading->owner, ms);
}

static void on_refused(struct front_connection *reading, const char *why)
{
	session_refuse(reading->owner, "%s", why);
}

const struct fronts_news session_fronts_news = {.received = on_received, .slow = on_slow, .refused = on_refused};

/* --- connections --- */

static const char *peer_refused(const struct keeper *k, const struct ucred *peer)
{
	if (peer->pid <= 0)
		return "the program runs in a pid namespace that the keeper cannot see: run a keeper in its container";
	if (k->session_count >= k->session_limit)
		return "the keeper serves too many programs at once: raise its RLIMIT_NOFILE";
	if (!k->system)
		return NULL;
	if (peer->uid == k->unknown_uid)
		return "the program's user is not known to the keeper's user namespace";
	if (peer->uid != 0) {
		unsigned count = 0;
		const struct session *s;

		DL_FOREACH (k->sessions, s)
			count += s->peer.uid == peer->uid;
		if (count >= k->session_limit / 4)
			return "this user asks too much at once: a quarter of what the keeper can serve";
	}
	return NULL;
}

/* Is this a user whose descriptors must not come to the keeper? Root is not, nor is the keeper's own user. */
static bool is_foreign(const struct keeper *k, const struct ucred *peer)
{
	return k->fronts && peer->uid != 0 && peer->uid != geteuid();
}

static void turn_away(struct keeper *k, int fd, const char *why)
{
	struct ucred peer = {0};
	socklen_t len = sizeof(peer);

	reply_refused(fd, why);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && is_foreign(k, &peer))
		fronts_bury(k->fronts, peer.uid, fd);
	else
		close(fd);
}

static void session_new(struct keeper *k, int fd)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};
	struct session *s = NULL;
	struct ucred peer;
	socklen_t len = sizeof(peer);
	const char *why;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
		return turn_away(k, fd, "the keeper cannot see who asks");
	why = peer_refused(k, &peer);
	if (why)
		return turn_away(k, fd, why);
	s = calloc(1, sizeof(*s));
	event.data.ptr = s;
	if (is_foreign(k, &peer))
		event.events |= EPOLLET; /* a front reads it, later */
	if (!s || epoll_ctl(k->session_epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
		free(s);
		return turn_away(k, fd, "the keeper has no memory left");
	}
	s->keeper = k;
	s->fd = fd;
	s->held_fd = -1;
	s->peer = peer;
	s->uses = 1;
	uv_timer_init(k->loop, &s->timer);
	s->timer.data = s;
	DL_APPEND(k->sessions, s);
	k->session_count++;
	s->foreign = is_foreign(k, &peer);
	s->reading = (struct front_connection){.fronts = k->fronts, .owner = s, .uid = peer.uid, .fd = fd};
	if (!s->foreign)
		session_readable(s); /* the question mostly is there already */
}

static void on_session_events(uv_poll_t *poll, int status, int events)
{
	struct keeper *k = poll->data;
	struct epoll_event ready[64];
	int count = epoll_wait(k->session_epoll, ready, sizeof(ready) / sizeof(*ready), 0);

	(void)status, (void)events;
	for (int i = 0; i < count; i++) {
		struct session *s = ready[i].data.ptr;

		if (ready[i].events & EPOLLHUP) /* whatever it has asked, nobody reads the answer */
			session_close(s);
		else if (s->state != SESSION_CLOSED && s->foreign)
			reading_receive(&s->reading);
		else if (s->state != SESSION_CLOSED)
			session_readable(s);
	}
}

/* No descriptor left: the spare one is given up for a moment, so that the peer is told instead of waiting. */
static void turn_away_next(struct keeper *k)
{
	int fd;

	close(k->spare_fd);
	fd = accept4(k->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		turn_away(k, fd, "the keeper has no descriptor left: raise its RLIMIT_NOFILE");
	k->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
	struct keeper *k = poll->data;
	int fd;

	(void)events;
	if (status < 0)
		return;
	/* One: the loop tells of the next one again, and mostly there is none. */
	fd = accept4(k->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		session_new(k, fd);
	else if (errno == EMFILE || errno == ENFILE)
		turn_away_next(k);
}

int sessions_start(struct keeper *k)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int ret;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/" WIRE_SOCKET_NAME, k->runtime_dir);
	k->unknown_uid = overflowuid_get();
	k->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	k->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (k->listen_fd < 0 || k->spare_fd < 0)
		return -errno;
	unlink(address.sun_path); /* an earlier keeper's; keeper.lock says that it is gone */
	if (bind(k->listen_fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
	    chmod(address.sun_path, k->system ? 0666 : 0600) != 0 || listen(k->listen_fd, LISTEN_BACKLOG) != 0)
		return -errno;
	k->session_epoll = epoll_create1(EPOLL_CLOEXEC);
	if (k->session_epoll < 0)
		return -errno;
	if (k->fronts && (ret = fronts_listen(k->fronts, k->listen_fd)) < 0)
		return ret;
	ret = uv_poll_init(k->loop, &k->session_events, k->session_epoll);
	if (ret == 0)
		ret = uv_poll_init(k->loop, &k->listen, k->listen_fd);
	if (ret < 0)
		return ret;
	k->session_events.data = k;
	uv_poll_start(&k->session_events, UV_READABLE, on_session_events);
	k->listen.data = k;
	k->idle_since_ns = clock_now_ns();
	return uv_poll_start(&k->listen, UV_READABLE, on_connection);
}

void sessions_stop(struct keeper *k)
{
	struct session *s, *next;

	unlinkat(k->dir_fd, WIRE_SOCKET_NAME, 0);
	uv_close((uv_handle_t *)&k->listen, NULL);
	uv_close((uv_handle_t *)&k->session_events, NULL);
	close(k->listen_fd);
	close(k->spare_fd);
	keeper_enter(k);
	DL_FOREACH_SAFE (k->sessions, s, next)
		session_close(s);
	keeper_leave(k);
	close(k->session_epoll);
}

void sessions_abandon(struct keeper *k)
{
	struct session *s;
	int fd;

	unlinkat(k->dir_fd, WIRE_SOCKET_NAME, 0);
	shutdown(k->listen_fd, SHUT_RDWR); /* who connects is refused from now on */
	while ((fd = accept4(k->listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		shutdown(fd, SHUT_RDWR);
		if (!k->fronts || fronts_abandon(k->fronts, fd) == 0)
			close(fd);
	}
	DL_FOREACH (k->sessions, s)
		if (s->state != SESSION_CLOSED)
			shutdown(s->fd, SHUT_RDWR);
}
