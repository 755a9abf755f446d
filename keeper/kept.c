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
#include "keeper/fronts_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/clock.h"
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
		cb(s, NULL,
		   "files on too many file systems that are not local are in use, or their servers do not answer");
		return;
	}
	ask.id = kept->id;
	front->awaits = false;
	front->giving = kept;
	front->given = cb;
	kept_owned(kept, &front->giving);
	if (front_tell(front, &ask, keeping->fd) == 0)
		return;
	front_end(front); /* front_gone() refuses */
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
	front_tell_in_order(front, &ask);
	DL_DELETE(front->kept, kept);
	free(kept);
	front->since_ns = clock_now_ns();
}

void kept_given(struct front *front, const struct front_answer *a)
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
	fronts_receive_again(s);
}

/* --- probes --- */

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
	front_tell_in_order(kept->front, &ask);
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
		front_tell_in_order(probe->front, &ask);
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

void kept_probed(struct front *front, const struct front_answer *a)
{
	struct kept_probe *probe;

	HASH_FIND(hh, front->probes, &a->probe, sizeof(a->probe), probe);
	if (probe)
		answer_probe(probe, a->answer, a->error, a->shared);
}

/* What it kept can be had again from who asks next, as after a restart without a descriptor (locks.c). */
void kept_lose(struct front *front)
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
