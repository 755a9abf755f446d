/*
 * See control_init.h.
 *
 * `dflock init` opens a store that is new before its grace is over. What must not happen: a host that the store has
 * forgotten still holds a lock, and the store grants that lock to another host.
 *
 * - If this keeper knows an earlier incarnation, the store has lost its memory, or is another store: refused.
 * - Any other host that has leases sends a beat every third of ttl_ms. From the answer it learns that the store is not
 *   the one that it knew, and makes the store begin anew (store.lua, begin) or puts its leases back. So `init` waits
 *   for a third of ttl_ms after this keeper saw the incarnation begin. Then the script decides, in one step with all
 *   that hosts put back.
 * - Nobody knows of a host that was cut off for all that time: its leases may stand for the rest of ttl_ms. Only the
 *   operator can rule that out.
 *
 * --force skips all of this.
 */
#include "keeper/callers/control_init.h"

#include <utlist.h>

#include "keeper/callers/session.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/grace.h"
#include "keeper/leases/queue.h"
#include "keeper/log.h"

#define INIT_AGAIN_MS 50

static bool is_forced(const struct session *s)
{
	return s->request.flags & WIRE_F_FORCE;
}

static void refuse_init(struct session *s, const char *known)
{
	session_refuse(
		s,
		"the store was not opened: %s. Hosts may hold locks of that memory; it opens by itself in %lld s. "
		"`dflock init --force` opens it now: a host that holds such a lock and the next one that gets it "
		"then run at the same time",
		known, (long long)grace_left_ms(s->keeper) / 1000 + 1);
}

static void on_init_timer(uv_timer_t *timer)
{
	struct session *s = timer->data;
	struct keeper *k = s->keeper;

	if (s->state == SESSION_INIT)
		control_init(s);
	queue_settle(k);
}

static void init_answered(struct keeper *k, const struct store_reply *reply, bool forced)
{
	struct session *s, *next;
	char why[WIRE_REASON_BYTES];

	deadline_trouble(k, why, sizeof(why));
	DL_FOREACH_SAFE (k->sessions->all, s, next) {
		if (s->state != SESSION_INIT || is_forced(s) != forced)
			continue;
		if (reply->status == STORE_OK)
			session_reply(s, WIRE_OK, NULL, -1);
		else if (reply->status == STORE_UNREACHABLE)
			session_refuse(s, "%s", why);
		else if (reply->status == STORE_INCARNATION && !forced)
			uv_timer_start(&s->timer, on_init_timer, INIT_AGAIN_MS, 0); /* grace_begin() comes first */
		else if (forced || !reply->error)
			session_refuse(s, "the store was not opened: %s",
				       reply->error ? reply->error : "it changed meanwhile");
		else
			refuse_init(s, reply->error);
	}
	if (reply->status == STORE_OK)
		queue_raise_all(k, LEASE_EV_UP);
	queue_settle(k);
}

static void on_init(void *arg, const struct store_reply *reply)
{
	init_answered(arg, reply, false);
}

static void on_forced_init(void *arg, const struct store_reply *reply)
{
	init_answered(arg, reply, true);
}

static void init_new(struct session *s)
{
	struct keeper *k = s->keeper;
	int64_t left = store_in_grace(k->store) && !*k->grace.earlier_incarnation ? grace_beat_left_ms(k) : 0;

	if (left > 0)
		uv_timer_start(&s->timer, on_init_timer, (uint64_t)left, 0);
	else /* names an earlier incarnation: the answer then lists what was put back so far */
		store_open(k->store, STORE_OPEN_NEW, k->grace.earlier_incarnation, on_init, k);
}

void control_init(struct session *s)
{
	struct keeper *k = s->keeper;
	char why[WIRE_REASON_BYTES];

	session_enter(s, SESSION_INIT);
	if (!k->host_in_store.tried)
		return;     /* the keeper has only just started; control_init_store_tried() goes on */
	if (is_forced(s)) { /* this also opens a store that is down because its record has another ttl_ms */
		log_event(LINE_STORE_OPENED,
			  "the store is opened on request, whatever is known of an earlier memory of it");
		store_open(k->store, STORE_OPEN_FORCED, "", on_forced_init, k);
	} else if (!store_is_up(k->store)) {
		deadline_trouble(k, why, sizeof(why));
		session_refuse(s, "%s", why);
	} else {
		init_new(s);
	}
}

void control_init_store_tried(struct keeper *k)
{
	struct session *s, *next;

	DL_FOREACH_SAFE (k->sessions->all, s, next)
		if (s->state == SESSION_INIT)
			control_init(s);
}
