/* See listener.h. */
#include "keeper/callers/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/callers/callers.h"
#include "keeper/callers/dispatch.h"
#include "keeper/callers/session.h"
#include "keeper/clock.h"
#include "keeper/fronts/fronts.h"
#include "keeper/guard/table_words.h"
#include "keeper/kernel/overflowuid.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/queue.h"

static void on_listener_rest(uv_timer_t *timer)
{
	listener_rest_look(timer->data);
}

void listener_rest_start(struct keeper *k)
{
	uv_timer_init(k->loop, &k->sessions->rest);
	k->sessions->rest.data = k;
}

void listener_rest_stop(struct keeper *k)
{
	uv_close((uv_handle_t *)&k->sessions->rest, NULL);
}

void listener_rest_begin(struct session *s)
{
	struct sessions *sessions = s->keeper->sessions;

	if (s->waiter.rests && !uv_is_active((uv_handle_t *)&sessions->rest))
		uv_timer_start(&sessions->rest, on_listener_rest, LISTENER_REST_MS, 0);
}

/* The first ones of the list; it changes meanwhile. */
static unsigned listener_rest_collect(struct keeper *k, struct session *some[LISTENER_REST_MOST],
				      struct pollfd polls[LISTENER_REST_MOST])
{
	struct session *s;
	unsigned count = 0;

	DL_FOREACH2 (k->sessions->resting, s, rest_next) {
		if (count == LISTENER_REST_MOST)
			break;
		some[count] = s;
		polls[count++] = (struct pollfd){.fd = s->fd};
	}
	return count;
}

void listener_rest_look(struct keeper *k)
{
	struct session *some[LISTENER_REST_MOST];
	struct pollfd polls[LISTENER_REST_MOST];
	unsigned count = listener_rest_collect(k, some, polls);
	int ret = poll(polls, count, 0);

	/* A session that was closed meanwhile is freed by the loop, later. One that poll() or epoll has no memory for rests on. */
	for (unsigned i = 0; i < count && ret >= 0; i++) {
		if (!some[i]->waiter.rests)
			continue;
		if (polls[i].revents & POLLHUP)
			dispatch_close(some[i]);
		else
			session_watch(some[i]);
		queue_settle(k);
	}
	if (k->sessions->resting)
		listener_rest_begin(k->sessions->resting);
}

#define LISTENER_LOOK_MS 500 /* between two looks at all sessions */

/* The connection of a process that was killed stays open for as long as a child has a copy of it that the process forked meanwhile, in another
 * thread, and nobody reads the answer. A number that was used again tells nothing: hence the looks are often. */
static bool listener_is_left(const struct session *s)
{
	return (s->state == SESSION_WAITING || s->state == SESSION_PINNED) && kill(s->connected, 0) != 0 &&
	       errno == ESRCH;
}

static void on_listener_look(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	int64_t now_ns = clock_now_ns();
	struct session *s, *next;

	DL_FOREACH_SAFE (k->sessions->all, s, next) {
		if (listener_is_left(s))
			dispatch_close(s);
		else
			caller_look(s, now_ns);
	}
	queue_settle(k);
}

static void listener_look_start(struct keeper *k)
{
	uv_timer_t *timer = &k->sessions->look;

	uv_timer_init(k->loop, timer);
	timer->data = k;
	uv_timer_start(timer, on_listener_look, LISTENER_LOOK_MS, LISTENER_LOOK_MS);
}

#define LISTEN_BACKLOG 4096

/* Why the keeper can never serve this program: its process, or its user, has no number in the keeper's namespaces. */
static const char *peer_unknown(const struct keeper *k, const struct ucred *peer)
{
	if (peer->pid <= 0)
		return "the program runs in a pid namespace that the keeper cannot see: run a keeper in its container";
	if (k->system && peer->uid == k->listener->unknown_uid)
		return "the program's user is not known to the keeper's user namespace";
	return NULL;
}

