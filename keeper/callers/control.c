/* See control.h. */
#include "keeper/callers/control.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/leases/act.h"
#include "keeper/clock.h"
#include "keeper/leases/grace.h"
#include "keeper/callers/configwatch.h"
#include "keeper/leases/host.h"
#include "keeper/leases/kernel.h"
#include "keeper/leases/leasepage.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"
#include "keeper/main.h"
#include "keeper/callers/serve.h"
#include "keeper/callers/sessions.h"
#include "keeper/leases/split.h"
#include "keeper/callers/status.h"

#define INIT_AGAIN_MS   50
#define STOP_LOOK_MS    200
#define STOP_WAIT_MS    5000 /* less than the command line waits for an answer */
#define STOP_RELEASE_MS 2000 /* for the store's answers alone */

/* --- stop --- */

#define FOR_STOPPERS(k, s, next)                                                                                       \
	DL_FOREACH_SAFE ((k)->sessions, s, next)                                                                       \
		if ((s)->state == SESSION_STOPPING)

static bool is_stopping(const struct keeper *k)
{
	const struct session *s;

	DL_FOREACH (k->sessions, s)
		if (s->state == SESSION_STOPPING)
			return true;
	return false;
}

static void refuse_stop_unreachable(struct keeper *k)
{
	struct session *s, *next;
	char why[WIRE_REASON_BYTES];

	host_store_trouble(k, why, sizeof(why));
	FOR_STOPPERS(k, s, next)
	session_refuse(s, "leases cannot be given back: %s", why);
}

void control_in_use(const struct lease *lease)
{
	struct session *s, *next;

	if (!store_is_up(lease->lock->file->keeper->store))
		return refuse_stop_unreachable(lease->lock->file->keeper);
	FOR_STOPPERS(lease->lock->file->keeper, s, next)
	session_refuse(s, "%s (%s) is locked by a program: see `dflock status`", lease->lock->file->name,
		       lease->lock->file->path);
}

static void stopped(struct keeper *k)
{
	struct session *s, *next;

	configfile_forget(k);
	FOR_STOPPERS(k, s, next)
	session_reply(s, WIRE_OK, NULL, -1);
	keeper_end(k, "stopped on request");
}

void control_leases_ended(struct keeper *k)
{
	if (!k->leases && is_stopping(k))
		stopped(k);
}

/*
 * May a program here rely on it, or be about to? Not on one that is on its way back: should that not arrive, it is
 * found to be a silent host's. Nor on an unsure one that the kernel says nobody holds: its pins are over, it stays in
 * the table, and the next keeper sees to it.
 */
static bool may_be_in_use(const struct lease *lease)
{
	const struct file *file = lease->lock->file;

	if (lease->state != LEASE_UNSURE)
		return lease->state == LEASE_ASKING || lease_is_ours(lease->state);
	return !file->local || file->fd < 0 || lease_is_in_use(lease);
}

/* NULL: none. */
static struct lease *find_in_use(const struct keeper *k)
{
	struct lease *lease, *next;

	HASH_ITER (hh, k->leases, lease, next)
		if (may_be_in_use(lease))
			return lease;
	return NULL;
}

/* Does one need the store, before it is known whether it may go? */
static bool store_is_needed(const struct keeper *k)
{
	struct lease *lease, *next;

	HASH_ITER (hh, k->leases, lease, next)
		if ((lease->state == LEASE_ASKING || lease->state == LEASE_UNSURE) && may_be_in_use(lease))
			return true;
	return false;
}

void control_store_down(struct keeper *k)
{
	if (is_stopping(k) && store_is_needed(k))
		refuse_stop_unreachable(k);
}

static void refuse_stop_late(struct session *s, const struct lease *lease)
{
	const char *what = "a program may have it";

	if (lease->state == LEASE_UNSURE)
		what = "it was not renewed in time, and the store has not confirmed it";
	else if (lease->state == LEASE_SHRINKING)
		what = "the store has not confirmed that it is a shared one";
	else if (lease_is_probed(lease))
		what = "its file system has not answered whether a program has it";
	session_refuse(s, "%s (%s) could not be given back within %d s: %s; see `dflock status`",
		       lease->lock->file->name, lease->lock->file->path, STOP_WAIT_MS / 1000, what);
}

static void on_stop_timer(uv_timer_t *timer);

/* Gives back what is open. Leases that were unsure or shrinking when this was asked for open meanwhile: so it is done
 * again until all have gone, or STOP_WAIT_MS are over. */
