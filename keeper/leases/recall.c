/* See recall.h. */
#include "keeper/leases/recall.h"

#include <string.h>

#include "keeper/clock.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/askers.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/inquiry.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/probing.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/split.h"

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

void recall_obey(struct lease *lease)
{
	bool ask = lease->recall == RECALL_ASK;

	if (lease->state != LEASE_HELD || lease->recall < RECALL_ASK || lease_is_part(lease) || is_kept(lease))
		return;
	if (!split_on_recall(lease, &lease->recall_range, ask))
		queue_raise(lease, ask ? LEASE_EV_ASKED : LEASE_EV_RECALLED);
	else if (!lease->splitting) /* it was but a question, and is answered */
		lease->recall = RECALL_NONE;
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
			askers_add(lease, asker);
		if (lease_is_ours(lease->state) && !is_young(lease) && split_on_recall(lease, range, asker != NULL))
			return;
		if (!lease->recalled_ns)
			lease->recalled_ns = clock_now_ns();
		if (lease->recall < RECALL_ASK) /* that of the others comes again, for the parts */
			lease->recall_range = *range;
		if (lease->recall < RECALL_ASK)
			lease->recall_shared = lease->recall_exclusive = false;
		*(range->mode == WIRE_SHARED ? &lease->recall_shared : &lease->recall_exclusive) = true;
		if (level > lease->recall)
			lease->recall = level;
		if (lease_is_part(lease))
			return; /* split_done() obeys */
	}
	if (is_kept(lease))
		return;
	/* It waits because of its rule: the probe that waits may be about to say that the lock has ended. So a new one looks. */
	if (lease->state == LEASE_WAITING && asker && lease->recall == RECALL_RULE && lease_is_probed(lease))
		return queue_raise(lease, LEASE_EV_NEEDED);
	if (lease->state == LEASE_WAITING && probe_waits_for_more(lease))
		return queue_raise(lease, LEASE_EV_NEEDED);
	queue_raise(lease, asker ? LEASE_EV_ASKED : LEASE_EV_RECALLED);
}

void recall_asked(struct lease *lease, const struct asker *asker)
{
	recalled(lease, &asker->range, asker);
}

void lease_recall(struct lease *lease, const struct store_message *m)
{
	struct asker asker = {.range = m->range};

	memcpy(asker.host, m->asker, sizeof(asker.host));
	memcpy(asker.token, m->asker_token, sizeof(asker.token));
	if (m->ask)
		deadline_asked(lease_keeper(lease));
	/* Where nothing is in the way, recall_asked() follows. */
	if (m->ask && lease_is_ours(lease->state) && inquiry_needed(lease) && inquiry_start(lease, &asker))
		return;
	recalled(lease, &m->range, m->ask ? &asker : NULL);
}

static bool recall_is_served(const struct lease *lease, enum lease_event event)
{
	if (event == LEASE_EV_SHRUNK)
		return lease->recall < RECALL_ASK || !lease->recall_exclusive;
	return event == LEASE_EV_KEPT && !lease->asker_count; /* else it came before the lease was open */
}

void recall_opened(struct lease *lease, enum lease_event event)
{
	if (event == LEASE_EV_SHRUNK) { /* mutant: asked-shared */
		askers_forget_shared(lease);
		lease->recall_shared = false;
	}
	if (!recall_is_served(lease, event))
		return;
	lease->recall = RECALL_NONE;
	lease->recalled_ns = 0;
	askers_forget(lease);
}
