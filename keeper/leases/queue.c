/*
 * See queue.h.
 *
 * The order: first all events, in the order in which they were raised; then one piece of news; then all events that
 * this raised; and so on. When there is no news any more, leases that another host wants are closed, one at a time.
 * When nothing waits at all, leases and files that have ended are freed.
 *
 * Why no input finds a state that a waiting event would change: every input ends with queue_settle(), which returns
 * when nothing waits. (An input inside another one, as when a front's connection breaks while a probe is started,
 * raises its events, and the outer input settles them.)
 *
 * Why no caller is answered from such a state: callers are answered by news, which is told only while no event waits,
 * or by a function that takes an input, before it raises anything. Expired, gone and forgotten are raised for all
 * leases at once, so they have reached all leases when the next caller is told.
 *
 * Why a waiting event does no harm to events that are applied before it: what an event says stays true while it waits,
 * or the step asks again.
 *   - drained: pins are given by news alone, and no news is told meanwhile;
 *   - unwanted: callers join a lease in news alone;
 *   - superseded: each of two leases may be covered by the other: act.c checks again, since the other may have gone;
 *   - granted: act.c checks the deadline again before it takes the lease into the table;
 *   - what kernel and store said: this says only that it was true once.
 * Questions whether a lease stands, and requests to put it back, are sent when no event waits (send()): an event may
 * say that it is too late for them.
 *
 * Why it ends: an event is raised by an input, by a step, or by news. For its own lease a step raises events only on
 * the way from held over draining and probing to releasing, and no lease returns on this way without an answer of the
 * kernel or the store. For other leases a step raises only superseded, unwanted and recalled, each of which starts on
 * the same way, or has no effect. A caller is told news once each time that a lease of its lock opens, ends or stops
 * being probed, which also needs such an answer.
 *
 * Why nothing is freed that is in use: the outermost queue_settle() frees leases and files when nothing waits, and the
 * function that took the input does nothing after it.
 */
#include "keeper/leases/queue.h"

#include <stddef.h>
#include <utlist.h>

#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/waiters.h"

static struct queue *queue_of(const struct lease *lease)
{
	return &lease->lock->file->keeper->queue;
}

static void queue_add(struct queue_event **list, struct lease *lease, unsigned which)
{
	struct queue_event *e = &lease->events[which];

	if (e->prev)
		return;
	e->lease = lease;
	DL_APPEND(*list, e);
}

/* NULL: the list is empty. *which: of the lease's events. */
static struct lease *queue_take(struct queue_event **list, unsigned *which)
{
	struct queue_event *e = *list;

	if (!e)
		return NULL;
	DL_DELETE(*list, e);
	e->prev = NULL;
	*which = (unsigned)(e - e->lease->events);
	return e->lease;
}

void queue_raise(struct lease *lease, enum lease_cue event)
{
	queue_add(&queue_of(lease)->events, lease, event);
}

void queue_raise_all(struct member *m, enum lease_cue event)
{
	struct lease *lease, *next;

	HASH_ITER (hh, m->keeper->leases, lease, next)
		if (lease_member(lease) == m)
			queue_raise(lease, event);
}

void queue_tell(struct waiter *waiter, unsigned news)
{
	struct queue *q = &waiter->lock->file->keeper->queue;

	if (!waiter->news)
		DL_APPEND2(q->told, waiter, told_prev, told_next);
	waiter->news |= news;
}

void queue_untell(struct waiter *waiter)
{
	if (waiter->news)
		DL_DELETE2(waiter->lock->file->keeper->queue.told, waiter, told_prev, told_next);
	waiter->news = 0;
}

void queue_tell_in_use(struct lease *lease)
{
	queue_add(&queue_of(lease)->in_use, lease, QUEUE_IN_USE);
}

void queue_tell_store(struct member *m, enum queue_store what)
{
	m->told |= what;
	m->keeper->queue.store = true;
}

void queue_obey(struct lease *lease)
{
	queue_add(&queue_of(lease)->obeying, lease, QUEUE_OBEY);
}

/* --- taking from the queue --- */

static void tell_store(struct keeper *k)
{
	k->queue.store = false;
	for (unsigned i = 0; i < k->member_count; i++) {
		struct member *m = &k->members[i];
		unsigned what = m->told;

		m->told = 0;
		for (unsigned bit = 1; bit <= what; bit <<= 1)
			if (what & bit)
				k->queue.news->store(m, bit);
	}
}

static void tell_waiter(struct queue *q)
{
	struct waiter *waiter = q->told;
	unsigned news = waiter->news;
	char *why = waiter->why;

	queue_untell(waiter);
	waiter->why = NULL;
	q->news->told(waiter, news, why ? why : "the keeper has no memory left");
	free(why);
}

static bool reap_all(struct keeper *k)
{
	if (!k->queue.work->reap(k))
		return false;
	k->queue.news->leases_freed(k);
	return true;
}

/* False: nothing waits. */
static bool settle_one(struct keeper *k)
{
	struct queue *q = &k->queue;
	struct lease *lease;
	unsigned which;

	if ((lease = queue_take(&q->events, &which))) {
		q->work->step(lease, (enum lease_cue)which);
		return true;
	}
	q->work->send(k);
	if (q->store)
		tell_store(k);
	else if ((lease = queue_take(&q->in_use, &which)))
		q->news->in_use(lease);
	else if (q->told)
		tell_waiter(q);
	else if ((lease = queue_take(&q->obeying, &which)))
		q->work->obey(lease);
	else
		return reap_all(k);
	return true;
}

void queue_settle(struct keeper *k)
{
	struct queue *q = &k->queue;

	if (q->state != QUEUE_IDLE)
		return;
	q->state = QUEUE_SETTLING;
	while (q->state == QUEUE_SETTLING && settle_one(k))
		;
	if (q->state == QUEUE_SETTLING)
		q->state = QUEUE_IDLE;
}

void queue_stop(struct keeper *k)
{
	k->queue.state = QUEUE_STOPPED;
}
