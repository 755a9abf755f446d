/* See act.h. A lease that has ended is freed when no store request and no probe refers to it any more. */
#include "keeper/leases/act.h"

#include <stdlib.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/answers.h"
#include "keeper/leases/confirm.h"
#include "keeper/leases/keys.h"
#include "keeper/leases/pagefile.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/lost.h"
#include "keeper/leases/probing.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/recall.h"
#include "keeper/leases/reopen.h"
#include "keeper/leases/requests.h"
#include "keeper/leases/room.h"
#include "keeper/leases/touched.h"
#include "keeper/leases/hidden.h"
#include "keeper/leases/waiters.h"
#include "keeper/log.h"

#define LINGER_MAX_TTLS 4
#define LINGER_AWAY_MS  1000

/* --- the table's actions --- */

/* Other leases of this host may be of no use any more, since open ones cover them. Not the parts of a lease that still
 * stands: these must all be open. */
static bool is_superseded(const struct lease *lease)
{
	return !lease_is_part(lease) && lock_covered_without(lease);
}

static void supersede(struct lease *lease)
{
	struct lease *other;

	DL_FOREACH (lease->lock->leases, other)
		if (other != lease && lease_is_ours(other->state) && range_overlaps(&lease->range, &other->range) &&
		    is_superseded(other))
			queue_raise(other, LEASE_CUE_SUPERSEDED);
}

static void open_lease(struct lease *lease, enum lease_cue event)
{
	if (!lease->held_at)
		lease->held_at = time(NULL);
	if (!lease->lock->leased_at)
		lease->lock->leased_at = lease->held_at;
	recall_opened(lease, event);
	lease_start_timer(lease, lease->linger_ns / NS_PER_MS);
	supersede(lease);
	/* The lease could not be closed when the leases that cover it were opened: look again. Not for a new lease: its
	 * caller needs a single lease that covers all that it wants. */
	if (event != LEASE_CUE_STOPPED && event != LEASE_CUE_SHRUNK)
		return;
	if (is_superseded(lease))
		queue_raise(lease, LEASE_CUE_SUPERSEDED);
	else if (lease->split.running && lease->range.mode == WIRE_SHARED)
		recall_split_done(lease); /* its parts asked for exclusive, and wait for hosts that share it */
}

/* The lease's mode is shared from now on, before the shrink is sent. So a lease that is put back after the store lost
 * its memory is never stronger than the store last knew it. */
static void become_shared(struct lease *lease)
{
	table_share(lease_keeper(lease)->table, lease->slot);
	lease->range.mode = WIRE_SHARED;
	touched_add(&lease->lock->file->keeper->touched, lease->lock->file->name, lease->lock->space);
}

static const char *lose_why(const struct lease *lease, enum table_why why)
{
	if (why == TABLE_WHY_KEY)
		return keys_why_lost(lease);
	if (why == TABLE_WHY_BROKEN)
		return "an operator took it away (dflock break)";
	return why == TABLE_WHY_FORGOTTEN ? "the store lost its memory, and it could not be put back in time"
					  : "it was not renewed in time, and the store gave it up";
}

/* Its holders end. */
static void lose(struct lease *lease, enum table_why why)
{
	struct keeper *k = lease_keeper(lease);

	leasepage_close_lock(lease->lock); /* lost_has_holders() */
	lease->ending = (struct lease_ending){lease->slot, table_generation(k->table, lease->slot)};
	table_lose(k->table, lease->slot, why);
	lease->slot = TABLE_NO_SLOT; /* the parent frees it */
	lost_end_holders(k);
	lost_report(lease, why, lose_why(lease, why));
}

