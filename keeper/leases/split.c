/* See split.h. */
#include "keeper/leases/split.h"

#include <utlist.h>

#include "keeper/leases/keeper.h"
#include "keeper/leases/askers.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/probing.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/requests.h"
#include "keeper/leases/waiters.h"

static int64_t later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static int64_t earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static bool ask_for_piece(struct lease *whole, int64_t from, int64_t to)
{
	struct store_range range = whole->range;
	struct lease *piece;

	if (from >= to)
		return true;
	range.from = from;
	range.to = to;
	if (lease_begin(whole->lock, &range, whole->uid, &piece) < 0)
		return false;
	piece->whole = whole;
	piece->job = whole->job;
	lease_acquire(piece, NULL, 0);
	return true;
}

static void recall_as_a_whole(struct lease *whole)
{
	split_done(whole);
	whole->recall = RECALL_WAIT;
	whole->recall_exclusive = true;
	queue_raise(whole, LEASE_EV_RECALLED);
}

void split_done(struct lease *whole)
{
	struct lease *piece;

	whole->splitting = false;
	DL_FOREACH (whole->lock->leases, piece) {
		if (piece->whole != whole)
			continue;
		piece->whole = NULL;
		if (piece->state == LEASE_ASKING && !waiters_exist(piece))
			queue_raise(piece, LEASE_EV_UNWANTED);
		else if (lock_covered_without(piece))
			queue_raise(piece, LEASE_EV_SUPERSEDED);
		else
			queue_obey(piece);
	}
}

void split_piece_ended(struct lease *piece)
{
	struct lease *whole = piece->whole;

	piece->whole = NULL;
	recall_as_a_whole(whole);
}

/* As far as can be known at once, no local process uses any part of it: then all of it may go. */
static bool is_idle(const struct lease *lease)
{
	struct store_range all = lease->range, in_use;

	all.mode = WIRE_EXCLUSIVE;
	return lock_in_the_way(lease, &all, &in_use) == 0;
}

bool split_on_recall(struct lease *lease, const struct store_range *wanted, bool ask)
{
	int64_t from = later(lease->range.from, wanted->from), to = earlier(lease->range.to, wanted->to);
	struct store_range in_use;

	/* A lease for one lock, or with a key, excludes others of its own host: its parts would wait for it. */
	if (lease->rest_ms || lease->key)
		return false;
	/* mutant: split */
	if (lease->range.space != WIRE_RECORD || from >= to || (from == lease->range.from && to == lease->range.to))
		return false;
	/* Not now: the parts need the same mode as the lease, which may soon be shared, or gone. Tried again if the
	 * lease opens again. */
	if (lease->state == LEASE_SHRINKING || lease_is_unsure(lease->state))
		return false;
	if (ask && lock_in_the_way(lease, wanted, &in_use) > 0) {
		askers_tell(lease);
		return true;
	}
	/* A pin under the lease is pending, and its caller may want more than one of the parts. The split is tried
	 * again later. */
	if (waiters_need_pin(lease->lock, &lease->range))
		return false;
	if (is_idle(lease))
		return false;
	askers_forget(lease); /* the store asks for the parts */
	if (lease->splitting)
		return true;
	lease->splitting = true;
	if (!ask_for_piece(lease, from, to) || !ask_for_piece(lease, lease->range.from, from) ||
	    !ask_for_piece(lease, to, lease->range.to))
		recall_as_a_whole(lease);
	return true;
}
