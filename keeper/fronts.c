/*
 * See fronts.h.
 *
 * Why nothing here waits: every socket to a front is non-blocking; what a keeping front does not take at once stays in
 * `unsent`. A front is asked one question at a time.
 *
 * Why a front is not lost sight of: it counts from its start until its socket says that the process has ended, which a
 * process that hangs does not do. One that is not needed is told by the end of its input.
 *
 * Closing connections: the last close of one closes what is in its queue. So a connection that has something unread when
 * nothing can be added to it any more (shutdown) is closed by a front, and waits in `graves` until one is free. The
 * keeper closes the others, which are nearly all.
 */
#include "keeper/fronts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/front.h"
#include "keeper/locks.h"
#include "keeper/log.h"
#include "keeper/sessions.h"

#define SLOW_MS  5000  /* a caller is told that its file's mount hangs */
#define BUSY_MS  20    /* a front that takes longer is not waited for if another can be started */
#define LOOK_MS  500   /* between two looks at those that are busy */
#define IDLE_MS  5000  /* a front that nobody needs is ended */

struct unsent {
	struct front_ask ask;
	struct unsent *prev, *next;
};

struct grave {
	int fd;
	struct grave *prev, *next;
};

struct front {
	struct fronts *fronts;
	struct front_user *user;
	uv_poll_t poll;
	int fd;
	bool busy;    /* has not said FRONT_READY */
	bool ending;  /* its input has ended */
	bool awaits;  /* FRONT_GIVE or FRONT_DROP */
	bool settled; /* keeps files of `dev` */
	uint64_t dev; /* known while it is settled, or busy with a file that is not local */
	int64_t since_ns;
	struct session *session; /* whose question it has; NULL: nobody waits for it */
	struct kept *giving;     /* what it passes on */
	fronts_kept_cb *given;
	struct kept *kept; /* settled: what it has */
	struct kept_probe *probes;
	struct unsent *unsent;
	struct front *prev, *next;
};

struct front_user {
	struct fronts *all;
	uid_t uid;
	struct front *fronts;
	unsigned readers, keepers;
	struct session *queue;
	struct grave *graves;
	UT_hash_handle hh;
};

struct fronts {
	struct keeper *k;
	int door;
	struct front_user *users;
	unsigned count;
	uint64_t last_id;
	uv_timer_t timer;
	char buffer[FRONT_ANSWER_MAX] __attribute__((aligned(16)));
};

struct kept {
	struct front *front;
	uint64_t id;
	struct kept **owner;
	struct kept *prev, *next;
};

struct kept_probe {
	struct front *front;
	uint64_t id;
	bool wait, told;
	probe_cb *cb; /* NULL: one of fronts_test_shared() */
	void *arg;
	struct session *session;
	fronts_shared_cb *shared;
	UT_hash_handle hh; /* front->probes */
};

static void serve_user(struct front_user *user);
static void look_often(struct fronts *fronts, uint64_t ms);

/* --- fronts: start, ask, end --- */

static struct front_user *user_get(struct fronts *fronts, uid_t uid)
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

static struct front *start_front(struct front_user *user, bool settled)
{
	struct fronts *fronts = user->all;
	struct front *front = fronts->count < FRONTS_ALL ? calloc(1, sizeof(*front)) : NULL;