/* NULL: the peer may have a connection, and QUOTA_CONNECTION was taken. */
static const char *peer_too_many(struct keeper *k, const struct ucred *peer)
{
	if (k->sessions->count >= k->listener->limit)
		return "the keeper serves too many programs at once: raise its RLIMIT_NOFILE";
	switch (quota_take(k, peer->uid, QUOTA_CONNECTION)) {
	case 0:
		return NULL;
	case -EDQUOT:
		return "this user asks too much at once: a quarter of what the keeper can serve";
	case -EBUSY:
		return "the keeper serves too many programs of users other than root at once: raise its RLIMIT_NOFILE";
	default:
		return "the keeper has no memory left";
	}
}

/* Is this a user whose descriptors must not come to the keeper? Not root, and not the keeper's own user. */
static bool peer_is_foreign(const struct keeper *k, const struct ucred *peer)
{
	return k->fronts && peer->uid != 0 && peer->uid != k->uid;
}

static void listener_turn_away(struct keeper *k, int fd, enum refusal refusal, const char *why, bool may_mend)
{
	struct ucred peer = {0};
	socklen_t len = sizeof(peer);

	session_turn_away(k, fd, refusal, why, may_mend);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer_is_foreign(k, &peer))
		fronts_bury(k->fronts, peer.uid, fd);
	else
		close(fd);
}

/* The question of a call that is over soon, or anything else? */
static void listener_let_rest(struct session *s)
{
	if (s->state != SESSION_INSPECTING && s->state != SESSION_WAITING && s->state != SESSION_PINNED)
		session_watch(s);
	if (s->keeper->sessions->rests >= LISTENER_REST_MOST)
		listener_rest_look(s->keeper);
	else
		listener_rest_begin(s);
}

static void listener_admit(struct keeper *k, int fd)
{
	struct session *s;
	struct ucred peer;
	socklen_t len = sizeof(peer);
	const char *why;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
		return listener_turn_away(k, fd, REFUSAL_PROGRAM, "the keeper cannot see which process asks", false);
	why = peer_unknown(k, &peer);
	if (why)
		return listener_turn_away(k, fd, REFUSAL_PROGRAM, why, false);
	why = peer_too_many(k, &peer);
	if (why && k->sessions->rests) {
		listener_rest_look(k);
		why = peer_too_many(k, &peer);
	}
	if (why)
		return listener_turn_away(k, fd, REFUSAL_ROOM, why, true);
	s = session_new(k, fd, &peer, peer_is_foreign(k, &peer));
	if (!s) {
		quota_give(k, peer.uid, QUOTA_CONNECTION);
		return listener_turn_away(k, fd, REFUSAL_ROOM, "the keeper has no memory left", true);
	}
	if (s->foreign) {
		session_watch(s);
	} else {
		dispatch_readable(s); /* mostly the question has arrived already */
		queue_settle(k);
	}
	listener_let_rest(s);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct keeper *k = poll->data;
	struct epoll_event ready[64];
	int count = epoll_wait(k->sessions->epoll, ready, sizeof(ready) / sizeof(*ready), 0);

	(void)status, (void)events;
	for (int i = 0; i < count; i++) {
		struct session *s = ready[i].data.ptr;

		if (ready[i].events & EPOLLHUP) /* whatever it has asked, nobody reads the answer */
			dispatch_close(s);
		else if (s->state != SESSION_CLOSED && s->foreign)
			fronts_receive(&s->reading);
		else if (s->state != SESSION_CLOSED)
			dispatch_readable(s);
		queue_settle(k); /* before the next session's question is looked at */
	}
}