/* from: the state before. */
static void act(struct lease *lease, unsigned actions, enum lease_state from, enum lease_cue event)
{
	bool forgotten = from == LEASE_FORGOTTEN || event == LEASE_CUE_FORGOTTEN;
	struct keeper *k = lease_keeper(lease);

	if (actions & LEASE_DO_STOP_PROBE && lease_is_probed(lease))
		lease_stop_probe(lease);
	else if (actions & LEASE_DO_STOP_PROBE && lease->state == LEASE_STOPPING)
		lease_start_timer(lease, 1); /* no probe runs: its start was to be tried again */
	if (actions & LEASE_DO_SHARE)
		become_shared(lease);
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
		recall_tell_in_use(lease);
	if (actions & LEASE_DO_LOST)
		lose(lease, lease->key_lost             ? TABLE_WHY_KEY
			    : event == LEASE_CUE_DOOMED ? TABLE_WHY_BROKEN
			    : forgotten                 ? TABLE_WHY_FORGOTTEN
							: TABLE_WHY_TAKEN);
	if (event == LEASE_CUE_DOOMED)
		lease->spent = false; /* its rest ends with it */
	if (actions & LEASE_DO_OPEN)
		open_lease(lease, event);
	if (actions & LEASE_DO_SERVE)
		waiters_serve(lease->lock);
	if (actions & LEASE_DO_CLOSE && lease->state == LEASE_DRAINING && is_superseded(lease))
		queue_raise(lease, LEASE_CUE_SUPERSEDED);
	if (actions & LEASE_DO_CLOSE && lease->state == LEASE_DRAINING &&
	    !waiters_are_pinned(lease->lock, &lease->range))
		queue_raise(lease, LEASE_CUE_DRAINED);
	if (actions & LEASE_DO_PROBE)
		lease_start_probe(lease);
	if (actions & LEASE_DO_AWAIT_PROBE && !lease_is_probed(lease))
		queue_raise(lease, LEASE_CUE_STOPPED);
}

static void enter(struct lease *lease, enum lease_state next)
{
	struct keeper *k = lease_keeper(lease);
	bool was_unsure = lease_is_unsure(lease->state);

	if (next == lease->state)
		return;
	if (lease->state == LEASE_ASKING)
		waiters_detach(lease);
	if (lease->state == LEASE_OPEN) /* mutant: page-closed */
		leasepage_close(lease); /* first of all */
	lease_set_state(lease, next);
	if (was_unsure && lease_is_unsure(next))
		return; /* its slot says so, and the timer of a question that was refused goes on */
	if (lease_is_unsure(next))
		table_doubt(k->table, lease->slot);
	else if (next == LEASE_OPEN || next == LEASE_SHRINKING)
		table_hold(k->table, lease->slot);
	lease->since_ns = clock_now_ns();
	if (next == LEASE_RELEASING)
		recall_given_back(lease);
	uv_timer_stop(&lease->timer);
	if (next == LEASE_ENDED)
		DL_APPEND2(lease_keeper(lease)->ended, lease, ended_prev, ended_next);
}

/* --- counts --- */

/* How long processes held the kernel lock is not known: unlocking needs no message. The lease was here for longer. */
static void count_end(struct lease *lease)
{
	if (lease->granted_ns)
		histogram_observe(&lease_keeper(lease)->act.held[lease->range.space],
				  clock_now_ns() - lease->granted_ns);
	lease->granted_ns = 0;
}

static void count_handover(struct lease *lease)
{
	struct act_counts *counts = &lease_keeper(lease)->act;

	counts->handovers[lease->range.space]++;
	if (lease->recalled.since_ns)
		histogram_observe(&counts->recalled[lease->range.space], clock_now_ns() - lease->recalled.since_ns);
}

/* The lease has gone from one state to another. */
static void count_step(struct lease *lease, enum lease_state from, enum lease_cue event)
{
	bool wanted = lease->recalled.level == RECALL_ASK || lease->recalled.level == RECALL_WAIT;

	if (event == LEASE_CUE_GRANTED && lease->state == LEASE_OPEN) {
		lease->granted_ns = clock_now_ns();
		lease_keeper(lease)->act.granted[lease->range.space]++;
	}
	if ((event == LEASE_CUE_FREE && wanted && from != LEASE_BREAKING) || event == LEASE_CUE_SHARED)
		count_handover(lease);
	if (lease->state == LEASE_RELEASING || lease->state == LEASE_ENDING || lease->state == LEASE_ENDED)
		count_end(lease);
}

