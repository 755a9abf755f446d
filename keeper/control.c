/* See control.h. */
#include "keeper/control.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/act.h"
#include "keeper/grace.h"
#include "keeper/host.h"
#include "keeper/leasepage.h"
#include "keeper/locks.h"
#include "keeper/log.h"
#include "keeper/main.h"
#include "keeper/pagefile.h"
#include "keeper/serve.h"
#include "keeper/sessions.h"
#include "keeper/status.h"

#define INIT_AGAIN_MS 50

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_address(const struct config_address *a, const struct config_address *b)
{
	return same_text(a->host, b->host) && a->port == b->port;
}

static bool same_sentinels(const struct config_store *a, const struct config_store *b)
{
	if (a->sentinel_count != b->sentinel_count)
		return false;
	for (size_t i = 0; i < a->sentinel_count; i++)
		if (!same_address(&a->sentinels[i], &b->sentinels[i]))
			return false;
	return same_text(a->master, b->master) && same_text(a->sentinel_user, b->sentinel_user) &&
	       same_text(a->sentinel_password, b->sentinel_password);
}

static bool same_server(const struct config_store *a, const struct config_store *b)
{
	return same_text(a->socket, b->socket) && same_address(&a->address, &b->address) && same_sentinels(a, b) &&
	       a->replicas == b->replicas && same_text(a->user, b->user) && same_text(a->password, b->password) &&
	       a->database == b->database && a->connect_ms == b->connect_ms;
}

/* What cannot be changed under leases that are held: where they are recorded, and for how long. */
static bool same_store(const struct config *a, const struct config *b)
{
	return same_server(&a->store, &b->store) && a->lease.ttl_ms == b->lease.ttl_ms &&
	       a->lease.sweep_ms == b->lease.sweep_ms && same_text(a->host, b->host);
}

static void reload(struct session *s)
{
	struct keeper *k = s->keeper;
	struct config *fresh = NULL;
	char why[WIRE_REASON_BYTES];

	if (config_load(k->config->path, &fresh, why, sizeof(why)) < 0) {
		session_refuse(s, "%s; the keeper goes on with what it had read", why);
		return;
	}
	if (!same_store(k->config, fresh)) {
		config_free(fresh);
		session_refuse(
			s,
			"%s: host, store, ttl_ms or sweep_ms have changed: end the keeper with `dflock stop`, the next "
			"one reads them",
			k->config->path);
		return;
	}
	/* Before the new rules are shown: a file may have another name by them, and a program that sees them must not find
	 * the lease of the old one open. What is still granted is shown again. */
	leasepage_close_all(k);
	if (pagefile_publish(k->page, fresh) < 0) {
		pagefile_publish(k->page, k->config);
		config_free(fresh);
		session_refuse(s, "%s: too many rules for the shared page", k->config->path);
		return;
	}
	keeper_replace_config(k, fresh);
	log_info("%s was read again: %zu rules", k->config->path, k->config->rule_count);
	session_reply(s, WIRE_OK, NULL, -1);
}

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
	session_refuse(s,
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
		return; /* the keeper has only just started; control_store_tried() goes on */
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
		reload(s);
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