/* No descriptor left: the spare one is given up for a moment, so that the peer is told instead of waiting. */
static void turn_next_away(struct keeper *k)
{
	struct listener *l = k->listener;
	int fd;

	close(l->spare_fd);
	fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		listener_turn_away(k, fd, REFUSAL_ROOM, "the keeper has no descriptor left: raise its RLIMIT_NOFILE",
				   true);
	l->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* A descriptor, or -errno. */
static int listener_accept(struct keeper *k)
{
	int fd = accept4(k->listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0 && (errno == EMFILE || errno == ENFILE) && k->sessions->rests) {
		listener_rest_look(k);
		fd = accept4(k->listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	}
	return fd < 0 ? -errno : fd;
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
	struct keeper *k = poll->data;
	int fd;

	(void)events;
	if (status < 0)
		return;
	/* Takes one connection: the loop reports the next one again, and mostly there is none. */
	fd = listener_accept(k);
	if (fd >= 0)
		listener_admit(k, fd);
	else if (fd == -EMFILE || fd == -ENFILE)
		turn_next_away(k);
	queue_settle(k);
}

/* Makes the socket. 0 or -errno. */
static int listener_bind(struct keeper *k, struct listener *l)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/" WIRE_SOCKET_NAME, k->runtime_dir);
	l->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	l->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0 || l->spare_fd < 0)
		return -errno;
	unlink(address.sun_path); /* an earlier keeper's; keeper.lock says that it is gone */
	if (bind(l->fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
	    chmod(address.sun_path, k->system ? 0666 : 0600) != 0 || listen(l->fd, LISTEN_BACKLOG) != 0)
		return -errno;
	return k->fronts ? fronts_leave_open(k->fronts, l->fd) : 0;
}

int listener_start(struct keeper *k, unsigned limit)
{
	struct listener *l = calloc(1, sizeof(*l));
	int ret;

	if (!l)
		return -ENOMEM;
	k->listener = l;
	l->limit = limit;
	l->unknown_uid = overflowuid_get();
	ret = listener_bind(k, l);
	if (ret == 0)
		ret = uv_poll_init(k->loop, &l->readable, k->sessions->epoll);
	if (ret == 0)
		ret = uv_poll_init(k->loop, &l->accepting, l->fd);
	if (ret < 0)
		return ret;
	l->readable.data = l->accepting.data = k;
	listener_rest_start(k);
	listener_look_start(k);
	k->sessions->idle_since_ns = clock_now_ns();
	uv_poll_start(&l->readable, UV_READABLE, on_readable);
	return uv_poll_start(&l->accepting, UV_READABLE, on_connection);
}

void listener_free(struct keeper *k)
{
	free(k->listener);
	k->listener = NULL;
}

void listener_stop(struct keeper *k)
{
	struct listener *l = k->listener;
	struct session *s, *next;

	/* With the socket there, and nothing that listens, programs know that the next keeper is about to start. */
	if (table_get32(&k->table->head->ending) != TABLE_TOLD_TO_MAKE_WAY)
		unlinkat(k->dir_fd, WIRE_SOCKET_NAME, 0);
	uv_close((uv_handle_t *)&l->accepting, NULL);
	uv_close((uv_handle_t *)&l->readable, NULL);
	listener_rest_stop(k);
	uv_close((uv_handle_t *)&k->sessions->look, NULL);
	close(l->fd);
	close(l->spare_fd);
	DL_FOREACH_SAFE (k->sessions->all, s, next)
		dispatch_close(s);
	queue_settle(k);
}

void listener_abandon(struct keeper *k)
{
	struct listener *l = k->listener;
	struct session *s;
	int fd;

	unlinkat(k->dir_fd, WIRE_SOCKET_NAME, 0);
	shutdown(l->fd, SHUT_RDWR); /* connecting fails from now on */
	while ((fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		shutdown(fd, SHUT_RDWR);
		if (!k->fronts || fronts_leave_open(k->fronts, fd) == 0)
			close(fd);
	}
	DL_FOREACH (k->sessions->all, s)
		if (s->state != SESSION_CLOSED)
			shutdown(s->fd, SHUT_RDWR);
}
