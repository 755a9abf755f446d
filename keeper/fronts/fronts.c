/* See fronts.h. Which front reads which connection, and what becomes of each message of a front. A timer looks at all fronts while that is
 * needed. */
#include "keeper/fronts/fronts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/fronts/away.h"
#include "keeper/fronts/crew.h"
#include "keeper/fronts/door.h"
#include "keeper/log.h"

#define FRONTS_SOON_MS 500 /* until the next look at a front that reads */

static void fronts_refuse_unread(struct front_connection *c)
{
	char why[160];

	snprintf(why, sizeof(why),
		 "the file systems of other files of uid %u do not answer the keeper: is a server away that they are "
		 "mounted from?",
		 c->uid);
	c->fronts->news->refused(c, why);
}

/* --- giving work --- */

static void fronts_give(struct front_user *user, struct front *front)
{
	struct front_connection *c = user->queue;
	struct front_ask ask = {.op = FRONT_RECEIVE};

	crew_tell_hung(user, &ask, clock_now_ns());
	if (crew_give_work(front, &ask, c->fd) < 0) {
		crew_end(front);
		return;
	}
	DL_DELETE(user->queue, c);
	c->queued = c->again = false;
	crew_take(front, c);
}

/* Gives work to the user's idle fronts. */
static void fronts_serve(struct front_user *user)
{
	while (user->queue || user->graves.all) {
		bool buries = user->graves.all && crew_buries_first(user);
		unsigned limit = buries ? FRONTS_PER_USER + 1 : FRONTS_PER_USER;
		struct front *front = crew_find_idle(user);

		if (!front && crew_needs_another(user, limit, clock_now_ns()))
			front = crew_start(user, false);
		if (!front)
			return;
		if (buries)
			crew_give_grave(front);
		else
			fronts_give(user, front);
	}
}

void fronts_receive(struct front_connection *c)
{
	struct fronts *fronts = c->fronts;
	struct front_user *user;

	c->again = c->front != NULL;
	if (c->front || c->queued)
		return;
	user = crew_user(fronts, c->uid);
	if (!user) {
		c->fronts->news->refused(c, "the keeper has no memory left");
		return;
	}
	if (crew_all_hang(user, clock_now_ns()) || (!user->readers && fronts->count >= FRONTS_ALL)) {
		fronts_refuse_unread(c);
		return;
	}
	c->queued = true;
	c->since_ns = clock_now_ns();
	DL_APPEND(user->queue, c);
	fronts_serve(user);
	crew_look_in(fronts, user->queue ? FRONTS_BUSY_MS : FRONTS_SOON_MS);
}

/* The connection's front has become free: if something more came meanwhile, it is read next. */
static void fronts_again(struct front_connection *c)
{
	if (c->again && !c->front)
		fronts_receive(c);
}

/* --- a description that a front has --- */

/* The front was not told to pass its description on: tells it to close that. Does nothing if it has none. */
static void fronts_drop(struct front *front)
{
	const struct front_ask ask = {.op = FRONT_DROP};

	front->reading.held = false;
	if (!front->awaits)
		return;
	if (crew_tell(front, &ask, -1) < 0)
		crew_end(front);
	crew_let_go(front);
	front->awaits = false;
}

void fronts_hold(struct front_connection *c)
{
	struct front *front = c->front;

	front->reading.held = true;
	front->dev = 0; /* that has answered */
	front->since_ns = clock_now_ns();
}

void fronts_release(struct front_connection *c)
{
	struct front *front = c->front;

	if (!front || !front->reading.held)
		return;
	front->reading.held = false;
	fronts_drop(front);
	fronts_again(c);
}

void fronts_leave(struct front_connection *c)
{
	struct front *front = c->front;
	struct front_user *user;

	HASH_FIND(hh, c->fronts->users, &c->uid, sizeof(c->uid), user);
	if (!user)
		return;
	if (c->queued)
		DL_DELETE(user->queue, c);
	if (front)
		crew_let_go(front);
	if (front && front->reading.held)
		fronts_drop(front);
	c->queued = c->again = false;
	if (c->tests)
		away_leave(user, c);
}

/* --- what fronts say --- */

static void fronts_on_question(struct front *front, const struct front_answer *a, const struct own_lock *before, int fd)
{
	struct front_connection *c = front->connection;

	front->awaits = a->away;
	front->reading.lists = false;
	front->busy = !a->ready;
	front->dev = a->looked && !a->local ? a->dev : 0;
	if (!c) {
		if (fd >= 0)
			close(fd); /* of a local file: does not wait */
		fronts_drop(front);
		return;
	}
	if (!a->away)
		crew_let_go(front);
	c->fronts->news->received(c, a, before, fd);
	if (!front->reading.held)
		fronts_drop(front); /* unless the front was told what to do with it */
	fronts_again(c);
}

/* Looks at a busy front: notes whether it hangs; calls slow() for a connection whose question it has had for too long. */
static void fronts_look_at_reader(struct front *front)
{
	struct front_connection *c = front->connection;
	int64_t now = clock_now_ns();

	crew_note_hung(front, now);
	if (c && !front->reading.held && !front->reading.lists && now - c->since_ns > FRONTS_SLOW_MS * NS_PER_MS)
		c->fronts->news->slow(c, FRONTS_SLOW_MS);
}

