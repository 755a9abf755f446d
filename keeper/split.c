/* See split.h. */
#include "keeper/split.h"

#include <utlist.h>

#include "keeper/act.h"
#include "keeper/kernel.h"
#include "keeper/locks.h"
#include "keeper/log.h"
#include "keeper/requests.h"

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
	if (lease_begin(whole->lock, &range, &piece) < 0)
		return false;
	piece->piece = true;
	lease_acquire(piece, NULL, 0);
	return true;
}

static void recall_as_a_whole(struct lease *whole)
{
	whole->splitting = false;
	whole->recall = RECALL_WAIT;
	whole->recall_exclusive = true;
	lease_raise(whole, LEASE_EV_RECALLED);
}

bool split_is_under_way(const struct lease *piece)
{
	const struct lease *whole;

	if (piece->piece)
		DL_FOREACH (piece->lock->leases, whole)
			if (whole->splitting && range_overlaps(&whole->range, &piece->range))
				return true;
	return false;
}

void split_done(struct lease *whole)
{
	struct lease *piece, *next;

	whole->splitting = false;
	keeper_enter(lease_keeper(whole));
	DL_FOREACH_SAFE (whole->lock->leases, piece, next)
		if (piece->piece && range_overlaps(&whole->range, &piece->range))
			lease_obey_recall(piece);
	keeper_leave(lease_keeper(whole));
}

void split_failed(struct lease *piece)
{
	struct lease *whole, *next;
	struct lock *lock = piece->lock;

	log_error("%s: the store refuses the parts of a lease: it is given back as a whole or not at all", lock->file->name);
	keeper_enter(lease_keeper(piece));
	lease_raise(piece, LEASE_EV_UNWANTED);
	DL_FOREACH_SAFE (lock->leases, whole, next)
		if (whole->splitting && range_overlaps(&whole->range, &piece->range))
			recall_as_a_whole(whole);
	keeper_leave(lease_keeper(piece));
}

bool split_on_recall(struct lease *lease, const struct store_range *wanted, bool ask)
{
	int64_t from = later(lease->range.from, wanted->from), to = earlier(lease->range.to, wanted->to);
	struct keeper *k = lease_keeper(lease);

	if (lease->range.space != WIRE_RECORD || from >= to || (from == lease->range.from && to == lease->range.to))
		return false;
	if (ask && lock_is_in_the_way(lease, wanted)) {
		lease_tell_in_use(lease);
		return true;
	}
	lease->asker_count = 0; /* the store asks for the parts */
	if (lease->splitting)
		return true;
	lease->splitting = true;
	keeper_enter(k);
	if (!ask_for_piece(lease, from, to) || !ask_for_piece(lease, lease->range.from, from) ||
	    !ask_for_piece(lease, to, lease->range.to))
		recall_as_a_whole(lease);
	keeper_leave(k);
	return true;
}
