/* See control.h. */
#include "keeper/callers/control.h"

#include <utlist.h>

#include "keeper/callers/configfile.h"
#include "keeper/callers/ending.h"
#include "keeper/callers/session.h"
#include "keeper/clock.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/probing.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/waiters.h"

#define LOOK_MS 200

#define FOR_STOPPERS(k, s, next)                                                                                       \
	DL_FOREACH_SAFE ((k)->sessions->all, s, next)                                                                  \
		if ((s)->state == SESSION_STOPPING)

static bool is_stopping(const struct keeper *k)
{
	const struct session *s;

	DL_FOREACH (k->sessions->all, s)
		if (s->state == SESSION_STOPPING)
			return true;
	return false;
}

static void refuse_stop_unreachable(struct keeper *k, const struct member *m)
{
	struct session *s, *next;
	char why[WIRE_REASON_BYTES];

	deadline_trouble(m, why, sizeof(why));
	FOR_STOPPERS (k, s, next)
		session_refuse(s, "leases cannot be given back: %s", why);
}

void control_stop_in_use(const struct lease *lease)
{
	const struct file *file = lease->lock->file;
	struct session *s, *next;

	if (!store_is_up(file->member->store)) {
		refuse_stop_unreachable(file->keeper, file->member);
		return;
	}
	FOR_STOPPERS (file->keeper, s, next)
		session_refuse(s, "%s (%s) is locked by a program: see `dflock status`", file->name, file->path);
}

static void stop_keeper(struct keeper *k)
{
	struct session *s, *next;

	configfile_forget(k);
	FOR_STOPPERS (k, s, next)
		session_reply(s, WIRE_OK, NULL, -1);
	ending_quietly(k, "stopped on request");
}

/* Has a program asked a question that has no answer so far? It would have to ask the next keeper, and it gives up when several
 * keepers have ended like that. Where there is a lease for the question, that decides. */
static bool control_stop_is_asked(const struct keeper *k)
{
	const struct session *s;

	DL_FOREACH (k->sessions->all, s)
		if (s->state == SESSION_LOOKING || s->state == SESSION_INSPECTING || s->state == SESSION_WAITING ||
		    s->state == SESSION_FIT)
			return true;
	return false;
}

void control_stop_leases_ended(struct keeper *k)
{
	if (!k->leases && is_stopping(k) && !control_stop_is_asked(k))
		stop_keeper(k);
}

/* Has an earlier keeper told a caller that it may take the lock now, or is a call under way? This asks for the end of that. */
static bool is_unsure_and_pinned(const struct lease *lease)
{
	return lease_is_unsure(lease->state) &&
	       waiters_are_pinned(lease->lock, &lease->range); /* mutant: stop-pinned */
}

/*
 * May a program here rely on the lease, or be about to? Not if the lease is on its way back: if the release never
 * arrives, other hosts name this host dead and get the lease. Nor if it is unsure, its pins are over, and the kernel says
 * that no process holds the lock: it stays in the table, and the next keeper takes it up. Before its pins are over the
 * kernel is not asked, as by probes: a caller may take the lock after that, or be refused because of the question.
 */
static bool may_be_in_use(const struct lease *lease)
{
	const struct file *file = lease->lock->file;

	if (!lease_is_unsure(lease->state))
		return lease->state == LEASE_ASKING || lease_is_ours(lease->state);
	return is_unsure_and_pinned(lease) || !file->local || file->fd < 0 || lease_is_in_use(lease);
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

/* A store that is away, and that must answer before the keeper knows whether a lease may be given back; NULL: there is none. Pins end without one. */
static const struct member *stop_misses(const struct keeper *k)
{
	struct lease *lease, *next;

	HASH_ITER (hh, k->leases, lease, next)
		if (!store_is_up(lease_member(lease)->store) &&
		    (lease->state == LEASE_ASKING || lease_is_unsure(lease->state)) && !is_unsure_and_pinned(lease) &&
		    may_be_in_use(lease))
			return lease_member(lease);
	return NULL;
}

void control_stop_store_down(struct keeper *k)
{
	const struct member *away = is_stopping(k) ? stop_misses(k) : NULL;

	if (away)
		refuse_stop_unreachable(k, away);
}

static void refuse_stop_late(struct session *s, const struct lease *lease)
{
	const char *what = "a program may have it";

	if (lease_is_unsure(lease->state))
		what = "it was not renewed in time, and the store has not confirmed it";
	else if (lease->state == LEASE_SHRINKING)
		what = "the store has not confirmed that it is a shared one";
	else if (lease_is_probed(lease))
		what = "its file system has not answered whether a program has it";
	session_refuse(s, "%s (%s) could not be given back within %d s: %s; see `dflock status`",
		       lease->lock->file->name, lease->lock->file->path, CONTROL_STOP_WAIT_MS / 1000, what);
}

/* Does a program want or use a lease, as far as is known? Then this refuses the session. */
static bool is_refused_for_use(struct session *s)
{
	struct lease *lease, *next;

	HASH_ITER (hh, s->keeper->leases, lease, next) {
		if (s->state != SESSION_STOPPING)
			break;
		if (lease->state == LEASE_ASKING)
			session_refuse(s, "a program waits for %s: see `dflock status`", lease->lock->file->name);
		else if (lease->state == LEASE_WAITING)
			control_stop_in_use(lease);
	}
	return s->state != SESSION_STOPPING;
}

static void control_stop_look(struct session *s);

/* Gives back the open leases. Leases that were unsure or shrinking open meanwhile, and programs ask, so this is repeated until
 * all have gone, or the time is over. */
static void go_on_stopping(struct session *s)
{
	if (is_refused_for_use(s))
		return;
	ending_give_back(s->keeper);
	control_stop_leases_ended(s->keeper);
	if (s->state == SESSION_STOPPING)
		session_expect(s, LOOK_MS, control_stop_look);
}

enum control_stop_step control_stop_decide(int64_t waited_ms, bool in_use)
{
	if (waited_ms < (in_use ? CONTROL_STOP_WAIT_MS : CONTROL_STOP_RELEASE_MS))
		return CONTROL_STOP_GOES_ON;
	return in_use ? CONTROL_STOP_REFUSED : CONTROL_STOP_ENDS;
}

static void control_stop_look(struct session *s)
{
	struct keeper *k = s->keeper;
	const struct lease *used;

	control_stop_store_down(k);
	if (s->state != SESSION_STOPPING)
		return;
	used = find_in_use(k);
	switch (control_stop_decide((clock_now_ns() - s->received_ns) / NS_PER_MS, used)) {
	case CONTROL_STOP_GOES_ON:
		go_on_stopping(s);
		break;
	case CONTROL_STOP_REFUSED:
		refuse_stop_late(s, used);
		break;
	case CONTROL_STOP_ENDS:
		stop_keeper(k);
		break;
	}
}

void control_stop(struct session *s)
{
	session_enter(s, SESSION_STOPPING);
	/* Not at once: questions that have come with this one are looked at first. */
	session_expect(s, 1, control_stop_look);
}