static void go_on_stopping(struct session *s)
{
	struct keeper *k = s->keeper;
	struct lease *lease, *next;

	keeper_enter(k);
	HASH_ITER (hh, k->leases, lease, next) {
		if (lease->state == LEASE_ASKING && s->state == SESSION_STOPPING)
			session_refuse(s, "a program waits for %s: see `dflock status`", lease->lock->file->name);
		if (lease->state == LEASE_HELD && s->state == SESSION_STOPPING && !split_is_under_way(lease)) {
			lease->recall = RECALL_LINGER;
			lease_raise(lease, LEASE_EV_LINGERED);
		} else if (lease->state == LEASE_WAITING && s->state == SESSION_STOPPING) {
			control_in_use(lease);
		}
	}
	keeper_leave(k);
	control_leases_ended(k);
	if (s->state == SESSION_STOPPING)
		uv_timer_start(&s->timer, on_stop_timer, STOP_LOOK_MS, 0);
}

static void on_stop_timer(uv_timer_t *timer)
{
	struct session *s = timer->data;
	const struct lease *used = find_in_use(s->keeper);

	if (s->state != SESSION_STOPPING)
		return;
	if (clock_now_ns() - s->received_ns < (used ? STOP_WAIT_MS : STOP_RELEASE_MS) * NS_PER_MS)
		go_on_stopping(s);
	else if (used)
		refuse_stop_late(s, used);
	else
		stopped(s->keeper);
}

static void stop(struct session *s)
{
	struct keeper *k = s->keeper;

	s->state = SESSION_STOPPING;
	if (!store_is_up(k->store))
		control_store_down(k);
	if (s->state == SESSION_STOPPING)
		go_on_stopping(s);
}

/* --- init --- */

/*
 * `dflock init` opens a store that is new before its grace is over. What must not happen: a host that the store has
 * forgotten still holds a lock, and another one is granted it.
 *
 * - This keeper knows an earlier incarnation: then the store has lost its memory, or is another one. Refused.
 * - Any other host that has leases sends a beat every third of ttl_ms. It learns by that that the store is not the one
 *   that it knew, and makes it begin anew (store.lua, begin) or puts its leases back. So this waits for that long from
 *   when this keeper saw the incarnation begin, and then the script decides, in one step with all that hosts put back.
 * - A host that is cut off for all that time is not known to anybody: its leases may stand for the rest of ttl_ms. That
 *   is what the operator's word is needed for.
 *
 * --force asks for none of this.
 */
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

static void init(struct session *s);

static void on_init_timer(uv_timer_t *timer)
{
	struct session *s = timer->data;

	if (s->state == SESSION_INIT)
		init(s);
}

static void init_answered(struct keeper *k, const struct store_reply *reply, bool forced)
{
	struct session *s, *next;
	char why[WIRE_REASON_BYTES];

	host_store_trouble(k, why, sizeof(why));
	DL_FOREACH_SAFE (k->sessions, s, next) {
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
		keeper_raise_all(k, LEASE_EV_UP);
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
	int64_t left = store_in_grace(k->store) && !*k->earlier_incarnation ? grace_beat_left_ms(k) : 0;

	if (left > 0)
		uv_timer_start(&s->timer, on_init_timer, (uint64_t)left, 0);
	else /* with an earlier incarnation, for the list of what was put back so far */
		store_open(k->store, STORE_OPEN_NEW, k->earlier_incarnation, on_init, k);
}

static void init(struct session *s)
{
	struct keeper *k = s->keeper;
	char why[WIRE_REASON_BYTES];

	s->state = SESSION_INIT;
	if (!k->store_tried)
		return;     /* the keeper has only just started; control_store_tried() goes on */
	if (is_forced(s)) { /* a store that is down for its record's ttl_ms is opened by this, too */
		log_info("the store is opened on request, whatever is known of an earlier memory of it");
		store_open(k->store, STORE_OPEN_FORCED, "", on_forced_init, k);
	} else if (!store_is_up(k->store)) {
		host_store_trouble(k, why, sizeof(why));
		session_refuse(s, "%s", why);
	} else {
		init_new(s);
	}
}

void control_store_tried(struct keeper *k)
{
	struct session *s, *next;

	DL_FOREACH_SAFE (k->sessions, s, next)
		if (s->state == SESSION_INIT)
			init(s);
}

void control_question(struct session *s)
{
	uid_t uid = s->peer.uid;

	if (s->request.op != WIRE_PING && s->request.op != WIRE_STATUS && uid != 0 && uid != geteuid()) {
		session_refuse(s, "only root or the keeper's user may do that");
		return;
	}
	switch (s->request.op) {
	case WIRE_STATUS:
		status_start(s);
		return;
	case WIRE_RELOAD:
		configwatch_reload(s);
		return;
	case WIRE_STOP:
		stop(s);
		return;
	case WIRE_INIT:
		init(s);
		return;
	default:
		session_reply(s, WIRE_OK, NULL, -1);
		return;
	}
}
