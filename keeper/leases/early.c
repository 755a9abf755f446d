/*
 * See act.h. One word says whether a probe is armed (`fire`, in kernel/probe.c). The probe's thread reads it and fires under
 * the mutex of the probes; the loop sets and clears it under that mutex. So for each armed probe, exactly one of these
 * happens: the thread fires once, or the loop disarms it first and the thread never fires.
 *
 * Not wrongly. A probe is armed in WAITING only: the lease is closed, and its last pin has ended. Before any event that
 * leads out of WAITING the loop disarms (act.c). So when the thread fires, the lease is still in WAITING, whatever inputs
 * the loop is looking at; no pin was given since, and the kernel has just said that no process has the lock. That
 * is what LEASE_CUE_FREE says, and what it does in WAITING: to RELEASING. A caller that the loop served from a
 * state before that was told nothing but "in use" or "wait".
 *
 * Not twice. If the thread has fired, LEASE_CUE_FREE is applied before the event for which the loop disarmed, and does not
 * send what was sent. A release is sent again only if its connection broke, as every release is; one of a token that
 * the store does not know changes nothing. The lease never opens again, since no event leads from RELEASING to an open state.
 *
 * The table. While a probe is armed, the word of the lease's slot has one writer, the thread: the loop writes it in steps
 * only, and in WAITING all steps that write it lead out of WAITING. The thread stores "returned" before it sends. If the
 * keeper is killed between the two, or after both, the next keeper sends the release (again); before both, the lease is
 * one like others.
 *
 * Answered early. The store's answer may be read before the loop has got the probe's last answer. Until the loop has disarmed,
 * lease->probed.early is set, so on_release() raises LEASE_CUE_FREE before LEASE_CUE_RELEASED. The lease is freed only after
 * both answers.
 *
 * Never sent, or lost. If the socket does not take all of it, nothing counts as sent (EARLY_RETURNED), and the loop is
 * woken to send. If no answer comes, the next command on the connection, at the latest a beat, finds that out.
 */
#include "keeper/leases/act.h"

#include <stdlib.h>

#include "keeper/guard/table.h"
#include "keeper/leases/awaited.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/requests.h"

struct early {
	struct table *table;
	uint32_t slot;
	struct store_shot *shot;
	struct awaited *awaited;
	bool returned, sent; /* by the thread, under the mutex of the probes */
};

/* In the probe's thread. */
static bool early_fire(void *arg)
{
	struct early *early = arg;

	table_return(early->table, early->slot); /* mutant: early-returned */
	early->returned = true;
	early->sent = store_shot_fire(early->shot);
	return early->sent;
}

/* Nothing was sent. */
static void drop_answer(struct early *early)
{
	int64_t sent_ns;

	awaited_end(early->awaited, &sent_ns);
}

void early_arm(struct lease *lease)
{
	struct early *early;

	if (lease->probed.early || !lease->probed.probe || !lease->probed.want.wait ||
	    lease->probed.want.shared_will_do)
		return;
	early = calloc(1, sizeof(*early));
	if (!early)
		return;
	*early =
		(struct early){.table = lease_keeper(lease)->table, .slot = lease->slot, .awaited = awaited_new(lease)};
	early->shot = lease_prepare_release(lease, early->awaited);
	if (early->shot && probe_arm(lease->probed.probe, early_fire, early)) {
		lease->probed.early = early;
		return;
	}
	if (early->shot)
		store_shot_free(early->shot);
	drop_answer(early);
	free(early);
}

enum early_end early_disarm(struct lease *lease)
{
	struct early *early = lease->probed.early;
	enum early_end end;

	if (!early)
		return EARLY_NOT;
	if (lease->probed.probe) /* else it has given its last answer */
		probe_disarm(lease->probed.probe);
	end = !early->returned ? EARLY_NOT : early->sent ? EARLY_SENT : EARLY_RETURNED;
	if (!early->sent)
		drop_answer(early);
	else if (lease->probed.early_refused)
		end = EARLY_RETURNED;
	store_shot_free(early->shot);
	free(early);
	lease->probed.early = NULL;
	lease->probed.early_refused = false;
	return end;
}
