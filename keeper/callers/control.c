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

static void fit_tell(struct session *s, const struct member *m, const struct store_reply *reply)
{
	char why[WIRE_REASON_BYTES];

	if (reply->status == STORE_OK && store_in_grace(m->store)) {
		session_refuse(s, "the store %s is in grace and grants no new locks: wait, or see `dflock init`",
			       store_server(m->store));
	} else if (reply->status == STORE_OK) {
		session_reply(s, WIRE_OK, NULL, -1);
	} else if (reply->status == STORE_UNREACHABLE) {
		deadline_trouble(m, why, sizeof(why));
		session_reply(s, WIRE_WOULD_BLOCK, why, -1);
	} else {
		session_refuse(s, "the store %s takes no new locks: %s", store_server(m->store),
			       reply->error ? reply->error : "it does not say why");
	}
}

/*
 * Answers all that wait: one answer of the store is as good as another. So one question to it is under way at a time, however
 * many jobs start, and however often a user asks and hangs up. Of several stores one that takes locks is enough: which of them
 * a job needs is not known, and jobs of one team need not wait for the store of another. So a store that is late is not asked again, and
 * the others are.
 */
static void on_fit_tried(void *arg, const struct store_reply *reply)
{
	struct member *m = arg;
	struct keeper *k = m->keeper;
	struct session *s, *next;
	bool last = true, fit = reply->status == STORE_OK && !store_in_grace(m->store);

	m->fit_asked = m->fit_awaited = false;
	for (struct member *other = k->members; other < k->members + k->member_count; other++) {
		other->fit_awaited = other->fit_awaited && !fit;
		last = last && !other->fit_awaited;
	}
	DL_FOREACH_SAFE (k->sessions->all, s, next)
		if (s->state == SESSION_FIT && (fit || last))
			fit_tell(s, m, reply);
	queue_settle(k);
}