	if (!front)
		return NULL;
	front->fd = front_start(fronts->door);
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

static void end_front(struct front *front)
{
	if (!front->ending)
		shutdown(front->fd, SHUT_WR);
	front->ending = true;
}

static int tell(struct front *front, const struct front_ask *ask, int fd)
{
	struct iovec part = {.iov_base = (void *)ask, .iov_len = sizeof(*ask)};

	return front_send(front->fd, &part, 1, fd, MSG_DONTWAIT);
}

static bool send_unsent(struct front *front)
{
	struct unsent *u, *next;

	DL_FOREACH_SAFE (front->unsent, u, next) {
		if (tell(front, &u->ask, -1) < 0)
			return false;
		DL_DELETE(front->unsent, u);
		free(u);
	}
	return true;
}

/* To a keeping front: in order, and not lost while that hangs. */
static void tell_in_order(struct front *front, const struct front_ask *ask)
{
	struct unsent *u;

	if (send_unsent(front) && tell(front, ask, -1) == 0)
		return;
	u = calloc(1, sizeof(*u));
	if (!u)
		abort(); /* a lease that can never be given back for want of 100 bytes: a fresh keeper does better */
	u->ask = *ask;
	DL_APPEND(front->unsent, u);
	look_often(front->fronts, LOOK_MS);
}

static void on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static void answer_probe(struct kept_probe *probe, enum probe_answer answer, int error, bool shared)
{
	if (answer == PROBE_IN_USE && probe->wait) {
		probe->cb(probe->arg, answer, error);
		return;
	}
	HASH_DEL(probe->front->probes, probe);
	if (probe->cb)
		probe->cb(probe->arg, answer, error);
	else if (probe->session)
		probe->shared(probe->session, shared);
	free(probe);
}

/* What it kept can be had again from who asks next, as after a restart without a descriptor (locks.c). */
static void lose_kept(struct front *front)
{
	struct kept *kept, *next;

	DL_FOREACH_SAFE (front->kept, kept, next) {
		if (kept->owner)
			*kept->owner = NULL;
		DL_DELETE(front->kept, kept);
		free(kept);
	}
	while (front->probes)
		answer_probe(front->probes, PROBE_STOPPED, EIO, false);
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
		kept_forget(front->giving);
	DL_DELETE(user->fronts, front);
	*(front->settled ? &user->keepers : &user->readers) -= 1;
	fronts->count--;
	lose_kept(front);
	DL_FOREACH_SAFE (front->unsent, u, next) {
		DL_DELETE(front->unsent, u);
		free(u);
	}
	uv_poll_stop(&front->poll);
	close(front->fd);
	uv_close((uv_handle_t *)&front->poll, on_closed);
	if (s) {
		s->front = NULL;
		session_slow(s, SLOW_MS);
	}
	serve_user(user);
}

/* --- who reads what --- */

static bool is_slow(const struct front *front, int64_t now)
{
	return front->busy && now - front->since_ns > SLOW_MS * NS_PER_MS;
}

static struct front *find_idle(const struct front_user *user)
{
	struct front *front;

	DL_FOREACH (user->fronts, front)
		if (!front->busy && !front->settled && !front->ending)
			return front;
	return NULL;
}

/* Is none of its fronts likely to be free soon? One that has just begun is. */
static bool needs_another(const struct front_user *user, unsigned limit)
{
	int64_t now = clock_now_ns();
	const struct front *front;

	if (user->readers >= limit)
		return false;
	DL_FOREACH (user->fronts, front)
		if (!front->settled && !front->ending && now - front->since_ns < BUSY_MS * NS_PER_MS)
			return false;
	return true;
}

static void note_hung(const struct front_user *user, struct front_ask *ask)
{
	int64_t now = clock_now_ns();
	const struct front *a, *b;

	DL_FOREACH (user->fronts, a) {
		unsigned count = 0;

		if (a->settled || !a->dev || !is_slow(a, now))
			continue;
		DL_FOREACH (user->fronts, b)
			count += !b->settled && b->dev == a->dev && is_slow(b, now);
		if (count >= FRONTS_PER_USER / 2 && ask->hung_count < FRONT_MAX_HUNG)
			ask->hung[ask->hung_count++] = a->dev;
	}
}

static bool give_work(struct front *front, enum front_op op, int fd)
{
	struct front_ask ask = {.op = op};

	if (op == FRONT_RECEIVE)
		note_hung(front->user, &ask);
	if (tell(front, &ask, fd) < 0)
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
		end_front(front); /* front_gone() comes */
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
		end_front(front);
		return;
	}
	DL_DELETE(user->graves, grave);
	close(grave->fd); /* not the last: one is on its way */
	free(grave);
}

