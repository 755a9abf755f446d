/* See control.h. */
#include "keeper/callers/control.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/callers/configfile.h"
#include "keeper/callers/configwatch.h"
#include "keeper/callers/lookup.h"
#include "keeper/callers/metrics.h"
#include "keeper/callers/session.h"
#include "keeper/callers/who.h"
#include "keeper/fronts/question.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/grace.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/queue.h"
#include "keeper/log.h"

static void fit_tell(struct session *s, const struct store_reply *reply)
{
	struct keeper *k = s->keeper;
	char why[WIRE_REASON_BYTES];

	if (reply->status == STORE_OK && store_in_grace(k->store)) {
		session_refuse(s, "the store %s is in grace and grants no new locks: wait, or see `dflock init`",
			       store_server(k->store));
	} else if (reply->status == STORE_OK) {
		session_reply(s, WIRE_OK, NULL, -1);
	} else if (reply->status == STORE_UNREACHABLE) {
		deadline_trouble(k, why, sizeof(why));
		session_reply(s, WIRE_WOULD_BLOCK, why, -1);
	} else {
		session_refuse(s, "the store %s takes no new locks: %s", store_server(k->store),
			       reply->error ? reply->error : "it does not say why");
	}
}

/* Answers all that wait: one answer of the store is as good as another. So one question to it is under way at a time, however
 * many jobs start, and however often a user asks and hangs up. */
static void on_fit_tried(void *arg, const struct store_reply *reply)
{
	struct keeper *k = arg;
	struct session *s, *next;

	k->sessions->fit_asked = false;
	DL_FOREACH_SAFE (k->sessions->all, s, next)
		if (s->state == SESSION_FIT)
			fit_tell(s, reply);
	queue_settle(k);
}

static void fit_ask_store(struct session *s)
{
	struct keeper *k = s->keeper;
	const struct configfile *file = k->configfile;

	/* A change that was seen once is mostly taken over in the next second. */
	if (file->state != CONFIGFILE_SAME && file->state != CONFIGFILE_CHANGED) {
		session_refuse(s, "%s is not in force: %s", k->config->path, file->why);
		return;
	}
	if (k->leaving) {
		session_refuse(s, "the keeper ends");
		return;
	}
	if (!store_is_up(k->store)) {
		fit_tell(s, &(struct store_reply){.status = STORE_UNREACHABLE});
		return;
	}
	session_enter(s, SESSION_FIT);
	if (k->sessions->fit_asked)
		return;
	k->sessions->fit_asked = true;
	store_try_write(k->store, on_fit_tried, k);
}

static void control_fit(struct session *s)
{
	if (configfile_is_ours(s->keeper, &s->request.config, s->request.config_path))
		fit_ask_store(s);
	else
		lookup_await_config(s, fit_ask_store);
}

/*
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

static void control_init(struct session *s);

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
			session_expect(s, INIT_AGAIN_MS, control_init); /* grace_begin() comes first */
		else if (forced || !reply->error)
			session_refuse(s, "the store was not opened: %s",
				       reply->error ? reply->error : "it changed meanwhile");
		else
			refuse_init(s, reply->error);
	}
	if (reply->status == STORE_OK)
		queue_raise_all(k, LEASE_CUE_UP);
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
		session_expect(s, left, control_init);
	else /* names an earlier incarnation: the answer then lists what was put back so far */
		store_open(k->store, STORE_OPEN_NEW, k->grace.earlier_incarnation, on_init, k);
}

static void control_init(struct session *s)
{
	struct keeper *k = s->keeper;
	char why[WIRE_REASON_BYTES];

	session_enter(s, SESSION_INIT);
	if (!k->host_in_store.tried)
		return;     /* the keeper has only just started; control_store_tried() goes on */
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

void control_store_tried(struct keeper *k)
{
	struct session *s, *next;

	DL_FOREACH_SAFE (k->sessions->all, s, next)
		if (s->state == SESSION_INIT)
			control_init(s);
}

/* --- reload --- */

static void on_reload_looked_at(struct configwatch_wait *wait, struct configfile_look *look)
{
	struct session *s = (struct session *)((char *)wait - offsetof(struct session, look));
	char why[WIRE_REASON_BYTES];

	if (!look)
		session_refuse(s, "%s: its file system has not answered the keeper for %d s", s->keeper->config->path,
			       CONFIGWATCH_SLOW_MS / 1000);
	else if (look->read == 0 && !look->fresh) /* another session's reload took it over */
		session_reply(s, WIRE_OK, NULL, -1);
	else if (configfile_reload(s->keeper, look, s->request.flags & WIRE_F_FORCE, why, sizeof(why)) == 0)
		session_reply(s, WIRE_OK, NULL, -1);
	else
		session_refuse(s, "%s", why);
}

static void control_reload(struct session *s)
{
	session_enter(s, SESSION_RELOADING);
	configwatch_wait(s->keeper, &s->look, true, on_reload_looked_at);
}

/* --- the level of the log --- */

static void control_log_level(struct session *s, const char *text)
{
	bool show = strcmp(text, "show") == 0, back = strcmp(text, "default") == 0;
	int level = config_log_level(text);
	char said[WIRE_REASON_BYTES];
	enum log_by by;

	if (!show && !back && level < 0) {
		session_refuse(s, "\"%.40s\" is no level of the log; expected " CONFIG_LOG_LEVELS " or \"default\"",
			       text);
		return;
	}
	if (!show)
		log_set_level(LOG_BY_COMMAND, level);
	level = log_level(&by);
	snprintf(said, sizeof(said), "%s (%s)", config_log_level_name(level), log_by_name(by));
	if (!show)
		log_event(LINE_LOG_LEVEL, "the log has another level, as pid %d (uid %u) wants: %s", (int)s->peer.pid,
			  (unsigned)s->peer.uid, said);
	session_reply(s, WIRE_OK, said, -1);
}

/* --- questions --- */

void control_question(struct session *s, const char *text)
{
	const struct question_row *row = question_row(s->request.op);
	uid_t uid = s->peer.uid;

	/* Every user may see the level. */
	if (!row->everyone && !(s->request.op == WIRE_LOG_LEVEL && strcmp(text, "show") == 0) && uid != 0 &&
	    uid != geteuid()) {
		session_refuse(s, "only root or the keeper's user may do that");
		return;
	}
	if (row->gives_file && session_has_unread(s)) {
		session_refuse(s, "the answer to the question before was not read so far");
		return;
	}
	switch (s->request.op) {
	case WIRE_STATUS:
		status_start(s);
		return;
	case WIRE_METRICS:
		metrics_answer(s);
		return;
	case WIRE_WHO:
		who_start(s, text);
		return;
	case WIRE_RELOAD:
		control_reload(s);
		return;
	case WIRE_STOP:
		control_stop(s);
		return;
	case WIRE_INIT:
		control_init(s);
		return;
	case WIRE_BREAK:
	case WIRE_END_REST:
	case WIRE_GIVE_UP:
		control_break(s, text);
		return;
	case WIRE_LOG_LEVEL:
		control_log_level(s, text);
		return;
	case WIRE_FIT:
		control_fit(s);
		return;
	default:
		session_reply(s, WIRE_OK, NULL, -1);
		return;
	}
}
