/*
 * See serve.h.
 *
 * A pin is the keeper's word that the lease is not given back before pin_until_ns, unless the caller closes its
 * connection first. A pin lasts at most pin_ms, and ends before the freeze margin begins. Over a pinned range no probe
 * runs and none has the kernel lock. So if the kernel refuses a caller that the keeper granted (LOCK_NB), another
 * program is the reason. The lease's own probe waits for the end of the pin (lease.h). Other leases of the file may be
 * on their way back while a newer one is open: their probes are stopped before the pin is given, and let go of what
 * they took. That is safe: the probe has had its answer, and a process that takes the kernel lock now does so under the
 * newer lease. From when a caller first wants a pin until it has it, no probe starts in its range (needs_pin):
 * otherwise the probes of two leases that both have to be given back could take turns for ever.
 */
#include "keeper/callers/serve.h"

#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "keeper/leases/keeper.h"
#include "keeper/guard/table.h"
#include "keeper/leases/act.h"
#include "keeper/leases/answers.h"
#include "keeper/callers/callers.h"
#include "keeper/clock.h"
#include "keeper/callers/deadlock.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/ages.h"
#include "keeper/leases/probing.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/requests.h"
#include "keeper/leases/waiters.h"
#include "keeper/leases/pagefile.h"
#include "keeper/leases/locks.h"
#include "keeper/callers/lookup.h"
#include "keeper/leases/lost.h"
#include "keeper/leases/room.h"
#include "keeper/leases/seenout.h"
#include "keeper/callers/session.h"
#include "keeper/leases/recall.h"

static struct store_range serve_range(const struct session *s)
{
	return (struct store_range){
		.space = s->request.space, .mode = s->request.mode, .from = s->request.from, .to = s->request.to};
}

/* --- asking for a lease --- */

static struct lease *ask(struct session *s, const struct store_range *range)
{
	struct lease *lease;
	int ret;

	if (room_check(s->keeper, s->peer.uid) < 0) {
		waiting_for_room(s);
		return NULL;
	}
	ret = lease_begin(s->waiter.lock, range, s->peer.uid, &lease);
	if (ret == -ENOMEM)
		caller_refuse_for_now(s, REFUSAL_ROOM, "the keeper has no memory left");
	else if (ret == -ENFILE)
		caller_refuse_for_now(s, REFUSAL_ROOM, "the keeper holds as many leases as it can");
	else if (ret < 0)
		caller_refuse_for_now(
			s, REFUSAL_ROOM,
			"the keeper's table of leases cannot grow (%s): is the runtime directory's file system full?",
			strerror(-ret));
	if (ret < 0)
		return NULL;
	lease->rest_ms = caller_once_rest_ms(s);
	lease_set_key(lease, s->waiter.lock->file->redis_key);
	if (s->keeper->config->show_jobs) {
		lease->job = (struct store_job){.pid = s->peer.pid, .since = s->started};
		session_command(s, lease->job.command);
	}
	return lease;
}

/* The asking lease for exactly this mode and range: a larger one may have to wait for more. Callers that wait and
 * callers that do not wait never share one: a caller that does not wait passes callers that wait, and needs the
 * holders' answer to its own question, not to an earlier one. NULL where each lock is a grant of its own. */
static struct lease *find_asking(const struct session *s, const struct store_range *range)
{
	struct lease *lease;

	if (caller_once_rest_ms(s))
		return NULL;
	DL_FOREACH (s->waiter.lock->leases, lease)
		if (lease->state == LEASE_ASKING && !lease->rest_ms && lease->range.mode == range->mode &&
		    lease->range.from == range->from && lease->range.to == range->to &&
		    !(caller_is_nonblocking(s) ? waiters_block(lease) : waiters_ask(lease)) && !answers_first(lease))
			return lease;
	return NULL;
}

static void wait_for_lease(struct session *s, const struct store_range *range)
{
	const struct store_range wanted = caller_keyed_range(s, range);
	struct lease *lease = find_asking(s, &wanted);
	bool fresh = !lease;

	if (!lease)
		lease = ask(s, &wanted);
	if (!lease)
		return;
	room_leave(&s->waiter);
	waiters_join(&s->waiter, lease);
	waiting_for_lease(s);
	if (!caller_is_nonblocking(s) && lease->asking.queued && !deadlock_possible(s))
		caller_tell_waiting(s);
	/* Asks again: so that the holders answer, or that the store says which call waited first. */
	if (fresh || deadlock_possible(s) || (caller_is_nonblocking(s) && lease->asking.queued))
		lease_acquire(lease, NULL, 0);
}

