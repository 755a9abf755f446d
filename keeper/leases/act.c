/*
 * See act.h. A lease that has ended is freed when no store request and no probe refers to it any more, and never
 * inside keeper_enter(), so that callers may go on to use it until they return.
 */
#include "keeper/leases/act.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "keeper/leases/answers.h"
#include "keeper/clock.h"
#include "keeper/leases/host.h"
#include "keeper/leases/inquiry.h"
#include "keeper/leases/kernel.h"
#include "keeper/leases/leasepage.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"
#include "keeper/leases/lost.h"
#include "keeper/leases/requests.h"
#include "keeper/leases/room.h"
#include "keeper/callers/serve.h"
#include "keeper/leases/split.h"
#include "keeper/leases/unseen.h"
#include "keeper/callers/control.h"

#define LINGER_MAX_TTLS  4

static void on_timer(uv_timer_t *timer);

int64_t keeper_reask_ms(const struct keeper *k)
{
	int64_t ms = k->config->lease.ttl_ms / 10;

	return ms < 50 ? 50 : ms > 3000 ? 3000 : ms;
}

void lease_start_timer(struct lease *lease, int64_t ms)
{
	uv_timer_start(&lease->timer, on_timer, ms < 1 ? 1 : ms, 0);
}

/* --- the table's actions --- */

/* What other open leases of ours cover is of no use any more. Not parts of one that stands yet, which must all be open.
 */
static bool is_superseded(const struct lease *lease)
{
	return !split_is_under_way(lease) && lock_covered_without(lease);
}

static void supersede(struct lease *lease)
{
	struct lease *other, *next;

	DL_FOREACH_SAFE (lease->lock->leases, other, next)
		if (other != lease && lease_is_ours(other->state) && range_overlaps(&lease->range, &other->range) &&
		    is_superseded(other))
			lease_raise(other, LEASE_EV_SUPERSEDED);
}

static bool recall_is_served(const struct lease *lease, enum lease_event event)
{
	if (event == LEASE_EV_SHRUNK)
		return lease->recall < RECALL_ASK || !lease->recall_exclusive;
	return event == LEASE_EV_KEPT && !lease->asker_count; /* else it came before the lease was open */
}

static void open_lease(struct lease *lease, enum lease_event event)
{
	if (!lease->held_at)
		lease->held_at = time(NULL);
	lease->stands = false;
	lease_set_forgotten(lease, false);
	if (recall_is_served(lease, event)) {
		lease->recall = RECALL_NONE;
		lease->asker_count = 0;
	}
	lease_start_timer(lease, lease->linger_ns / NS_PER_MS);
	supersede(lease);
	/* It could not be closed when the others were opened. Not one that is new: a caller needs a single one that
	 * covers all he wants. */
	if (event != LEASE_EV_STANDS && event != LEASE_EV_SHRUNK)
		return;
	if (is_superseded(lease))
		lease_raise(lease, LEASE_EV_SUPERSEDED);
	else if (lease->splitting && lease->range.mode == WIRE_SHARED)
		split_done(lease); /* its parts were to be exclusive, and wait for those who share it */
}

void lease_tell_in_use(struct lease *lease)
{
	struct keeper *k = lease_keeper(lease);
	unsigned kept = 0;

	for (unsigned i = 0; i < lease->asker_count; i++) {
		const struct asker *asker = &lease->askers[i];
		struct store_range in_use;

		if (inquiry_needed(lease) && inquiry_start(lease, asker))
			continue;
		/* None: it has just become free, and the probe has not said so yet. */
		if (lock_in_the_way(lease, &asker->range, &in_use) == 0)
			lease->askers[kept++] = *asker;
		else
			store_tell_in_use(k->store, asker->host, lease->lock->file->name, asker->token, &in_use);
	}
	lease->asker_count = kept;
	control_in_use(lease);
}

/* Its mode is shared from now on: before the shrink is sent. What is put back after the store lost its memory is never more
 * than what others had to reckon with. */