/* --- the queue's work --- */

static void free_lease(struct lease *lease)
{
	free(lease->asking.blockers);
	answers_forget(lease);
	room_remove(lease);
	lease_free(lease);
}

static void free_file(struct file *file)
{
	reopen_forget(file);
	file_free(file);
}

static unsigned reap(struct keeper *k)
{
	struct lease *lease, *next;
	struct file *file, *next_file;
	unsigned count = 0;

	DL_FOREACH_SAFE2 (k->ended, lease, next, ended_next) {
		if (lease->requests || lease_is_probed(lease))
			continue;
		DL_DELETE2(k->ended, lease, ended_prev, ended_next);
		free_lease(lease);
		count++;
	}
	DL_FOREACH_SAFE2 (k->unused, file, next_file, unused_next) {
		DL_DELETE2(k->unused, file, unused_prev, unused_next);
		file->unused_prev = NULL;
		if (!file_is_used(file))
			free_file(file);
	}
	return count;
}

/* Does the event still apply, now that its turn has come (queue.c)? */
static bool still_holds(struct lease *lease, enum lease_cue event)
{
	if (event == LEASE_CUE_GRANTED && lease->state == LEASE_ASKING) {
		recall_granted(lease);
		return lease_take(lease);
	}
	if (event != LEASE_CUE_SUPERSEDED || is_superseded(lease))
		return true;
	queue_obey(lease);
	return false;
}

/* For the leases that this one is a part of, or that are parts of it. */
static void tell_parts(struct lease *lease)
{
	if (lease->split.running && !lease_is_ours(lease->state))
		recall_split_done(lease);
	if (lease_is_part(lease) && lease->state != LEASE_ASKING && !lease_is_ours(lease->state))
		recall_piece_ended(lease);
}

/* The probe goes on waiting, since another host waits, or the rule wants the lease back. */
static void is_in_use(struct lease *lease)
{
	if (lease->state != LEASE_WAITING)
		return;
	if (lease->recalled.level == RECALL_RULE) /* it will not linger */
		hidden_due(lease);
	if (lease_is_probed(lease)) { /* it did not look free when the recall came */
		recall_split(lease, &lease->recalled.range, false);
		early_arm(lease);
	} else /* without a description: reopen.c */
		lease_start_timer(lease, lease->probed.pause_ms);
}

/* sent: its release is (early.c). */
static void apply(struct lease *lease, enum lease_cue event, bool sent)
{
	enum lease_state from = lease->state;
	struct lease_step step;

	if (!still_holds(lease, event))
		return;
	step = lease_step(from, event);
	log_debug("%s %.8s: %s in %s -> %s", lease->lock->file->name, lease->token, lease_cue_name(event),
		  lease_state_name(from), lease_state_name(step.next));
	enter(lease, step.next);
	if (step.next != from)
		count_step(lease, from, event);
	if (event == LEASE_CUE_EXPIRED)
		lease->asking.lapsed = true;
	act(lease, sent ? step.actions & ~(unsigned)LEASE_DO_RELEASE : step.actions, from, event);
	if (lease->state == LEASE_ENDED) {
		table_vacate(lease_keeper(lease)->table, lease->slot);
		lease->slot = TABLE_NO_SLOT;
	}
	tell_parts(lease);
	if (event == LEASE_CUE_IN_USE)
		is_in_use(lease);
	if (lease->state == LEASE_OPEN && lease->recalled.level >= RECALL_ASK)
		queue_obey(lease);
}

