/* See split.h. */
#include "keeper/leases/split.h"

#include <utlist.h>

#include "keeper/leases/act.h"
#include "keeper/callers/callers.h"
#include "keeper/leases/kernel.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"
#include "keeper/leases/requests.h"
#include "keeper/callers/serve.h"

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
	lease_acquire(piece, NULL, 0);
	return true;
}

static void recall_as_a_whole(struct lease *whole)
{
	split_done(whole);
	whole->recall = RECALL_WAIT;
	whole->recall_exclusive = true;
	lease_raise(whole, LEASE_EV_RECALLED);
}

bool split_is_under_way(const struct lease *piece)
{
	return piece->whole != NULL;
}

void split_done(struct lease *whole)
{
	struct lease *piece, *next;

	whole->splitting = false;
	keeper_enter(lease_keeper(whole));
	DL_FOREACH_SAFE (whole->lock->leases, piece, next) {
		if (piece->whole != whole)
			continue;
		piece->whole = NULL;
		if (piece->state == LEASE_ASKING && !callers_exist(piece))
			lease_raise(piece, LEASE_EV_UNWANTED);
		else if (lock_covered_without(piece))
			lease_raise(piece, LEASE_EV_SUPERSEDED);
		else
			lease_obey_recall(piece);
	}
	keeper_leave(lease_keeper(whole));
}

void split_failed(struct lease *piece)
{
	log_error("%s: the store refuses the parts of a lease: it is given back as a whole or not at all",
		  piece->lock->file->name);
	lease_raise(piece, LEASE_EV_UNWANTED); /* split_piece_ended() follows */
}

void split_piece_ended(struct lease *piece)
{
	struct lease *whole = piece->whole;

	piece->whole = NULL;
	recall_as_a_whole(whole);
}

/* Nobody here uses anything of it, as far as can be said at once: then all of it may go. */
static bool is_idle(const struct lease *lease)
{
	struct store_range all = lease->range, in_use;

	all.mode = WIRE_EXCLUSIVE;
	return lock_in_the_way(lease, &all, &in_use) == 0;
}

bool split_on_recall(struct lease *lease, const struct store_range *wanted, bool ask)
{
	int64_t from = later(lease->range.from, wanted->from), to = earlier(lease->range.to, wanted->to);
	struct keeper *k = lease_keeper(lease);
	struct store_range in_use;

	/* mutant: split */
	if (lease->range.space != WIRE_RECORD || from >= to || (from == lease->range.from && to == lease->range.to))
		return false;
	/* Parts are leases like this one, and it may be shared in a moment, or gone: when it is open again, if it is.
	 */
	if (lease->state == LEASE_SHRINKING || lease->state == LEASE_UNSURE)
		return false;
	if (ask && lock_in_the_way(lease, wanted, &in_use) > 0) {
		lease_tell_in_use(lease);
		return true;
	}
	/* A caller is to have his pin under it, and may want more than one of the parts. Then it is tried again. */
	if (serve_needs_pin(lease->lock, &lease->range))
		return false;
	if (is_idle(lease))
		return false;
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
