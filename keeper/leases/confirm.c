/*
 * See confirm.h. Questions are sent a few at a time. After an outage there is one for each lease, and beats queue behind
 * requests that were sent earlier. Tens of thousands sent at once would take longer than the leases last; then each end
 * of the deadline would ask for all of them again, and no lease would ever be confirmed.
 */
#include "keeper/leases/confirm.h"

#include <utlist.h>

#include "keeper/leases/keeper.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/awaited.h"
#include "keeper/leases/queue.h"

#define CONFIRMS_AT_ONCE 64

static void stands(struct lease *lease, const struct store_reply *reply, int64_t sent_ns)
{
	struct member *m = lease_member(lease);
	enum lease_cue event = LEASE_CUE_STANDS;

	/* One that was taken up may be of another rule than the one of now. */
	lease_set_key(lease, reply->key);
	if (lease->key)
		lease_recall_by_rule(lease);
	if (reply->mode != lease->range.mode)
		event = LEASE_CUE_UNSHRUNK; /* mutant: unshrunk */
	if (lease_is_ours(lease->state))
		table_confirm(m->keeper->table, lease->slot);
	/* Nothing is renewed while leases are forgotten, and this may be the last of them. Its time has not passed. */
	if (lease->state == LEASE_FORGOTTEN) {
		queue_raise(lease, event);
		queue_settle(m->keeper);
		return deadline_renewed(m, sent_ns);
	}
	deadline_renewed(m, sent_ns);
	if (!m->deadline.expired)
		queue_raise(lease, event);
	else if (lease_is_unsure(lease->state)) /* it stood then, but the answer took longer than the host's time */
		lease_send_confirm(lease);
}

static void take_confirm(struct lease *lease, const struct store_reply *reply, int64_t sent_ns)
{
	if (reply->status == STORE_OK)
		stands(lease, reply, sent_ns);
	else if (reply->status == STORE_GONE)
		queue_raise(lease, LEASE_CUE_GONE);
	else if (reply->status == STORE_GIVEN_UP)
		lease_start_timer(lease, DEADLINE_HEARD_MS);
	else if (reply->status == STORE_ERROR)
		awaited_try_again(lease, "confirmed", reply);
}

static void on_confirm(void *arg, const struct store_reply *reply);

static void send_confirm(struct lease *lease)
{
	struct member *m = lease_member(lease);
	const struct file *file = lease->lock->file;

	m->confirms.sent++;
	lease->confirm = CONFIRM_SENT;
	if (lease->state == LEASE_FORGOTTEN)
		store_reclaim(m->store, file->name, file->inode, lease->token, lease->fence, &lease->range, lease->key,
			      on_confirm, awaited_new(lease));
	else
		store_confirm(m->store, file->name, lease->token, lease->fence, on_confirm, awaited_new(lease));
}

static void confirm_send_member(struct member *m)
{
	while (m->confirms.waiting && m->confirms.sent < CONFIRMS_AT_ONCE) {
		struct lease *lease = m->confirms.waiting;

		DL_DELETE2(m->confirms.waiting, lease, confirm_prev, confirm_next);
		lease->confirm = CONFIRM_NONE;
		lease->requests--;
		if (lease_is_unsure(lease->state))
			send_confirm(lease);
	}
}

void confirm_send_waiting(struct keeper *k)
{
	for (unsigned i = 0; i < k->member_count; i++)
		confirm_send_member(&k->members[i]);
}

static void on_confirm(void *arg, const struct store_reply *reply)
{
	struct awaited *awaited = arg;
	struct lease *lease = awaited->lease;
	struct member *m = lease_member(lease);
	int64_t sent_ns;
	bool again;

	deadline_notice(m->keeper);
	again = lease->confirm == CONFIRM_STALE && lease_is_unsure(lease->state);
	awaited_end(awaited, &sent_ns);
	m->confirms.sent--;
	lease->confirm = CONFIRM_NONE;
	if (reply->status == STORE_GIVEN_UP)
		deadline_given_up(m, reply->arrival);
	if (!again) {
		take_confirm(lease, reply, sent_ns);
	} else {
		if (reply->status == STORE_OK)
			deadline_renewed(m, sent_ns);
		lease_send_confirm(lease);
	}
	queue_settle(m->keeper);
	deadline_confirmed(m, reply->status);
}

void lease_send_confirm(struct lease *lease)
{
	struct member *m = lease_member(lease);

	switch (lease->confirm) {
	case CONFIRM_NONE:
		lease->confirm = CONFIRM_WAITS;
		lease->requests++;
		DL_APPEND2(m->confirms.waiting, lease, confirm_prev, confirm_next);
		return;
	case CONFIRM_SENT:
		lease->confirm = CONFIRM_STALE;
		return;
	case CONFIRM_WAITS:
	case CONFIRM_STALE:
		return;
	}
}