/* Refuses the questions that no front has read for FRONTS_QUEUE_MS. */
static void fronts_refuse_old(struct front_user *user)
{
	struct front_connection *c, *next;
	int64_t now = clock_now_ns();

	DL_FOREACH_SAFE (user->queue, c, next) {
		if (now - c->since_ns < FRONTS_QUEUE_MS * NS_PER_MS)
			return;
		fronts_leave(c);
		fronts_refuse_unread(c);
	}
}

#define FRONTS_LOOK_MS 500  /* between two looks at fronts that are busy */
#define FRONTS_IDLE_MS 5000 /* a front that was not needed for so long is ended */

/* --- what fronts say --- */

static void fronts_on_said(struct front *front, const struct front_answer *a, const struct own_lock *before, int fd)
{
	struct front_user *user = front->user;
	struct front_connection *c;

	switch (a->said) {
	case FRONT_QUESTION:
		fronts_on_question(front, a, before, fd);
		break;
	case FRONT_LOOKING:
		front->dev = a->dev;
		break;
	case FRONT_READING:
		front->reading.lists = true;
		front->dev = 0;
		break;
	case FRONT_READY:
		front->busy = false;
		front->since_ns = clock_now_ns();
		break;
	case FRONT_GIVEN:
		c = away_given(front, a);
		if (c)
			fronts_again(c);
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

static void fronts_on_gone(struct front *front)
{
	struct fronts *fronts = front->fronts;
	struct front_connection *c = crew_let_go(front);
	char user[32];

	if (front->settled && !front->ending) {
		snprintf(user, sizeof(user), "uid %u", (unsigned)front->user->uid);
		log_about(LINE_FRONT_FAILED, &(struct log_about){.subject = user},
			  "the front that keeps files of %s has ended: the next program that asks brings them again",
			  user);
	}
	crew_unlink(front);
	away_gone(front);
	crew_close(front);
	if (c)
		fronts->news->slow(c, FRONTS_SLOW_MS);
	crew_look_in(fronts, FRONTS_BUSY_MS); /* not at once: the next front may end just as soon */
}

/* --- time --- */

static void fronts_look_at(struct front *front, int64_t now, bool *surplus)
{
	bool idle = now - front->since_ns > FRONTS_IDLE_MS * NS_PER_MS;

	away_send(front);
	if (front->settled) {
		if (idle && away_is_idle(front))
			crew_end(front);
		return;
	}
	if (front->busy) {
		fronts_look_at_reader(front);
		return;
	}
	/* When nearly the allowed number of fronts hang, a user keeps the front that it has. */
	if (*surplus || (idle && front->fronts->count < FRONTS_ALL / 2))
		crew_end(front);
	*surplus = true;
}

/* How soon to look again, in ms. */
static uint64_t fronts_look_at_user(struct front_user *user, int64_t now)
{
	struct front *front, *next;
	bool surplus = false;
	uint64_t ms = FRONTS_IDLE_MS;

	DL_FOREACH_SAFE (user->fronts, front, next) {
		fronts_look_at(front, now, &surplus);
		if (front->busy || front->away.unsent)
			ms = FRONTS_LOOK_MS;
	}
	fronts_refuse_old(user);
	fronts_serve(user);
	return user->queue || user->graves.all ? FRONTS_BUSY_MS : ms;
}

static void fronts_on_look(struct fronts *fronts)
{
	struct front_user *user, *next;
	uint64_t ms = 0;
	int64_t now = clock_now_ns();

	HASH_ITER (hh, fronts->users, user, next) {
		uint64_t soon = fronts_look_at_user(user, now);

		if (!ms || soon < ms)
			ms = soon;
		crew_put_user(user);
	}
	if (ms)
		crew_look_in(fronts, ms);
}

/* --- connections that end --- */

int fronts_leave_open(struct fronts *fronts, int fd)
{
	return door_leave(fronts->door, fd);
}

void fronts_bury(struct fronts *fronts, uid_t uid, int fd)
{
	struct front_user *user = crew_bury(fronts, uid, fd);

	if (!user)
		return;
	fronts_serve(user);
	crew_look_in(fronts, user->graves.all ? FRONTS_BUSY_MS : FRONTS_LOOK_MS);
}

/* --- start and end --- */

struct fronts *fronts_new(uv_loop_t *loop, int door, const struct fronts_news *news)
{
	static const struct crew_news crew = {.said = fronts_on_said, .gone = fronts_on_gone, .look = fronts_on_look};
	struct fronts *fronts = calloc(1, sizeof(*fronts));
	struct rlimit limit;

	if (!fronts)
		return NULL;
	fronts->loop = loop;
	fronts->door = door;
	fronts->news = news;
	fronts->crew = &crew;
	getrlimit(RLIMIT_NOFILE, &limit);
	fronts->pits_hold = (unsigned)(limit.rlim_cur / 2 < UINT_MAX ? limit.rlim_cur / 2 : UINT_MAX);
	uv_timer_init(loop, &fronts->timer);
	fronts->timer.data = fronts;
	return fronts;
}

static void fronts_on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

void fronts_free(struct fronts *fronts)
{
	struct front_user *user, *next_user;
	struct front *front, *next;

	if (!fronts)
		return;
	HASH_ITER (hh, fronts->users, user, next_user) {
		DL_FOREACH_SAFE (user->fronts, front, next) {
			away_free(front);
			crew_unlink(front);
			crew_close(front);
		}
		crew_leave_graves(user);
		HASH_DEL(fronts->users, user);
		free(user);
	}
	close(fronts->door);
	fronts->door = -1;
	uv_close((uv_handle_t *)&fronts->timer, fronts_on_closed);
}
