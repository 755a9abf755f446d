/* See reading.h. */
#include "keeper/fronts/reading.h"

#include <stdio.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/fronts/away.h"
#include "keeper/fronts/crew.h"
#include "keeper/fronts/fronts.h"
#include "keeper/fronts/graves.h"
#include "keeper/fronts/hanging.h"

#define READING_LOOK_MS 500 /* until the next look at a front that reads */

static void reading_refuse(struct front_connection *c, const char *why)
{
	c->fronts->news->refused(c, why);
}

static void reading_refuse_unread(struct front_connection *c)
{
	char why[160];

	snprintf(why, sizeof(why),
		 "the file systems of other files of uid %u do not answer the keeper: is a server away that they are "
		 "mounted from?",
		 c->uid);
	reading_refuse(c, why);
}

/* --- giving work --- */

static void reading_give(struct front_user *user, struct front *front)
{
	struct front_connection *c = user->queue;
	struct front_ask ask = {.op = FRONT_RECEIVE};

	hanging_tell(user, &ask, clock_now_ns());
	if (crew_give_work(front, &ask, c->fd) < 0) {
		crew_end(front);
		return;
	}
	DL_DELETE(user->queue, c);
	c->queued = c->again = false;
	crew_take(front, c);
}

void reading_serve(struct front_user *user)
{
	while (user->queue || user->graves.all) {
		unsigned limit = user->queue ? FRONTS_PER_USER : FRONTS_PER_USER + 1;
		struct front *front = hanging_find_idle(user);

		if (!front && hanging_needs_another(user, limit, clock_now_ns()))
			front = crew_start(user, false);
		if (!front)
			return;
		if (user->queue)
			reading_give(user, front);
		else
			graves_give(front);
	}
}

void reading_receive(struct front_connection *c)
{
	struct fronts *fronts = c->fronts;
	struct front_user *user;

	c->again = c->front != NULL;
	if (c->front || c->queued)
		return;
	user = crew_user(fronts, c->uid);
	if (!user) {
		reading_refuse(c, "the keeper has no memory left");
		return;
	}
	if (hanging_all(user, clock_now_ns()) || (!user->readers && fronts->count >= FRONTS_ALL)) {
		reading_refuse_unread(c);
		return;
	}
	c->queued = true;
	c->since_ns = clock_now_ns();
	DL_APPEND(user->queue, c);
	reading_serve(user);
	crew_look_in(fronts, user->queue ? FRONTS_BUSY_MS : READING_LOOK_MS);
}

void reading_again(struct front_connection *c)
{
	if (c->again && !c->front)
		reading_receive(c);
}

/* --- a description that a front has --- */

/* The front was not told to pass its description on: tells it to close that. Does nothing if it has none. */
static void reading_drop(struct front *front)
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

void reading_hold(struct front_connection *c)
{
	struct front *front = c->front;

	front->reading.held = true;
	front->dev = 0; /* that has answered */
	front->since_ns = clock_now_ns();
}

void reading_release(struct front_connection *c)
{
	struct front *front = c->front;

	if (!front || !front->reading.held)
		return;
	front->reading.held = false;
	reading_drop(front);
	reading_again(c);
}

void reading_leave(struct front_connection *c)
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
		reading_drop(front);
	c->queued = c->again = false;
	if (c->tests)
		away_leave(user, c);
}

/* --- what fronts say --- */

static void reading_on_question(struct front *front, const struct front_answer *a, const struct held *before, int fd)
{
	struct front_connection *c = front->connection;

	front->awaits = a->away;
	front->reading.lists = false;
	front->busy = !a->ready;
	front->dev = a->looked && !a->local ? a->dev : 0;
	if (!c) {
		if (fd >= 0)
			close(fd); /* of a local file: does not wait */
		reading_drop(front);
		return;
	}
	if (!a->away)
		crew_let_go(front);
	c->fronts->news->received(c, a, before, fd);
	if (!front->reading.held)
		reading_drop(front); /* unless the front was told what to do with it */
	reading_again(c);
}

void reading_said(struct front *front, const struct front_answer *a, const struct held *before, int fd)
{
	switch (a->said) {
	case FRONT_QUESTION:
		reading_on_question(front, a, before, fd);
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
	default:
		break;
	}
}

/* --- time --- */

void reading_look(struct front *front)
{
	struct front_connection *c = front->connection;
	int64_t now = clock_now_ns();

	hanging_note(front, now);
	if (c && !front->reading.held && !front->reading.lists && now - c->since_ns > FRONTS_SLOW_MS * NS_PER_MS)
		c->fronts->news->slow(c, FRONTS_SLOW_MS);
}

void reading_refuse_old(struct front_user *user)
{
	struct front_connection *c, *next;
	int64_t now = clock_now_ns();

	DL_FOREACH_SAFE (user->queue, c, next) {
		if (now - c->since_ns < READING_QUEUE_MS * NS_PER_MS)
			return;
		reading_leave(c);
		reading_refuse_unread(c);
	}
}
