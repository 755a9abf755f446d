/*
 * Who reads what: a user's connections, and its fronts that read questions. See fronts.h.
 *
 * Closing connections: the last close of one closes what is in its queue. So a connection that has something unread
 * when nothing can be added to it any more (shutdown) is closed by a front, and waits among the graves until one is
 * free. The keeper closes the others, which are nearly all. Many graves of a user whose fronts all hang share a pit: a
 * socket in whose queue they wait, so that they take few descriptors of the keeper's. What is in pits is in flight, of
 * which the kernel allows each user as much as its RLIMIT_NOFILE.
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
#include "keeper/callers/session.h"

#define GRAVES_APART 16 /* of one user; more share pits */

static bool is_slow(const struct front *front, int64_t now)
{
	return front->busy && now - front->since_ns > FRONTS_SLOW_MS * NS_PER_MS;
}

static struct front *find_idle(const struct front_user *user)
{
	struct front *front;

	DL_FOREACH (user->fronts, front)
		if (!front->busy && !front->settled && !front->ending)
			return front;
	return NULL;
}

/*
 * Is another front to be started? The second one when the first does not answer at once; more only when it is known
 * that all hang, and so on which devices: what is on these they refuse. So a mount that hangs takes two fronts, and not
 * all, unless even a close of its files hangs.
 */
static bool needs_another(const struct front_user *user, unsigned limit)
{
	int64_t patience = (user->readers < 2 ? FRONTS_BUSY_MS : FRONTS_SLOW_MS) * NS_PER_MS, now = clock_now_ns();
	const struct front *front;

	if (user->readers >= limit)
		return false;
	DL_FOREACH (user->fronts, front)
		if (!front->settled && !front->ending && now - front->since_ns < patience)
			return false;
	return true;
}

void front_note_hung(struct front *front)
{
	struct front_user *user = front->user;
	int64_t now = clock_now_ns();
	unsigned oldest = 0;

	if (!front->dev || !is_slow(front, now))
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
	user->hung[oldest].seen_ns = now;
}

static void tell_hung(const struct front_user *user, struct front_ask *ask)
{
	int64_t now = clock_now_ns();

	for (unsigned i = 0; i < FRONT_MAX_HUNG; i++)
		if (user->hung[i].dev && now - user->hung[i].seen_ns < FRONTS_HUNG_MS * NS_PER_MS)
			ask->hung[ask->hung_count++] = user->hung[i].dev;
}

static bool give_work(struct front *front, enum front_op op, int fd)
{
	struct front_ask ask = {.op = op};

	if (op == FRONT_RECEIVE)
		tell_hung(front->user, &ask);
	if (front_tell(front, &ask, fd) < 0)
		return false;
	front->busy = true;
	front->dev = 0;
	front->since_ns = clock_now_ns();
	return true;
}

static void read_next(struct front_user *user, struct front *front)
{
	struct session *s = user->queue;

	if (!give_work(front, FRONT_RECEIVE, s->fd)) {
		front_end(front); /* front_gone() comes */
		return;
	}
	DL_DELETE2(user->queue, s, front_prev, front_next);
	s->front_queued = s->front_again = false;
	s->front = front;
	front->session = s;
}

static void bury_next(struct front_user *user, struct front *front)
{
	struct grave *grave = user->graves;

	if (!give_work(front, FRONT_BURY, grave->fd)) {
		front_end(front);
		return;
	}
	DL_DELETE(user->graves, grave);
	user->grave_count--;
	close(grave->fd); /* not the last: one is on its way */
	if (grave->in >= 0)
		close(grave->in);
	free(grave);
}

void fronts_serve(struct front_user *user)
{
	while (user->queue || user->graves) {
		struct front *front = find_idle(user);

		if (!front && needs_another(user, user->queue ? FRONTS_PER_USER : FRONTS_PER_USER + 1))
			front = front_new(user, false);
		if (!front)
			return;
		if (user->queue)
			read_next(user, front);
		else
			bury_next(user, front);
	}
}

/* Do all of its fronts hang, so that nobody will read it? */
static bool all_hang(const struct front_user *user)
{
	int64_t now = clock_now_ns();
	const struct front *front;

	if (user->readers < FRONTS_PER_USER)
		return false;
	DL_FOREACH (user->fronts, front)
		if (!front->settled && !is_slow(front, now))
			return false;
	return true;
}