static void share(struct lease *lease)
{
	table_share(lease_keeper(lease)->table, lease->slot);
	lease->range.mode = WIRE_SHARED;
}

static void act(struct lease *lease, unsigned actions, enum lease_event event)
{
	struct keeper *k = lease_keeper(lease);

	if (actions & LEASE_DO_STOP_PROBE && lease_is_probed(lease))
		lease_stop_probe(lease);
	else if (actions & LEASE_DO_STOP_PROBE && lease->state == LEASE_STOPPING)
		lease_start_timer(lease, 1); /* there was none: it was to be tried again */
	if (actions & LEASE_DO_SHARE)
		share(lease);
	if (actions & LEASE_DO_RETURN)
		table_return(k->table, lease->slot);
	if (actions & LEASE_DO_ACQUIRE)
		lease_acquire(lease, NULL, 0);
	if (actions & LEASE_DO_RELEASE)
		lease_send_release(lease);
	if (actions & LEASE_DO_SHRINK)
		lease_send_shrink(lease);
	if (actions & LEASE_DO_CONFIRM)
		lease_send_confirm(lease);
	if (actions & LEASE_DO_TELL_IN_USE)
		lease_tell_in_use(lease);
	if (actions & LEASE_DO_LOST) {
		leasepage_close_lock(lease->lock); /* lost_has_holders() */
		table_lose(k->table, lease->slot, lease->forgotten ? TABLE_WHY_FORGOTTEN : TABLE_WHY_TAKEN);
		lease->slot = TABLE_NO_SLOT; /* the parent frees it */
		lost_end_holders(k);
	}
	if (actions & LEASE_DO_LOST)
		lost_report(lease, lease->forgotten ? "the store lost its memory, and it could not be put back in time"
						    : "it was not renewed in time, and the store gave it up");
	if (actions & LEASE_DO_OPEN)
		open_lease(lease, event);
	if (actions & LEASE_DO_SERVE)
		serve_lock(lease->lock);
	if (actions & LEASE_DO_CLOSE && lease->state == LEASE_DRAINING && is_superseded(lease))
		lease_raise(lease, LEASE_EV_SUPERSEDED);
	if (actions & LEASE_DO_CLOSE && lease->state == LEASE_DRAINING && !serve_is_pinned(lease->lock, &lease->range))
		lease_raise(lease, LEASE_EV_DRAINED);
	if (actions & LEASE_DO_PROBE)
		lease_start_probe(lease);
}

/* Those to be put back are counted: each answer of the store asks whether there are any, and there may be as many
 * answers as leases. */
static void set_state(struct lease *lease, enum lease_state state, bool forgotten)
{
	struct keeper *k = lease_keeper(lease);

	k->forgotten_count -= lease->state == LEASE_UNSURE && lease->forgotten;
	k->forgotten_count += state == LEASE_UNSURE && forgotten;
	lease->state = state;
	lease->forgotten = forgotten;
}

void lease_set_forgotten(struct lease *lease, bool forgotten)
{
	set_state(lease, lease->state, forgotten);
}

static void enter(struct lease *lease, enum lease_state next)
{
	struct keeper *k = lease_keeper(lease);

	if (next == lease->state)
		return;
	if (lease->state == LEASE_ASKING)
		serve_detach(lease);
	if (lease->state == LEASE_HELD) /* mutant: page-closed */
		leasepage_close(lease); /* first of all */
	set_state(lease, next, lease->forgotten);
	if (next == LEASE_UNSURE)
		table_doubt(k->table, lease->slot);
	else if (next == LEASE_HELD || next == LEASE_SHRINKING)
		table_hold(k->table, lease->slot);
	lease->since_ns = clock_now_ns();
	if (next == LEASE_RELEASING && lease->recall == RECALL_WAIT)
		lease->lock->given_back_ns = lease->since_ns;
	uv_timer_stop(&lease->timer);
	if (next == LEASE_ENDED)
		DL_APPEND2(lease_keeper(lease)->ended, lease, ended_prev, ended_next);
}