static void run_step(struct lease *lease, enum lease_cue event)
{
	bool stays = lease_step(lease->state, event).next == LEASE_WAITING;
	enum early_end early = stays ? EARLY_NOT : early_disarm(lease); /* mutant: early-disarmed */

	if (early != EARLY_NOT)
		apply(lease, LEASE_CUE_FREE, early == EARLY_SENT);
	if (early == EARLY_NOT || event != LEASE_CUE_FREE)
		apply(lease, event, false);
}

/* --- inputs --- */

/*
 * The longest pause between two looks at a lease that is in use. On a file system that is not local the keeper's description keeps a
 * removed file (.fuse_hidden, .nfs) and the mount busy, so the end of the use is to be seen soon: with at most 1,000 looks a second.
 * A probe that waits would see it at once, but may take a thread of a FUSE server for as long as the lock is held.
 */
static int64_t linger_max_ns(const struct lease *lease)
{
	const struct keeper *k = lease_keeper(lease);
	int64_t max_ms = LINGER_MAX_TTLS * k->config->lease.ttl_ms, away_ms = LINGER_AWAY_MS + HASH_COUNT(k->files);

	return (!lease->lock->file->local && away_ms < max_ms ? away_ms : max_ms) * NS_PER_MS;
}

static void lingered(struct lease *lease)
{
	int64_t max = linger_max_ns(lease), next = lease->linger_ns ? lease->linger_ns * 2 : NS_PER_MS;

	if (waiters_rest_pinned(lease->lock, &lease->range) || lease_is_part(lease)) {
		lease_start_timer(lease, lease->linger_ns / NS_PER_MS);
		return;
	}
	lease->linger_ns = next > max ? max : next;
	/* Mostly the lease is in use: that needs no thread, and the lease need not be closed. */
	if (lease_is_in_use(lease)) {
		hidden_due(lease);
		lease_start_timer(lease, lease->linger_ns / NS_PER_MS);
		return;
	}
	lease->recalled.level = RECALL_LINGER;
	queue_raise(lease, LEASE_CUE_LINGERED);
}

static void lease_timeout(struct lease *lease)
{
	switch (lease->state) {
	case LEASE_ASKING:
		lease_acquire(lease, NULL, 0);
		break;
	case LEASE_OPEN:
		if (lease->recalled.level == RECALL_WAIT)
			recall_obey(lease);
		else
			lingered(lease);
		break;
	case LEASE_PROBING:
	case LEASE_WAITING:
	case LEASE_STOPPING:
		queue_raise(lease, LEASE_CUE_STOPPED);
		break;
	default: /* an answer was an error: again */
		queue_raise(lease, LEASE_CUE_UP);
		break;
	}
}

void lease_used(struct lease *lease)
{
	lease->linger_ns = lease_keeper(lease)->config->lease.linger_ms * NS_PER_MS;
	room_used(lease);
	if (lease->state == LEASE_OPEN && lease->recalled.level != RECALL_WAIT)
		lease_start_timer(lease, lease->linger_ns / NS_PER_MS);
}

/* --- start and end --- */

void act_start(struct keeper *k)
{
	static const struct queue_work work = {.timer = lease_timeout,
					       .step = run_step,
					       .send = confirm_send_waiting,
					       .obey = recall_obey,
					       .reap = reap};

	k->queue.work = &work;
}

/* Late answers to requests and probes must find a lease without a slot: only the slots tell the parent which holders it
 * must stop at the deadline if no keeper comes. */
void act_leave_all(struct keeper *k)
{
	struct lease *lease, *next;

	HASH_ITER (hh, k->leases, lease, next) {
		uv_timer_stop(&lease->timer);
		lease_set_state(lease, LEASE_ENDED);
		lease->slot = TABLE_NO_SLOT;
		early_disarm(lease);
		lease_stop_probe(lease);
	}
}

void act_free_all(struct keeper *k)
{
	struct lease *lease, *next;
	struct file *file, *next_file;

	HASH_ITER (hh, k->leases, lease, next)
		free_lease(lease);
	HASH_ITER (hh, k->files, file, next_file)
		free_file(file);
}
