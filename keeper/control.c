/* See control.h. */
#include "keeper/control.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/act.h"
#include "keeper/configwatch.h"
#include "keeper/host.h"
#include "keeper/locks.h"
#include "keeper/log.h"
#include "keeper/main.h"
#include "keeper/serve.h"
#include "keeper/sessions.h"
#include "keeper/status.h"

static struct session *stopper(const struct keeper *k)
{
	struct session *s;

	DL_FOREACH (k->sessions, s)
		if (s->state == SESSION_STOPPING)
			return s;
	return NULL;
}

void control_in_use(const struct lease *lease)
{
	struct session *s = stopper(lease->lock->file->keeper);

	if (s)
		session_refuse(s, "%s (%s) is locked by a program: see `dflock status`", lease->lock->file->name,
			       lease->lock->file->path);
}

void control_leases_ended(struct keeper *k)
{
	struct session *s = k->leases ? NULL : stopper(k);

	if (!s)
		return;
	configfile_forget(k);
	session_reply(s, WIRE_OK, NULL, -1);
	keeper_end(k, "stopped on request");
}

static void refuse_stop_unreachable(struct session *s)
{
	char why[WIRE_REASON_BYTES];

	host_store_trouble(s->keeper, why, sizeof(why));
	session_refuse(s, "leases cannot be given back: %s", why);
}

void control_store_down(struct keeper *k)
{
	struct session *s = stopper(k);

	if (s && k->leases)
		refuse_stop_unreachable(s);
}

static void stop(struct session *s)
{
	struct keeper *k = s->keeper;
	struct lease *lease, *next;

	if (k->leases && !store_is_up(k->store)) {
		refuse_stop_unreachable(s);
		return;
	}

	s->state = SESSION_STOPPING;
	keeper_enter(k);
	HASH_ITER (hh, k->leases, lease, next) {
		if (lease->state == LEASE_ASKING && s->state == SESSION_STOPPING)
			session_refuse(s, "a program waits for %s: see `dflock status`", lease->lock->file->name);
		if (lease->state == LEASE_HELD && s->state == SESSION_STOPPING) {
			lease->recall = RECALL_LINGER;
			lease_raise(lease, LEASE_EV_LINGERED);
		} else if (lease->state == LEASE_WAITING && s->state == SESSION_STOPPING) {
			control_in_use(lease);
		}
	}
	keeper_leave(k);
	control_leases_ended(k);
}

static void on_init(void *arg, const struct store_reply *reply)
{
	struct keeper *k = arg;
	struct session *s, *next;

	DL_FOREACH_SAFE (k->sessions, s, next) {
		if (s->state != SESSION_INIT)
			continue;
		if (reply->status == STORE_OK)
			session_reply(s, WIRE_OK, NULL, -1);
		else
			session_refuse(s, "the store was not opened: %s",
				       reply->error ? reply->error : "it changed meanwhile");
	}
	if (reply->status == STORE_OK)
		keeper_raise_all(k, LEASE_EV_UP);
}

static void init(struct session *s)
{
	struct keeper *k = s->keeper;
	char why[WIRE_REASON_BYTES];

	s->state = SESSION_INIT;
	if (!k->store_tried)
		return; /* the keeper has only just started; control_store_tried() goes on */
	if (!store_is_up(k->store)) {
		host_store_trouble(k, why, sizeof(why));
		session_refuse(s, "%s", why);
		return;
	}
	log_info("the store is opened on request: whoever asked says that nobody holds anything");
	store_open(k->store, true, on_init, k);
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
