/*
 * See away.h.
 *
 * What a keeping front does not take at once stays in `unsent`, in order: a front that hangs loses nothing.
 */
#include "keeper/fronts/away.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/fronts/crew.h"

#define AWAY_SEND_MS 500 /* runs until messages that a front did not take are sent again */

struct unsent {
	struct front_ask ask;
	struct unsent *prev, *next;
};

struct away {
	struct front *front;
	uint64_t id;
	struct away **owner;
	struct away *prev, *next;
};

/* A question to the front, of one of three kinds. */
struct away_probe {
	struct front *front;
	uint64_t id;
	/* away_probe_start(): */
	probe_cb *cb;
	bool wait, told;
	/* away_look(): */
	away_look_cb *look;
	/* away_test_shared(): */
	away_shared_cb *shared;
	struct front_connection *connection; /* NULL: it was left */
	void *arg;                           /* of cb and look */
	UT_hash_handle hh;                   /* front->away.probes */
};

/* --- messages --- */

bool away_send(struct front *front)
{
	struct unsent *u, *next;

	DL_FOREACH_SAFE (front->away.unsent, u, next) {
		if (crew_tell(front, &u->ask, -1) < 0)
			return false;
		DL_DELETE(front->away.unsent, u);
		free(u);
	}
	return true;
}

static void away_tell(struct front *front, const struct front_ask *ask)
{
	struct unsent *u;

	if (away_send(front) && crew_tell(front, ask, -1) == 0)
		return;
	u = calloc(1, sizeof(*u));
	if (!u)
		abort(); /* without these 100 bytes the lease could never be given back: a fresh keeper does better */
	u->ask = *ask;
	DL_APPEND(front->away.unsent, u);
	crew_look_in(front->fronts, AWAY_SEND_MS);
}

static void away_free_unsent(struct front *front)
{
	struct unsent *u, *next;

	DL_FOREACH_SAFE (front->away.unsent, u, next)
		free(u);
	front->away.unsent = NULL;
}

bool away_is_idle(const struct front *front)
{
	return !front->away.all && !front->away.unsent;
}

/* --- descriptions --- */

static struct front *away_find_front(struct front_user *user, uint64_t dev)
{
	const struct front_ask settle = {.op = FRONT_SETTLE};
	struct front *front;

	DL_FOREACH (user->fronts, front)
		if (front->settled && !front->ending && front->dev == dev)
			return front;
	front = user->keepers < AWAY_FRONTS_MAX ? crew_start(user, true) : NULL;
	if (!front)
		return NULL;
	front->dev = dev;
	if (crew_tell(front, &settle, -1) == 0)
		return front;
	crew_end(front);
	return NULL;
}

static struct away *away_new(struct front *front)
{
	struct away *away = calloc(1, sizeof(*away));

	if (!away)
		return NULL;
	away->front = front;
	away->id = ++front->fronts->last_id;
	DL_APPEND(front->away.all, away);
	return away;
}

void away_keep(struct front_connection *c, uint64_t dev, away_kept_cb *cb)
{
	struct front *front = c->front, *keeping = away_find_front(front->user, dev);
	struct away *away = keeping ? away_new(keeping) : NULL;
	struct front_ask ask = {.op = FRONT_GIVE};

	if (!away) { /* fronts.c has the front close it when this returns */
		cb(c, NULL,
		   "files on too many file systems that are not local are in use, or their servers do not answer");
		return;
	}
	ask.id = away->id;
	front->awaits = false;
	front->away.giving = away;
	front->away.given = cb;
	away_owned(away, &front->away.giving);
	if (crew_tell(front, &ask, keeping->fd) < 0)
		crew_end(front); /* the connection is told when it has ended */
}

void away_owned(struct away *away, struct away **owner)
{
	away->owner = owner;
}

void away_forget(struct away *away)
{
	const struct front_ask ask = {.op = FRONT_FORGET, .id = away->id};
	struct front *front = away->front;

	if (away->owner)
		*away->owner = NULL;
	away_tell(front, &ask);
	DL_DELETE(front->away.all, away);
	free(away);
	front->since_ns = clock_now_ns();
}

struct front_connection *away_given(struct front *front, const struct front_answer *a)
{
	struct front_connection *c = crew_let_go(front);
	struct away *away = front->away.giving;

	front->away.giving = NULL;
	if (away)
		away_owned(away, NULL);
	if (away && (!c || a->error)) {
		away_forget(away);
		away = NULL;
	}
	if (c)
		front->away.given(c, away, "the front that keeps files of its file system does not answer");
	return c;
}

