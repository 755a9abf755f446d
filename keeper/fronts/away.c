/*
 * Files that fronts keep, and their probes: see fronts.h.
 *
 * Why a probe there need not hold what it took (a message to let go of it would arrive after the pin that it is in the
 * way of): it starts when the lease is closed to newcomers and its pins have ended, as every probe. Then:
 *
 *   a lock that was taken before the probe looked    the probe finds it
 *   a lock that is taken after that                  its caller has no pin, and a page whose slot is closed: it asks,
 * and keeps the kernel lock, before it relies on it (shim/acquire.c)
 *
 * It lets go before it answers, so a pin that waits for the answer (lock_stop_probes()) finds nothing in its way.
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
#include "keeper/log.h"

/* --- messages --- */

bool front_send_unsent(struct front *front)
{
	struct unsent *u, *next;

	DL_FOREACH_SAFE (front->unsent, u, next) {
		if (front_tell(front, &u->ask, -1) < 0)
			return false;
		DL_DELETE(front->unsent, u);
		free(u);
	}
	return true;
}

/* To a keeping front: in order, and not lost while that hangs. */
void front_tell_in_order(struct front *front, const struct front_ask *ask)
{
	struct unsent *u;

	if (front_send_unsent(front) && front_tell(front, ask, -1) == 0)
		return;
	u = calloc(1, sizeof(*u));
	if (!u)
		abort(); /* a lease that can never be given back for want of 100 bytes: a fresh keeper does better */
	u->ask = *ask;
	DL_APPEND(front->unsent, u);
	fronts_look_in(front->fronts, FRONTS_LOOK_MS);
}

/* --- descriptions --- */

static struct front *find_keeping(struct front_user *user, uint64_t dev)
{
	const struct front_ask settle = {.op = FRONT_SETTLE};
	struct front *front;

	DL_FOREACH (user->fronts, front)
		if (front->settled && !front->ending && front->dev == dev)
			return front;
	front = user->keepers < KEEPERS_PER_USER ? front_new(user, true) : NULL;
	if (!front)
		return NULL;
	front->dev = dev;
	if (front_tell(front, &settle, -1) == 0)
		return front;
	front_end(front);
	return NULL;
}

static struct away *away_new(struct front *front)
{
	struct away *away = calloc(1, sizeof(*away));

	if (!away)
		return NULL;
	away->front = front;
	away->id = ++front->fronts->last_id;
	DL_APPEND(front->away, away);
	return away;
}

void fronts_keep(struct session *s, uint64_t dev, fronts_kept_cb *cb)
{
	struct front *front = s->front, *keeping = find_keeping(front->user, dev);
	struct away *away = keeping ? away_new(keeping) : NULL;
	struct front_ask ask = {.op = FRONT_GIVE};

	if (!away) { /* the front drops it when this returns */
		cb(s, NULL,
		   "files on too many file systems that are not local are in use, or their servers do not answer");
		return;
	}
	ask.id = away->id;
	front->awaits = false;
	front->giving = away;
	front->given = cb;
	away_owned(away, &front->giving);
	if (front_tell(front, &ask, keeping->fd) == 0)
		return;
	front_end(front); /* front_gone() refuses */
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
	front_tell_in_order(front, &ask);
	DL_DELETE(front->away, away);
	free(away);
	front->since_ns = clock_now_ns();
}

void away_given(struct front *front, const struct front_answer *a)
{
	struct session *s = front->session;
	struct away *away = front->giving;

	front->giving = NULL;
	if (away)
		away_owned(away, NULL);
	if (away && (!s || a->error)) {
		away_forget(away);
		away = NULL;
	}
	front->session = NULL;
	if (!s)
		return;
	s->front = NULL;
	front->given(s, away, "the front that keeps files of its file system does not answer");
	fronts_receive_again(s);
}

/* --- probes --- */

/* With the front's answer `ask` comes back as the probe. */
static struct away_probe *probe_new(struct away *away, struct front_ask *ask)
{
	struct away_probe *probe = calloc(1, sizeof(*probe));

	if (!probe)
		return NULL;
	ask->id = away->id;
	ask->probe = probe->id = ++away->front->fronts->last_id;
	probe->front = away->front;
	HASH_ADD(hh, away->front->probes, id, sizeof(probe->id), probe);
	front_tell_in_order(away->front, ask);
	return probe;
}

struct away_probe *away_probe_start(struct away *away, const struct probe_want *want, probe_cb *cb, void *arg)
{
	struct front_ask ask = {.op = FRONT_PROBE, .want = *want};
	struct away_probe *probe = probe_new(away, &ask);

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
		front_tell_in_order(probe->front, &ask);
	probe->told = true;
}

bool fronts_test_shared(struct session *s, struct away *away, fronts_shared_cb *cb)
{
	struct front_ask ask = {
		.op = FRONT_SHARED,
		.want = {.space = s->request.space, .from = s->request.from, .to = s->request.to},
	};
	struct away_probe *probe = probe_new(away, &ask);

	if (!probe)
		return false;
	probe->session = s;
	probe->shared = cb;
	s->front_tests = true;
	return true;
}

bool away_look(struct away *away, const struct store_range *wanted, away_look_cb *cb, void *arg)
{
	struct front_ask ask = {.op = FRONT_WAY, .range = *wanted};
	struct away_probe *probe = away->front->looks < AWAY_LOOKS_MAX ? probe_new(away, &ask) : NULL;

	if (!probe)
		return false;
	away->front->looks++;
	probe->way = cb;
	probe->arg = arg;
	return true;
}

static void answer_probe(struct away_probe *probe, const struct front_answer *a)
{
	if (probe->cb && a->answer == PROBE_IN_USE && probe->wait) {
		probe->cb(probe->arg, a->answer, a->error);
		return;
	}
	HASH_DEL(probe->front->probes, probe);
	probe->front->looks -= probe->way != NULL;
	if (probe->cb)
		probe->cb(probe->arg, a->answer, a->error);
	else if (probe->way)
		probe->way(probe->arg, a->found, &a->range);
	else if (probe->session)
		probe->shared(probe->session, a->shared);
	free(probe);
}

void away_probed(struct front *front, const struct front_answer *a)
{
	struct away_probe *probe;

	HASH_FIND(hh, front->probes, &a->probe, sizeof(a->probe), probe);
	if (probe)
		answer_probe(probe, a);
}

void away_free_probes(struct front *front)
{
	struct away_probe *probe, *next;

	HASH_ITER (hh, front->probes, probe, next) {
		HASH_DEL(front->probes, probe);
		if (probe->way)
			probe->way(probe->arg, -EIO, NULL);
		free(probe);
	}
}

/* What it kept can be had again from who asks next, as after a restart without a descriptor (locks.c). */
void away_lose(struct front *front)
{
	static const struct front_answer lost = {.answer = PROBE_STOPPED, .error = EIO, .found = -EIO};
	struct away *away, *next;

	DL_FOREACH_SAFE (front->away, away, next) {
		if (away->owner)
			*away->owner = NULL;
		DL_DELETE(front->away, away);
		free(away);
	}
	while (front->probes)
		answer_probe(front->probes, &lost);
}
