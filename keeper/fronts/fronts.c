/* See fronts.h. Passes each message of a front to the module that it is for. A timer looks at all fronts while that is
 * needed. */
#include "keeper/fronts/fronts.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/fronts/away.h"
#include "keeper/fronts/crew.h"
#include "keeper/fronts/door.h"
#include "keeper/fronts/graves.h"
#include "keeper/fronts/hanging.h"
#include "keeper/fronts/reading.h"
#include "keeper/log.h"

#define FRONTS_LOOK_MS 500  /* between two looks at fronts that are busy */
#define FRONTS_IDLE_MS 5000 /* a front that was not needed for so long is ended */

/* --- what fronts say --- */

static void fronts_on_said(struct front *front, const struct front_answer *a, const struct held *before, int fd)
{
	struct front_user *user = front->user;
	struct front_connection *c;

	switch (a->said) {
	case FRONT_QUESTION:
	case FRONT_LOOKING:
	case FRONT_READING:
	case FRONT_READY:
		reading_said(front, a, before, fd);
		break;
	case FRONT_GIVEN:
		c = away_given(front, a);
		if (c)
			reading_again(c);
		break;
	case FRONT_PROBED:
	case FRONT_TESTED:
	case FRONT_LOOKED:
		away_probed(front, a);
		break;
	case FRONT_FORGOT:
		break;
	}
	reading_serve(user);
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
		reading_look(front);
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
	reading_refuse_old(user);
	reading_serve(user);
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

int fronts_listen(struct fronts *fronts, int listen_fd)
{
	return door_leave(fronts->door, listen_fd);
}

int fronts_abandon(struct fronts *fronts, int fd)
{
	return door_leave(fronts->door, fd);
}

void fronts_bury(struct fronts *fronts, uid_t uid, int fd)
{
	struct front_user *user = graves_add(fronts, uid, fd);

	if (!user)
		return;
	reading_serve(user);
	crew_look_in(fronts, user->graves.all ? FRONTS_BUSY_MS : FRONTS_LOOK_MS);
}

/* --- start and end --- */

struct fronts *fronts_new(uv_loop_t *loop, int door, const struct fronts_news *news)
{
	static const struct crew_news crew = {.said = fronts_on_said, .gone = fronts_on_gone, .look = fronts_on_look};
	struct fronts *fronts = calloc(1, sizeof(*fronts));

	if (!fronts)
		return NULL;
	fronts->loop = loop;
	fronts->door = door;
	fronts->news = news;
	fronts->crew = &crew;
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
		graves_leave(user);
		HASH_DEL(fronts->users, user);
		free(user);
	}
	close(fronts->door);
	fronts->door = -1;
	uv_close((uv_handle_t *)&fronts->timer, fronts_on_closed);
}