/* --- probes --- */

/* Completes `ask`, and sends it. The front's answer names the probe. */
static struct away_probe *away_probe_new(struct away *away, struct front_ask *ask)
{
	struct away_probe *probe = calloc(1, sizeof(*probe));

	if (!probe)
		return NULL;
	ask->id = away->id;
	ask->probe = probe->id = ++away->front->fronts->last_id;
	probe->front = away->front;
	HASH_ADD(hh, away->front->away.probes, id, sizeof(probe->id), probe);
	away_tell(away->front, ask);
	return probe;
}

struct away_probe *away_probe_start(struct away *away, const struct probe_want *want, probe_cb *cb, void *arg)
{
	struct front_ask ask = {.op = FRONT_PROBE, .want = *want};
	struct away_probe *probe = away_probe_new(away, &ask);

	if (probe) {
		probe->wait = want->wait;
		probe->cb = cb;
		probe->arg = arg;
	}
	return probe;
}

void away_probe_stop(struct away_probe *probe)
{
	const struct front_ask ask = {.op = FRONT_STOP, .probe = probe->id};

	if (!probe->told)
		away_tell(probe->front, &ask);
	probe->told = true;
}

bool away_test_shared(struct front_connection *c, struct away *away, enum wire_space space, int64_t from, int64_t to,
		      away_shared_cb *cb)
{
	struct front_ask ask = {.op = FRONT_SHARED, .want = {.space = space, .from = from, .to = to}};
	struct away_probe *probe = away_probe_new(away, &ask);

	if (!probe)
		return false;
	probe->connection = c;
	probe->shared = cb;
	c->tests = true;
	return true;
}

void away_leave(struct front_user *user, struct front_connection *c)
{
	struct away_probe *probe, *next;
	struct front *front;

	c->tests = false;
	DL_FOREACH (user->fronts, front)
		HASH_ITER (hh, front->away.probes, probe, next)
			if (probe->connection == c)
				probe->connection = NULL;
}

bool away_look(struct away *away, const struct store_range *wanted, away_look_cb *cb, void *arg)
{
	struct front_ask ask = {.op = FRONT_GETLK, .wanted = *wanted};
	struct away_probe *probe = away->front->away.looks < AWAY_LOOKS_MAX ? away_probe_new(away, &ask) : NULL;

	if (!probe)
		return false;
	away->front->away.looks++;
	probe->look = cb;
	probe->arg = arg;
	return true;
}

static void away_answer(struct away_probe *probe, const struct front_answer *a)
{
	if (probe->cb && a->answer == PROBE_IN_USE && probe->wait) {
		probe->cb(probe->arg, a->answer, a->error);
		return;
	}
	HASH_DEL(probe->front->away.probes, probe);
	probe->front->away.looks -= probe->look != NULL;
	if (probe->cb)
		probe->cb(probe->arg, a->answer, a->error);
	else if (probe->look)
		probe->look(probe->arg, a->found, &a->in_the_way);
	else if (probe->connection)
		probe->shared(probe->connection, a->shared);
	free(probe);
}

void away_probed(struct front *front, const struct front_answer *a)
{
	struct away_probe *probe;

	HASH_FIND(hh, front->away.probes, &a->probe, sizeof(a->probe), probe);
	if (probe)
		away_answer(probe, a);
}

/* *owner is NULL then. */
static void away_free_all(struct front *front)
{
	struct away *away, *next;

	DL_FOREACH_SAFE (front->away.all, away, next) {
		if (away->owner)
			*away->owner = NULL;
		DL_DELETE(front->away.all, away);
		free(away);
	}
}

/* The next program that asks brings the description again, as after a restart without a descriptor (reopen.h). */
void away_gone(struct front *front)
{
	static const struct front_answer lost = {.answer = PROBE_STOPPED, .error = EIO, .found = -EIO};

	if (front->away.giving)
		away_forget(front->away.giving);
	away_free_all(front);
	while (front->away.probes)
		away_answer(front->away.probes, &lost);
	away_free_unsent(front);
}

void away_free(struct front *front)
{
	struct away_probe *probe, *next;

	away_free_unsent(front);
	HASH_ITER (hh, front->away.probes, probe, next) {
		HASH_DEL(front->away.probes, probe);
		if (probe->look)
			probe->look(probe->arg, -EIO, NULL);
		free(probe);
	}
	away_free_all(front);
}
