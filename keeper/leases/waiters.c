/* See waiters.h. */
#include "keeper/leases/waiters.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/seenout.h"
#include "keeper/leases/touched.h"

void waiters_add(struct waiter *waiter, struct lock *lock)
{
	waiter->lock = lock;
	waiter->lease = NULL;
	waiter->needs_pin = false;
	waiter->pin_until_ns = 0;
	DL_APPEND(lock->waiters, waiter);
}

void waiters_remove(struct waiter *waiter)
{
	struct lock *lock = waiter->lock;
	bool pinned = waiter->pin_until_ns || waiter->needs_pin;

	waiter->needs_pin = false;
	waiter->pin_until_ns = 0;
	waiters_leave(waiter);
	queue_untell(waiter);
	free(waiter->why);
	waiter->why = NULL;
	waiter->lock = NULL;
	DL_DELETE(lock->waiters, waiter);
	touched_add(&lock->file->keeper->touched, lock->file->name, lock->space);
	if (pinned)
		waiters_unpinned(lock);
	file_unused(lock->file);
}

void waiters_join(struct waiter *waiter, struct lease *lease)
{
	waiter->lease = lease;
	waiter->joined_ns = clock_now_ns();
	waiter->arrival = 0;
}

void waiters_leave(struct waiter *waiter)
{
	struct lease *lease = waiter->lease;

	waiter->lease = NULL;
	if (lease && !waiters_exist(lease))
		queue_raise(lease, LEASE_CUE_UNWANTED);
}

void waiters_detach(struct lease *lease)
{
	struct waiter *w;

	DL_FOREACH (lease->lock->waiters, w)
		if (w->lease == lease)
			w->lease = NULL;
}

/* --- what is known of them --- */

static bool has_waiters(const struct lease *lease, bool nonblocking)
{
	const struct waiter *w;

	DL_FOREACH (lease->lock->waiters, w)
		if (w->lease == lease && w->nonblocking == nonblocking)
			return true;
	return false;
}

bool waiters_exist(const struct lease *lease)
{
	return waiters_ask(lease) || waiters_block(lease);
}

bool waiters_block(const struct lease *lease)
{
	return has_waiters(lease, false);
}

bool waiters_ask(const struct lease *lease)
{
	return has_waiters(lease, true);
}

bool waiters_may_pass(const struct lease *lease)
{
	const struct waiter *w;

	DL_FOREACH (lease->lock->waiters, w)
		if (w->lease == lease && w->may_pass)
			return true;
	return false;
}

bool waiters_need_pin(const struct lock *lock, const struct store_range *range)
{
	const struct waiter *w;

	DL_FOREACH (lock->waiters, w)
		if (w->needs_pin && range_overlaps(&w->range, range))
			return true;
	return false;
}

static bool waiters_have_pin(const struct lock *lock, const struct store_range *range)
{
	struct waiter *w;
	int64_t now = clock_now_ns();
	bool pinned = false;

	/* mutant: is-pinned */
	if (now < lock->file->keeper->old_pins.until_ns || waiters_need_pin(lock, range))
		return true;
	DL_FOREACH (lock->waiters, w)
		if (w->pin_until_ns > now && range_overlaps(&w->range, range)) { /* mutant: pinned */
			pinned = true;
			if (w->rests)
				queue_tell(w, WAITER_PIN_WANTED);
		}
	return pinned;
}

bool waiters_are_pinned(const struct lock *lock, const struct store_range *range)
{
	return waiters_have_pin(lock, range) || seenout_is_wanted(lock, range, false); /* mutant: pinned-call */
}

bool waiters_rest_pinned(const struct lock *lock, const struct store_range *range)
{
	return waiters_have_pin(lock, range) || seenout_is_wanted(lock, range, true);
}

void waiters_unpinned(struct lock *lock)
{
	struct lease *lease;

	DL_FOREACH (lock->leases, lease)
		if (lease->state == LEASE_DRAINING && !waiters_are_pinned(lock, &lease->range))
			queue_raise(lease, LEASE_CUE_DRAINED);
}

/* --- what they are told --- */

#define FOR_WAITERS(lease, w)                                                                                          \
	DL_FOREACH ((lease)->lock->waiters, w)                                                                         \
		if ((w)->lease == (lease))

void waiters_queued(struct lease *lease, int64_t asked_ns, uint64_t arrival, bool again)
{
	struct waiter *w;

	FOR_WAITERS (lease, w) {
		if (again || !w->arrival)
			queue_tell(w, WAITER_QUEUED);
		if (!w->arrival && w->joined_ns <= asked_ns)
			w->arrival = arrival;
	}
}

void waiters_tell(struct lease *lease, unsigned news)
{
	struct waiter *w;

	FOR_WAITERS (lease, w)
		queue_tell(w, news);
}

static void waiters_refuse_one(struct waiter *w, enum refusal refusal, const char *why)
{
	w->refusal = refusal;
	free(w->why);
	w->why = strdup(why);
	queue_tell(w, WAITER_REFUSED);
}

void waiters_refuse(struct lease *lease, enum refusal refusal, const char *why)
{
	struct waiter *w;

	FOR_WAITERS (lease, w)
		waiters_refuse_one(w, refusal, why);
}

void waiters_refuse_nonblocking(struct lease *lease, enum refusal refusal, const char *why)
{
	struct waiter *w;

	FOR_WAITERS (lease, w)
		if (w->nonblocking)
			waiters_refuse_one(w, refusal, why);
}

void waiters_serve(struct lock *lock)
{
	struct waiter *w;

	DL_FOREACH (lock->waiters, w)
		if (!w->pin_until_ns)
			queue_tell(w, WAITER_SERVE);
}

void waiters_serve_all(struct keeper *k)
{
	struct file *file, *next;

	HASH_ITER (hh, k->files, file, next)
		for (int i = 0; i < WIRE_SPACES; i++)
			waiters_serve(&file->locks[i]);
}