static void refuse_unread(struct session *s)
{
	session_refuse(
		s,
		"the file systems of other files of uid %u do not answer the keeper: is a server away that they are "
		"mounted from?",
		s->peer.uid);
}

void fronts_refuse_old(struct front_user *user)
{
	struct session *s, *next;
	int64_t now = clock_now_ns();

	DL_FOREACH_SAFE2 (user->queue, s, next, front_next) {
		if (now - s->front_since_ns < FRONTS_QUEUE_MS * NS_PER_MS)
			return;
		fronts_leave(s);
		refuse_unread(s);
	}
}

void fronts_receive(struct session *s)
{
	struct fronts *fronts = s->keeper->fronts;
	struct front_user *user;

	s->front_again = s->front != NULL;
	if (s->front || s->front_queued)
		return;
	user = front_user_get(fronts, s->peer.uid);
	if (!user) {
		session_refuse(s, "the keeper has no memory left");
		return;
	}
	if (all_hang(user) || (!user->readers && fronts->count >= FRONTS_ALL)) {
		refuse_unread(s);
		return;
	}
	s->front_queued = true;
	s->front_since_ns = clock_now_ns();
	DL_APPEND2(user->queue, s, front_prev, front_next);
	fronts_serve(user);
	fronts_look_in(fronts, user->queue ? FRONTS_BUSY_MS : FRONTS_LOOK_MS);
}

void fronts_leave(struct session *s)
{
	struct fronts *fronts = s->keeper->fronts;
	struct front_user *user;
	struct front *front;
	struct away_probe *probe, *next;

	HASH_FIND(hh, fronts->users, &s->peer.uid, sizeof(s->peer.uid), user);
	if (!user)
		return;
	if (s->front_queued)
		DL_DELETE2(user->queue, s, front_prev, front_next);
	if (s->front)
		s->front->session = NULL;
	if (s->front && s->front->held)
		front_drop(s->front);
	s->front_queued = s->front_again = false;
	s->front = NULL;
	if (!s->front_tests)
		return;
	s->front_tests = false;
	DL_FOREACH (user->fronts, front)
		HASH_ITER (hh, front->probes, probe, next)
			if (probe->session == s)
				probe->session = NULL;
}

/* Nothing can be added any more. Is there something that has not been read? Not whether: what it is does not matter. */
static bool has_unread(int fd)
{
	struct msghdr msg = {0};
	int on = 1;

	/* With credentials even an empty message is told from the end, by what there is no room for (MSG_CTRUNC). */
	setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
	shutdown(fd, SHUT_RDWR);
	return recvmsg(fd, &msg, MSG_PEEK | MSG_DONTWAIT) >= 0 && msg.msg_flags;
}

static void add_grave(struct front_user *user, struct grave *grave)
{
	DL_APPEND(user->graves, grave);
	user->grave_count++;
}

/* Into the last pit, or a new one. What is sent is not closed here: it is on its way. */
static bool into_pit(struct front_user *user, struct grave *grave)
{
	struct grave *pit = user->graves->prev;
	struct iovec part = {.iov_base = (void *)"", .iov_len = 1};
	int ends[2];

	if (pit->in < 0 || front_send(pit->in, &part, 1, grave->fd, MSG_DONTWAIT) < 0) {
		pit = calloc(1, sizeof(*pit));
		if (!pit || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
			free(pit);
			return false;
		}
		pit->in = ends[0];
		pit->fd = ends[1];
		add_grave(user, pit);
		if (front_send(pit->in, &part, 1, grave->fd, MSG_DONTWAIT) < 0)
			return false;
	}
	close(grave->fd);
	free(grave);
	return true;
}

void fronts_bury(struct fronts *fronts, uid_t uid, int fd)
{
	struct grave *grave = has_unread(fd) ? calloc(1, sizeof(*grave)) : NULL;
	struct front_user *user = grave ? front_user_get(fronts, uid) : NULL;

	if (!user) {
		free(grave);
		close(fd);
		return;
	}
	grave->fd = fd;
	grave->in = -1;
	if (user->grave_count < GRAVES_APART || !into_pit(user, grave))
		add_grave(user, grave);
	fronts_serve(user);
	fronts_look_in(fronts, user->graves ? FRONTS_BUSY_MS : FRONTS_LOOK_MS);
}