static void fit_ask_store(struct session *s)
{
	struct keeper *k = s->keeper;
	const struct configfile *file = k->configfile;
	bool up = false, awaited = false;

	/* A change that was seen once is mostly taken over in the next second. */
	if (file->state != CONFIGFILE_SAME && file->state != CONFIGFILE_CHANGED) {
		session_refuse(s, "%s is not in force: %s", k->config->path, file->why);
		return;
	}
	if (k->leaving) {
		session_refuse(s, "the keeper ends");
		return;
	}
	for (unsigned i = 0; i < k->member_count; i++) {
		up = up || store_is_up(k->members[i].store);
		awaited = awaited || k->members[i].fit_awaited;
	}
	if (!up) {
		fit_tell(s, &k->members[0], &(struct store_reply){.status = STORE_UNREACHABLE});
		return;
	}
	session_enter(s, SESSION_FIT);
	if (awaited)
		return;
	for (struct member *m = k->members; m < k->members + k->member_count; m++)
		m->fit_awaited = m->wanted;
	for (struct member *m = k->members; m < k->members + k->member_count; m++)
		if (m->fit_awaited && !m->fit_asked) {
			m->fit_asked = true;
			store_try_write(m->store, on_fit_tried, m);
		}
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
 * --force skips all of this. It goes through the shards of a store three times: each is asked whether it would refuse, then each gets this ttl_ms
 * and number of shards, then each is opened, if it has not lost its memory since. host.h says why.
 */
#define INIT_AGAIN_MS 50

static bool is_forced(const struct session *s)
{
	return s->request.flags & WIRE_F_FORCE;
}

static void refuse_init(struct session *s, const struct member *m, const char *known)
{
	session_refuse(
		s,
		"the store was not opened: %s. Hosts may hold locks of that memory; it opens by itself in %lld s. "
		"`dflock init --force` opens it now: a host that holds such a lock and the next one that gets it "
		"then run at the same time",
		known, (long long)grace_left_ms(m) / 1000 + 1);
}

static void control_init(struct session *s);

/* The next step: with which shard (NULL: all is done), and what is done to it. One store after the other. */
static struct member *init_step(const struct session *s, enum store_open *how)
{
	static const enum store_open rounds[] = {STORE_OPEN_MAY, STORE_OPEN_TAKE,
						 STORE_OPEN_TAKEN}; /* mutant: init-rounds */
	struct keeper *k = s->keeper;
	unsigned at = s->store, steps;

	for (struct member *m = k->members; m < k->members + k->member_count; m += m->config->shards, at -= steps) {
		bool thrice = is_forced(s) && m->config->shards > 1;

		steps = m->config->shards * (thrice ? 3 : 1);
		*how = !is_forced(s) ? STORE_OPEN_NEW : thrice ? rounds[at / m->config->shards % 3] : STORE_OPEN_FORCED;
		if (at < steps)
			return m + at % m->config->shards;
	}
	return NULL;
}

static void init_next(struct session *s)
{
	enum store_open how;

	s->store++;
	if (init_step(s, &how))
		control_init(s);
	else
		session_reply(s, WIRE_OK, NULL, -1);
}

static void init_answered(struct member *m, const struct store_reply *reply, enum store_open how)
{
	struct keeper *k = m->keeper;
	struct session *s, *next;
	char why[WIRE_REASON_BYTES];
	enum store_open its;

	deadline_trouble(m, why, sizeof(why));
	DL_FOREACH_SAFE (k->sessions->all, s, next) {
		if (s->state != SESSION_INIT || init_step(s, &its) != m || its != how)
			continue;
		if (reply->status == STORE_OK)
			init_next(s);
		else if (reply->status == STORE_UNREACHABLE && m->renewing)
			session_expect(s, INIT_AGAIN_MS, control_init);
		else if (reply->status == STORE_UNREACHABLE)
			session_refuse(s, "%s", why);
		else if (reply->status == STORE_INCARNATION && how == STORE_OPEN_NEW)
			session_expect(s, INIT_AGAIN_MS, control_init); /* grace_begin() comes first */
		else if (how != STORE_OPEN_NEW || !reply->error)
			session_refuse(s, "the store was not opened: %s",
				       reply->error ? reply->error : "it changed meanwhile");
		else
			refuse_init(s, m, reply->error);
	}
	if (reply->status == STORE_OK && how != STORE_OPEN_MAY && how != STORE_OPEN_TAKE)
		queue_raise_all(m, LEASE_CUE_UP);
	queue_settle(k);
}

static void on_init(void *arg, const struct store_reply *reply)
{
	init_answered(arg, reply, STORE_OPEN_NEW);
}

static void on_forced_init(void *arg, const struct store_reply *reply)
{
	init_answered(arg, reply, STORE_OPEN_FORCED);
}

static void on_taken_init(void *arg, const struct store_reply *reply)
{
	init_answered(arg, reply, STORE_OPEN_TAKEN);
}

static void on_taking_init(void *arg, const struct store_reply *reply)
{
	init_answered(arg, reply, STORE_OPEN_TAKE);
}

static void on_asking_init(void *arg, const struct store_reply *reply)
{
	init_answered(arg, reply, STORE_OPEN_MAY);
}

static void init_new(struct session *s, struct member *m)
{
	char why[WIRE_REASON_BYTES];
	int64_t left = store_in_grace(m->store) && !*m->grace.earlier_incarnation ? grace_beat_left_ms(m) : 0;

	if (left == 0 && !grace_may_end(m, grace_beat_left_ms)) {
		for (struct member *shard = m->first; shard < m->first + m->config->shards; shard++)
			if (shard->tried && !store_is_up(shard->store)) {
				deadline_trouble(shard, why, sizeof(why));
				session_refuse(s, "%s", why);
				return;
			}
		left = INIT_AGAIN_MS;
	}
	if (left > 0)
		session_expect(s, left, control_init);
	else /* names an earlier incarnation: the answer then lists what was put back so far */
		store_open(m->store, STORE_OPEN_NEW, m->grace.earlier_incarnation, on_init, m);
}

static store_reply_cb *const init_answers[] = {[STORE_OPEN_FORCED] = on_forced_init,
					       [STORE_OPEN_MAY] = on_asking_init,
					       [STORE_OPEN_TAKE] = on_taking_init,
					       [STORE_OPEN_TAKEN] = on_taken_init};

static void control_init(struct session *s)
{
	char why[WIRE_REASON_BYTES];
	enum store_open how;
	struct member *m = init_step(s, &how);

	session_enter(s, SESSION_INIT);
	member_want(m);
	if (is_forced(s))
		store_reach(m->store);
	if (is_forced(s) ? !m->reached : !m->tried)
		return;     /* it is connected just now; control_store_tried() goes on */
	if (is_forced(s)) { /* this also opens a store that is down because its record has another ttl_ms */
		if (how == STORE_OPEN_FORCED || how == STORE_OPEN_TAKEN)
			log_event(LINE_STORE_OPENED,
				  "the store %s is opened on request, whatever is known of an earlier memory of it",
				  store_server(m->store));
		store_open(m->store, how, "", init_answers[how], m);
	} else if (!store_is_up(m->store)) {
		deadline_trouble(m, why, sizeof(why));
		session_refuse(s, "%s", why);
	} else {
		init_new(s, m);
	}
}

static void init_begin(struct session *s)
{
	const struct session *other;

	DL_FOREACH (s->keeper->sessions->all, other)
		if (other->state == SESSION_INIT && is_forced(other) && is_forced(s)) {
			session_refuse(s, "another `dflock init --force` is under way here: wait for its end");
			return;
		}
	s->store = 0;
	control_init(s);
}

void control_store_tried(struct member *m)
{
	enum store_open how;
	struct session *s, *next;

	DL_FOREACH_SAFE (m->keeper->sessions->all, s, next)
		if (s->state == SESSION_INIT && init_step(s, &how) == m)
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
		init_begin(s);
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