/* --- the decision --- */

/* Its thread was called back out of the kernel, so that a probe can look (calledback.c). */
static bool serve_awaits_probe(const struct session *s, const struct lease *lease, bool needed)
{
	return s->called_back && !needed && lease->recalled.level >= RECALL_ASK &&
	       (lease->state == LEASE_DRAINING || lease->state == LEASE_PROBING); /* mutant: called-back-waits */
}

/*
 * A caller that already holds something under a closed lease is no newcomer: the kernel would grant it past a waiter,
 * and a parent that holds a shared lock and waits for a child that wants one would never end. A caller that does not
 * wait is none either: it passes callers that wait. A caller is also exempt if no other host waits, or if its pin was
 * already due when the recall came (needed): this may be the very lease that was asked for on behalf of this caller,
 * and recalled at once. So is one whose call was granted before: the lease cannot go back as long as this call is under way. Or its
 * thread was called back, and a local process has the lock.
 */
static bool is_newcomer(const struct session *s, const struct lease *lease, bool needed)
{
	/* mutant: newcomer */
	if ((lease->recalled.level < RECALL_WAIT && !caller_keyed_is_due(lease)) || s->holds.exclusive ||
	    own_count(&s->before) || needed || s->again || s->called_back || caller_is_nonblocking(s))
		return false;
	return s->request.mode == WIRE_EXCLUSIVE || !(s->holds.shared || s->shared == SESSION_SHARED_IN_USE);
}

/* A call of the net counts as under way before it is granted. False: this has answered the caller. */
static bool serve_note(struct session *s, const struct store_range *range)
{
	int ret = s->behalf.thread ? seenout_note(s->waiter.lock, range, &s->behalf, s->request.call) : 0;

	if (ret == -EDQUOT)
		caller_refuse_for_now(s, REFUSAL_ROOM,
				      "too many lock calls of this user are under way in programs under the net");
	else if (ret < 0)
		caller_refuse_for_now(s, REFUSAL_ROOM, "too many lock calls are under way in programs under the net");
	return ret == 0;
}

static void pin(struct session *s, struct lease *lease, int64_t now, int64_t sure_until)
{
	struct keeper *k = s->keeper;
	int64_t until = now + k->config->lease.pin_ms * NS_PER_MS;
	struct store_range range = serve_range(s);

	if (s->request.op == WIRE_TEST) { /* nothing is in the way */
		lease_used(lease);
		if (lease->state == LEASE_OPEN)
			leasepage_show(lease);
		session_reply(s, WIRE_GRANTED, NULL, -1);
		return;
	}
	if (!lock_stop_probes(s->waiter.lock, &range)) { /* mutant: serve-probed */
		s->waiter.needs_pin = true;              /* the last answer of each serves again */
		return;
	}
	if (!serve_note(s, &range))
		return;
	lease->spent = true;
	s->granted_fence = lease->fence;
	s->waiter.pin_until_ns = until < sure_until ? until : sure_until;
	session_enter(s, SESSION_PINNED);
	room_leave(&s->waiter);
	waiters_leave(&s->waiter);
	waiting_pinned(s);
	lease_used(lease);
	if (lease->state == LEASE_OPEN)
		leasepage_show(lease);
	table_pinned(k->table, s->waiter.pin_until_ns);
	if (file_is_limited(lease->lock->file))
		ages_note_granted(lease->lock, s->peer.pid, s->peer.uid, s->waiter.pin_until_ns);
	session_grant(s, s->waiter.pin_until_ns, lease->fence);
}

static void serve_closed(struct session *s, struct lease *lease, bool needed, int64_t now, int64_t sure_until)
{
	struct store_range range = serve_range(s);

	if (lease_is_unsure(lease->state))
		return; /* it serves again when it opens or is lost */
	if (lease->state == LEASE_SHRINKING && range.mode == WIRE_SHARED)
		return; /* LEASE_CUE_SHRUNK does */
	/* No other host has a lock in the way, and a test needs no pin. */
	if (s->request.op == WIRE_TEST) {
		pin(s, lease, now, sure_until);
		return;
	}
	if ((lease->recalled.level == RECALL_WAIT || caller_keyed_is_due(lease)) && range.mode == WIRE_SHARED &&
	    s->shared == SESSION_SHARED_UNTESTED && !needed && !caller_is_nonblocking(s)) {
		lookup_test_shared(s);
		return;
	}
	if (serve_awaits_probe(s, lease, needed)) {
		waiting_for_probe(s);
		return;
	}
	s->held_back = false;
	if (is_newcomer(s, lease, needed) || lease->state == LEASE_SHRINKING) {
		wait_for_lease(s, &range);
		return;
	}
	if (lease->state == LEASE_DRAINING) { /* mutant: serve-draining */
		pin(s, lease, now, sure_until);
		/* The split was postponed for this caller; do it now. */
		if (needed && s->state == SESSION_PINNED && lease->recalled.level >= RECALL_ASK)
			recall_split(lease, &lease->recalled.range, lease->recalled.level == RECALL_ASK);
		return;
	}
	s->waiter.needs_pin = true;
	queue_raise(lease, LEASE_CUE_NEEDED); /* LEASE_CUE_STOPPED serves again */
}