static void reap(struct keeper *k)
{
	struct lease *lease, *next;
	struct file *file, *next_file;

	DL_FOREACH_SAFE2 (k->ended, lease, next, ended_next) {
		if (lease->requests || lease_is_probed(lease))
			continue;
		DL_DELETE2(k->ended, lease, ended_prev, ended_next);
		free(lease->blockers);
		answers_forget(lease);
		lease_free(lease);
	}
	DL_FOREACH_SAFE2 (k->unused, file, next_file, unused_next) {
		DL_DELETE2(k->unused, file, unused_prev, unused_next);
		file->listed = false;
		file_put(file);
	}
	control_leases_ended(k);
}

void keeper_enter(struct keeper *k)
{
	k->depth++;
}

void keeper_leave(struct keeper *k)
{
	if (--k->depth == 0 && (k->ended || k->unused))
		reap(k);
}

static bool is_young(const struct lease *lease)
{
	return lease->state == LEASE_HELD && clock_now_ns() < lease->keep_until_ns;
}

/* Too young to be given back to somebody who waits: the timer obeys. */
static bool is_kept(struct lease *lease)
{
	if (lease->recall != RECALL_WAIT || !is_young(lease))
		return false;
	lease_start_timer(lease, (lease->keep_until_ns - clock_now_ns()) / NS_PER_MS + 1);
	return true;
}

void lease_obey_recall(struct lease *lease)
{
	bool ask = lease->recall == RECALL_ASK;

	if (lease->state != LEASE_HELD || lease->recall < RECALL_ASK || split_is_under_way(lease) || is_kept(lease))
		return;
	if (!split_on_recall(lease, &lease->recall_range, ask))
		lease_raise(lease, ask ? LEASE_EV_ASKED : LEASE_EV_RECALLED);
	else if (!lease->splitting) /* it was but a question, and is answered */
		lease->recall = RECALL_NONE;
}

/* LEASE_EVENTS as the event: nothing happened, but it may be time to free. */
void lease_raise(struct lease *lease, enum lease_event event)
{
	struct keeper *k = lease_keeper(lease);

	keeper_enter(k);
	if (event != LEASE_EVENTS) {
		struct lease_step step = lease_step(lease->state, event);

		log_debug("%s %.8s: %s in %s -> %s", lease->lock->file->name, lease->token, lease_event_name(event),
			  lease_state_name(lease->state), lease_state_name(step.next));
		enter(lease, step.next);
		/* What an earlier answer said of it is worth nothing any more. */
		if (event == LEASE_EV_EXPIRED || event == LEASE_EV_FORGOTTEN)
			lease->stands = false;
		lease->lapsed = (lease->state == LEASE_UNSURE || lease->state == LEASE_ASKING) &&
				(lease->lapsed || event == LEASE_EV_EXPIRED);
		act(lease, step.actions, event);
		if (lease->state == LEASE_ENDED) {
			table_free(k->table, lease->slot);
			lease->slot = TABLE_NO_SLOT;
		}
		if (lease->splitting && !lease_is_ours(lease->state))
			split_done(lease);
		if (lease->whole && lease->state != LEASE_ASKING && !lease_is_ours(lease->state))
			split_piece_ended(lease);
		lease_obey_recall(lease);
	}
	keeper_leave(k);
}

void keeper_raise_all(struct keeper *k, enum lease_event event)
{
	struct lease *lease, *next;

	keeper_enter(k); /* nothing is freed while we walk */
	HASH_ITER (hh, k->leases, lease, next)
		lease_raise(lease, event);
	keeper_leave(k);
}

static void lingered(struct lease *lease)
{
	int64_t max = LINGER_MAX_TTLS * lease_keeper(lease)->config->lease.ttl_ms * NS_PER_MS;

	if (serve_is_pinned(lease->lock, &lease->range) || split_is_under_way(lease)) {
		lease_start_timer(lease, lease->linger_ns / NS_PER_MS);
		return;
	}
	lease->linger_ns = lease->linger_ns * 2 > max ? max : lease->linger_ns * 2;
	/* Mostly it is: no thread for that, and no need to close it. */
	if (lease_is_in_use(lease)) {
		unseen_due(lease);
		lease_start_timer(lease, lease->linger_ns / NS_PER_MS);
		return;
	}
	lease->recall = RECALL_LINGER;
	lease_raise(lease, LEASE_EV_LINGERED);
}