static void serve_user(struct front_user *user)
{
	while (user->queue || user->graves) {
		struct front *front = find_idle(user);

		if (!front && needs_another(user, user->queue ? FRONTS_PER_USER : FRONTS_PER_USER + 1))
			front = start_front(user, false);
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

void fronts_receive(struct session *s)
{
	struct fronts *fronts = s->keeper->fronts;
	struct front_user *user;

	s->front_again = s->front != NULL;
	if (s->front || s->front_queued)
		return;
	user = user_get(fronts, s->peer.uid);
	if (!user) {
		session_refuse(s, "the keeper has no memory left");
		return;
	}
	if (all_hang(user) || (!user->readers && fronts->count >= FRONTS_ALL)) {
		session_refuse(s, "the file systems of other files of uid %u do not answer the keeper: is a server away that they "
				  "are mounted from?", s->peer.uid);
		return;
	}
	s->front_queued = true;
	s->front_since_ns = clock_now_ns();
	DL_APPEND2(user->queue, s, front_prev, front_next);
	serve_user(user);
	look_often(fronts, user->queue ? BUSY_MS : LOOK_MS);
}

void fronts_leave(struct session *s)
{
	struct fronts *fronts = s->keeper->fronts;
	struct front_user *user;
	struct front *front;
	struct kept_probe *probe, *next;

	HASH_FIND(hh, fronts->users, &s->peer.uid, sizeof(s->peer.uid), user);
	if (!user)
		return;
	if (s->front_queued)
		DL_DELETE2(user->queue, s, front_prev, front_next);
	if (s->front)
		s->front->session = NULL;
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

void fronts_bury(struct fronts *fronts, uid_t uid, int fd)
{
	struct grave *grave = has_unread(fd) ? calloc(1, sizeof(*grave)) : NULL;
	struct front_user *user = grave ? user_get(fronts, uid) : NULL;

	if (!user) {
		free(grave);
		close(fd);
		return;
	}
	grave->fd = fd;
	DL_APPEND(user->graves, grave);
	serve_user(user);
	look_often(fronts, user->graves ? BUSY_MS : LOOK_MS);
}

/* --- files that fronts keep --- */

static struct front *find_keeping(struct front_user *user, uint64_t dev)
{
	const struct front_ask settle = {.op = FRONT_SETTLE};
	struct front *front;

	DL_FOREACH (user->fronts, front)
		if (front->settled && !front->ending && front->dev == dev)
			return front;
	front = user->keepers < KEEPERS_PER_USER ? start_front(user, true) : NULL;
	if (!front)
		return NULL;
	front->dev = dev;
	if (tell(front, &settle, -1) == 0)
		return front;
	end_front(front);
	return NULL;
}

static struct kept *kept_new(struct front *front)
{
	struct kept *kept = calloc(1, sizeof(*kept));

	if (!kept)
		return NULL;
	kept->front = front;
	kept->id = ++front->fronts->last_id;
	DL_APPEND(front->kept, kept);
	return kept;
}

void fronts_keep(struct session *s, uint64_t dev, fronts_kept_cb *cb)
{
	struct front *front = s->front, *keeping = find_keeping(front->user, dev);
	struct kept *kept = keeping ? kept_new(keeping) : NULL;
	struct front_ask ask = {.op = FRONT_GIVE};

	if (!kept) { /* the front drops it when this returns */
		cb(s, NULL, "files on too many file systems that are not local are in use, or their servers do not answer");
		return;
	}
	ask.id = kept->id;
	front->awaits = false;
	front->giving = kept;
	front->given = cb;
	kept_owned(kept, &front->giving);
	if (tell(front, &ask, keeping->fd) == 0)
		return;
	end_front(front); /* front_gone() refuses */
}


void kept_owned(struct kept *kept, struct kept **owner)
{
	kept->owner = owner;
}

void kept_forget(struct kept *kept)
{
	const struct front_ask ask = {.op = FRONT_FORGET, .id = kept->id};
	struct front *front = kept->front;

	if (kept->owner)
		*kept->owner = NULL;
	tell_in_order(front, &ask);
	DL_DELETE(front->kept, kept);
	free(kept);
	front->since_ns = clock_now_ns();
}

static struct kept_probe *probe_new(struct kept *kept, enum front_op op, const struct probe_want *want)
{
	struct kept_probe *probe = calloc(1, sizeof(*probe));
	struct front_ask ask = {.op = op, .id = kept->id, .want = *want};

	if (!probe)
		return NULL;
	ask.probe = probe->id = ++kept->front->fronts->last_id;
	probe->front = kept->front;
	probe->wait = want->wait;
	HASH_ADD(hh, kept->front->probes, id, sizeof(probe->id), probe);
	tell_in_order(kept->front, &ask);
	return probe;
}

struct kept_probe *kept_probe_start(struct kept *kept, const struct probe_want *want, probe_cb *cb, void *arg)
{
	struct kept_probe *probe = probe_new(kept, FRONT_PROBE, want);

	if (probe) {
		probe->cb = cb;
		probe->arg = arg;
	}
	return probe;
}

void kept_probe_stop(struct kept_probe *probe)
{
	const struct front_ask ask = {.op = FRONT_STOP, .probe = probe->id};

	if (!probe->told)
		tell_in_order(probe->front, &ask);
	probe->told = true;
}

bool fronts_test_shared(struct session *s, struct kept *kept, fronts_shared_cb *cb)
{
	const struct probe_want want = {.space = s->request.space, .from = s->request.from, .to = s->request.to};
	struct kept_probe *probe = probe_new(kept, FRONT_SHARED, &want);

	if (!probe)
		return false;
	probe->session = s;
	probe->shared = cb;
	s->front_tests = true;
	return true;
}

/* --- what they say --- */

static void drop(struct front *front)
{
	const struct front_ask ask = {.op = FRONT_DROP};

	if (front->awaits && tell(front, &ask, -1) < 0)
		end_front(front);
	if (front->awaits && front->session) {
		front->session->front = NULL;
		front->session = NULL;
	}
	front->awaits = false;
}

static void receive_again(struct session *s)
{
	if (s->front_again && !s->front && s->state != SESSION_CLOSED)
		fronts_receive(s);
}

static void on_question(struct front *front, const struct front_answer *a, const struct held *before, int fd)
{
	struct session *s = front->session;

	front->awaits = a->away;
	front->busy = !a->ready;
	front->dev = a->looked && !a->local ? a->dev : 0;
	if (!s) {
		if (fd >= 0)
			file_close(front->fronts->k, a->dev, fd, true);
		drop(front);
		return;
	}
	if (!a->away) {
		front->session = NULL;
		s->front = NULL;
	}
	session_received(s, a, before, fd);
	drop(front); /* unless it was told what to do with it */
	receive_again(s);
}

static void on_given(struct front *front, const struct front_answer *a)
{
	struct session *s = front->session;
	struct kept *kept = front->giving;

	front->giving = NULL;
	if (kept)
		kept_owned(kept, NULL);
	if (kept && (!s || a->error)) {
		kept_forget(kept);
		kept = NULL;
	}
	front->session = NULL;
	if (!s)
		return;
	s->front = NULL;
	front->given(s, kept, "the front that keeps files of its file system does not answer");
	receive_again(s);
}

static void on_probed(struct front *front, const struct front_answer *a)
{
	struct kept_probe *probe;

	HASH_FIND(hh, front->probes, &a->probe, sizeof(a->probe), probe);
	if (probe)
		answer_probe(probe, a->answer, a->error, a->shared);
}

static void on_answer(struct front *front, const struct front_answer *a, const struct held *before, int fd)
{
	struct front_user *user = front->user;

	switch (a->said) {
	case FRONT_QUESTION:
		on_question(front, a, before, fd);
		break;
	case FRONT_READY:
		front->busy = false;
		front->since_ns = clock_now_ns();
		break;
	case FRONT_GIVEN:
		on_given(front, a);
		break;
	case FRONT_PROBED:
	case FRONT_TESTED:
		on_probed(front, a);
		break;
	case FRONT_FORGOT:
		break;
	}
	serve_user(user);
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
	send_unsent(front);
	if (front->settled) {
		if (!front->kept && !front->unsent && now - front->since_ns > IDLE_MS * NS_PER_MS)
			end_front(front);
		return;
	}
	if (front->busy) {
		if (front->session && now - front->session->front_since_ns > SLOW_MS * NS_PER_MS)
			session_slow(front->session, SLOW_MS);
		return;
	}
	if (*surplus || now - front->since_ns > IDLE_MS * NS_PER_MS)
		end_front(front);
	*surplus = true;
}

/* How soon to look again, in ms. */
static uint64_t look_at_user(struct front_user *user, int64_t now)
{
	struct front *front, *next;
	struct session *s, *next_s;
	bool idle = false;
	uint64_t ms = IDLE_MS;

	DL_FOREACH_SAFE (user->fronts, front, next) {
		look_at_front(front, now, &idle);
		if (front->busy || front->unsent)
			ms = LOOK_MS;
	}
	DL_FOREACH_SAFE2 (user->queue, s, next_s, front_next)
		if (now - s->front_since_ns > SLOW_MS * NS_PER_MS)
			session_slow(s, SLOW_MS);
	serve_user(user);
	return user->queue || user->graves ? BUSY_MS : ms;
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
		look_often(fronts, ms);
}

static void look_often(struct fronts *fronts, uint64_t ms)
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

static void free_front(struct front *front)
{
	struct unsent *u, *next;
	struct kept_probe *probe, *next_probe;
	struct kept *kept, *next_kept;

	DL_FOREACH_SAFE (front->unsent, u, next)
		free(u);
	HASH_ITER (hh, front->probes, probe, next_probe) {
		HASH_DEL(front->probes, probe);
		free(probe);
	}
	DL_FOREACH_SAFE (front->kept, kept, next_kept) {
		if (kept->owner)
			*kept->owner = NULL;
		free(kept);
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
			free(grave); /* its descriptor ends with the process */
		}
		HASH_DEL(fronts->users, user);
		free(user);
	}
	close(fronts->door);
	fronts->door = -1;
	fronts->timer.data = fronts;
	uv_close((uv_handle_t *)&fronts->timer, on_closed);
}