/* needed: the caller's pin was due as soon as the probes in its range had ended. */
static void decide(struct session *s, bool needed)
{
	struct store_range range = serve_range(s);
	struct member *m = waiter_member(&s->waiter);
	int64_t sure_until = deadline_sure_until(m);
	int64_t now = clock_now_ns();
	bool sure = sure_until - now > DEADLINE_LEAST_NS;
	struct lease *lease = lock_covering(s->waiter.lock, &range);

	if (caller_once_forbids(s)) {
		caller_refuse(s, REFUSAL_RULE,
			      "its rule has at_least_ms, and then only exclusive locks of the whole file can be had");
		return;
	}
	if (lease && (!caller_once_may_use(s, lease, needed) || !caller_keyed_may_use(s, lease)))
		lease = NULL;
	if (store_is_up(m->store) && !m->deadline.expired)
		waiting_store_is_back(s);
	if (lost_has_holders(s->waiter.lock))
		return; /* lost.c serves again */
	/* mutant: serve-breaking */
	if (lock_is_breaking(s->waiter.lock))
		return; /* the lease's end does, or its opening */
	if (!store_is_up(m->store) && !(lease && sure)) {
		waiting_for_store(s);
		return;
	}
	if (!lease) {
		if (!s->waiter.lease)
			wait_for_lease(s, &range);
	} else if (!sure) {
		waiting_for_store(s);
	} else if (lease->state == LEASE_OPEN) {
		pin(s, lease, now, sure_until);
	} else if (!s->waiter.lease) {
		serve_closed(s, lease, needed, now, sure_until);
	}
}

/* Looks at one waiting caller. */
static void serve(struct session *s)
{
	struct lock *lock = s->waiter.lock;
	bool needed = s->waiter.needs_pin;

	s->waiter.needs_pin = false;
	decide(s, needed);
	if (needed && !s->waiter.needs_pin && s->state != SESSION_PINNED)
		waiters_unpinned(lock);
}

/* A holder on another host uses the lock. Does that answer the caller? A caller that only tests record locks waits
 * until all holders have said what is in the way. */
static bool is_answered(const struct session *s)
{
	const struct lease *lease = s->waiter.lease;

	return lease && caller_is_nonblocking(s) &&
	       (s->request.op != WIRE_TEST || lease->range.space != WIRE_RECORD || answers_complete(lease));
}

void serve_told(struct waiter *waiter, unsigned news, const char *why)
{
	struct session *s = session_of_waiter(waiter);
	const struct store_range whole = {.mode = WIRE_EXCLUSIVE, .to = WIRE_EOF};

	if (news & WAITER_PIN_WANTED)
		session_watch(s);
	if (news & WAITER_REFUSED) {
		caller_refuse_for_now(s, waiter->refusal, "%s", why);
		return;
	}
	if (news & WAITER_RESTING && caller_is_nonblocking(s)) {
		session_would_block(s, &whole);
		return;
	}
	if (news & WAITER_QUEUED && waiter->lease) {
		if (!caller_is_nonblocking(s))
			caller_tell_waiting(s);
		deadlock_chase(s);
	}
	if (news & WAITER_IN_USE && is_answered(s))
		caller_would_block(s);
	else if (news & WAITER_SERVE && s->state == SESSION_WAITING)
		serve(s);
}

void serve_begin(struct session *s, struct lock *lock)
{
	struct waiter *w = &s->waiter;

	session_enter(s, SESSION_WAITING);
	waiting_begin(s);
	w->range = serve_range(s);
	w->uid = s->peer.uid;
	w->nonblocking = caller_is_nonblocking(s);
	w->may_pass = own_count(&s->before) > 0;
	s->called_back = s->behalf.thread && !w->nonblocking && seenout_called_back(lock, &w->range, &s->behalf);
	waiters_add(w, lock);
	queue_tell(w, WAITER_SERVE); /* mutant: serve-new */
}