static void on_timer(uv_timer_t *timer)
{
	struct lease *lease = timer->data;

	switch (lease->state) {
	case LEASE_ASKING:
		lease_acquire(lease, NULL, 0);
		break;
	case LEASE_HELD:
		if (lease->recall == RECALL_WAIT)
			lease_obey_recall(lease);
		else
			lingered(lease);
		break;
	case LEASE_PROBING:
	case LEASE_WAITING:
	case LEASE_STOPPING:
		lease_raise(lease, LEASE_EV_STOPPED);
		break;
	default: /* an answer was an error: again */
		lease_raise(lease, LEASE_EV_UP);
		break;
	}
}

void lease_used(struct lease *lease)
{
	lease->linger_ns = lease_keeper(lease)->config->lease.linger_ms * NS_PER_MS;
	room_used(lease);
	if (lease->state == LEASE_HELD && lease->recall != RECALL_WAIT)
		lease_start_timer(lease, lease->linger_ns / NS_PER_MS);
}

void lock_unpinned(struct lock *lock)
{
	struct lease *lease, *next;

	DL_FOREACH_SAFE (lock->leases, lease, next)
		if (lease->state == LEASE_DRAINING && !serve_is_pinned(lock, &lease->range))
			lease_raise(lease, LEASE_EV_DRAINED);
}

static void keep_asker(struct lease *lease, const struct asker *asker)
{
	if (lease->asker_count < LEASE_MAX_ASKERS) /* else its own limit ends its question */
		lease->askers[lease->asker_count++] = *asker;
}

/* asker: only asks; NULL: another host waits for the range. */
static void recalled(struct lease *lease, const struct store_range *range, const struct asker *asker)
{
	enum recall_level level = asker ? RECALL_ASK : RECALL_WAIT;

	/* Asking: the store has granted it, but the answer comes through the other connection. */
	if (lease_is_ours(lease->state) || lease->state == LEASE_ASKING) {
		if (range->mode == WIRE_SHARED && lease->range.mode == WIRE_SHARED)
			return; /* late: it was shrunk meanwhile */
		if (asker)
			keep_asker(lease, asker);
		if (lease_is_ours(lease->state) && !is_young(lease) && split_on_recall(lease, range, asker != NULL))
			return;
		if (lease->recall < RECALL_ASK) /* that of the others comes again, for the parts */
			lease->recall_range = *range;
		if (lease->recall < RECALL_ASK)
			lease->recall_shared = lease->recall_exclusive = false;
		*(range->mode == WIRE_SHARED ? &lease->recall_shared : &lease->recall_exclusive) = true;
		if (level > lease->recall)
			lease->recall = level;
		if (split_is_under_way(lease))
			return; /* split_done() obeys */
	}
	if (is_kept(lease))
		return;
	if (lease->state == LEASE_WAITING && probe_waits_for_more(lease))
		return lease_raise(lease, LEASE_EV_NEEDED);
	lease_raise(lease, asker ? LEASE_EV_ASKED : LEASE_EV_RECALLED);
}

void lease_recalled(struct lease *lease, const struct asker *asker)
{
	recalled(lease, &asker->range, asker);
}

void lease_recall(struct lease *lease, const struct store_message *m)
{
	struct asker asker = {.range = m->range};

	memcpy(asker.host, m->asker, sizeof(asker.host));
	memcpy(asker.token, m->asker_token, sizeof(asker.token));
	/* Where nothing is in the way, lease_recalled() follows. */
	if (m->ask && lease_is_ours(lease->state) && inquiry_needed(lease) && inquiry_start(lease, &asker))
		return;
	recalled(lease, &m->range, m->ask ? &asker : NULL);
}
