/*
 * See control.h. What is done to a lease of this host: leases/breaking.h. Another host is asked through the store,
 * and goes by its own configuration (allow_break); a keeper of an earlier version does not answer.
 *
 * A host may be given up if it was silent for a whole ttl, as this keeper itself has watched by its own clock (rules/
 * watch.h): then its deadline has passed, its holders are stopped, and its leases may be given to others, as after any
 * ttl. That the server's clock says so as well is asked only so that a host that lives is refused at once. With --force
 * none of this is asked: a host that lives hears of it with its next beat (store/rules/give_up.lua), and until then two
 * hosts may have one lock.
 */
#include "keeper/callers/control.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/callers/session.h"
#include "keeper/clock.h"
#include "keeper/leases/breaking.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/queue.h"
#include "keeper/log.h"

#define CONTROL_BREAK_AGAIN_MS 1000  /* a message may be lost */
#define CONTROL_BREAK_REACH_MS 20    /* until a shard is connected */
#define CONTROL_BREAK_WAIT_MS  20000 /* for another host, which has BREAKING_WAIT_MS itself */

struct control_break {
	struct keeper *keeper;
	struct member *member;   /* of the store that has the leases of the name; WIRE_GIVE_UP: one after the other */
	struct member *away;     /* WIRE_GIVE_UP: the first that could not be asked; NULL: none */
	bool known;              /* WIRE_GIVE_UP: one of the stores knew the host */
	struct session *session; /* NULL: it has its answer, or is gone */
	enum wire_op op;
	unsigned pending; /* answers of the store that will still come */
	char text[WIRE_TEXT_BYTES];
	uint64_t number; /* of the question to this host or another one; 0: none */
	char host[STORE_HOST_BYTES] /* "": this one */, token[STORE_TOKEN_BYTES];
	struct store_blocker silent; /* WIRE_GIVE_UP: as it was seen first */
	bool watched;
	int64_t until_ns;
};

/* --- answers --- */

static void control_break_free(struct control_break *b)
{
	if (!b->session && !b->pending)
		free(b);
}

/* The last act of each answer of the store. */
static void control_break_answered(struct control_break *b)
{
	struct keeper *k = b->keeper;

	b->pending--;
	control_break_free(b);
	queue_settle(k);
}

/* The session has its answer, or ends. What was begun goes on. */
static void control_break_leave(struct session *s)
{
	struct control_break *b = s->breaking;

	s->breaking = NULL;
	b->session = NULL;
	control_break_free(b);
}

static void __attribute__((format(printf, 3, 4)))
control_break_say(struct control_break *b, enum wire_verdict verdict, const char *format, ...)
{
	char why[WIRE_REASON_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	if (b->session && verdict == WIRE_REFUSED)
		session_refuse(b->session, "%s", why);
	else if (b->session)
		session_reply(b->session, verdict, why, -1);
}

static void control_break_next_host(struct control_break *b);

static void control_break_done(struct control_break *b)
{
	if (b->session)
		session_reply(b->session, WIRE_OK, NULL, -1);
}

/* An answer of the store that was no success. */
static void control_break_trouble(struct control_break *b, enum store_status status, const char *error)
{
	char why[WIRE_REASON_BYTES];

	if (status == STORE_UNREACHABLE || !error)
		deadline_trouble(b->member, why, sizeof(why));
	else
		snprintf(why, sizeof(why), "the store refused: %s", error);
	control_break_say(b, WIRE_REFUSED, "%s", why);
}

/* What the operator is told of these ends, behind "this host" or "host NAME". */
static const struct {
	enum wire_verdict verdict;
	const char *why;
} control_break_ends[STORE_BROKENS] = {
	[STORE_BROKEN_GONE] = {WIRE_WOULD_BLOCK, "has no such lease any more"},
	[STORE_BROKEN_YOUNGER] = {WIRE_WOULD_BLOCK, "has got a younger lease of the lock meanwhile"},
	[STORE_BROKEN_UNSURE] = {WIRE_REFUSED,
				 "cannot be sure of the lease now, since it does not reach the store or has "
				 "only just reached it: try again"},
	[STORE_BROKEN_LATE] = {WIRE_REFUSED,
			       "is not done in time, and may still do it; see `dflock status` and its keeper's log"},
	[STORE_BROKEN_FORBIDDEN] = {WIRE_REFUSED,
				    "does not allow other hosts to do that: run `dflock break' there, or set "
				    "allow_break in its configuration"},
	[STORE_BROKEN_FAILED] = {WIRE_REFUSED, "could not do it; its keeper's log may say why"},
};

/* host: "this host", or "host NAME". pid: STORE_BROKEN_NOT_YOURS, STORE_BROKEN_UNSTOPPABLE; 0: not known. */
static void control_break_tell(struct control_break *b, const char *host, enum store_broken how, int pid)
{
	char process[64] = "a process that its keeper cannot find or look into";

	if (pid)
		snprintf(process, sizeof(process), "process %d", pid);
	if (how == STORE_BROKEN_DONE)
		control_break_done(b);
	else if (how == STORE_BROKEN_NOT_YOURS)
		control_break_say(b, WIRE_REFUSED,
				  "%s would have to end on %s, and is not yours: only root or the keeper's user may do "
				  "that",
				  pid ? process : "what other users have", host);
	else if (how == STORE_BROKEN_UNSTOPPABLE)
		control_break_say(b, WIRE_REFUSED,
				  "%s holds the lock on %s, or was started by a holder, and cannot be ended by the "
				  "keeper: end it yourself",
				  process, host);
	else
		control_break_say(b, control_break_ends[how].verdict, "%s %s", host, control_break_ends[how].why);
}

void control_break_told(struct keeper *k, const struct store_message *m)
{
	char host[STORE_HOST_BYTES + 12];
	struct session *s, *next;

	snprintf(host, sizeof(host), "%s%s", *m->holder ? "host " : "this host", m->holder);
	DL_FOREACH_SAFE (k->sessions->all, s, next)
		if (s->breaking && s->breaking->number == m->question && !strcmp(s->breaking->host, m->holder))
			control_break_tell(s->breaking, host, m->broken, m->pid);
}

/* What was asked of the store at last is done, or not. */
static void control_break_on_done(void *arg, const struct store_reply *reply)
{
	struct control_break *b = arg;

	if (reply->status == STORE_OK && b->op == WIRE_GIVE_UP)
		log_about(LINE_HOST_GIVEN_UP, &(struct log_about){.subject = b->text},
			  "host %s was given up on request: what it had in the store is released", b->text);
	if (reply->status == STORE_OK && b->op == WIRE_GIVE_UP)
		b->known = true, control_break_next_host(b);
	else if (reply->status == STORE_OK)
		control_break_done(b);
	else if (reply->status == STORE_GONE && b->op == WIRE_END_REST)
		control_break_say(b, WIRE_WOULD_BLOCK, "that rest is over");
	else if (reply->status == STORE_GONE && b->op == WIRE_GIVE_UP)
		control_break_say(b, WIRE_REFUSED,
				  "host %s lives: it has just been heard of; not all of its leases were "
				  "released",
				  b->text);
	else
		control_break_trouble(b, reply->status, reply->error);
	control_break_answered(b);
}

/* --- a lease --- */

static void control_break_ask_host(struct session *s)
{
	struct control_break *b = s->breaking;

	if (clock_now_ns() >= b->until_ns) {
		control_break_say(
			b, WIRE_REFUSED,
			"host %s has not answered for %d s: its keeper has ended, does not reach the store, or "
			"is of a version that cannot be asked; run `dflock break' there, or `dflock break --host "
			"%s' if it is off",
			b->host, CONTROL_BREAK_WAIT_MS / 1000, b->host);
	} else {
		struct store_message m = {.kind = STORE_MSG_BREAK,
					  .fence = (uint64_t)s->request.from,
					  .limit = (uint64_t)s->request.to,
					  .question = b->number};

		if (strlen(b->text) < sizeof(m.name)) /* else it is no lock's name, and nothing is sent */
			strcpy(m.name, b->text);
		snprintf(m.token, sizeof(m.token), "%s", b->token);
		store_tell(b->member->store, b->host, &m);
		session_expect(s, CONTROL_BREAK_AGAIN_MS, control_break_ask_host);
	}
}

static void control_break_entry(struct control_break *b, const struct store_entry *e)
{
	struct keeper *k = b->keeper;

	memcpy(b->token, e->token, sizeof(b->token));
	if (strcmp(e->host, k->host) != 0) {
		memcpy(b->host, e->host, sizeof(b->host));
		b->number = ++k->breakings.last;
		b->until_ns = clock_now_ns() + CONTROL_BREAK_WAIT_MS * NS_PER_MS;
		session_expect(b->session, 0, control_break_ask_host);
	} else if (k->lost.losing || lease_find(k, e->token)) {
		control_break_tell(b, "this host", STORE_BROKEN_UNSURE, 0); /* its holders still have to end */
	} else { /* a keeper before this one had it, and no process relies on it (lost_give_back()) */
		b->pending++;
		store_release(b->member->store, b->text, b->token, true, control_break_on_done, b);
	}
}

static void control_break_on_entries(void *arg, enum store_status status, const struct store_entry *entries,
				     size_t count, const struct store_aside *aside)
{
	struct control_break *b = arg;
	size_t i = 0;

	(void)aside;
	if (b->session && status != STORE_OK) {
		control_break_trouble(b, status, NULL);
	} else if (b->session) {
		while (i < count && (entries[i].waiter || entries[i].fence != (uint64_t)b->session->request.from))
			i++;
		if (i < count)
			control_break_entry(b, &entries[i]);
		else
			control_break_say(b, WIRE_WOULD_BLOCK, "the store has no such lease any more");
	}
	control_break_answered(b);
}

static void control_break_lease(struct control_break *b, bool trusted)
{
	struct session *s = b->session;
	uint64_t fence = (uint64_t)s->request.from;

	if (breaking_knows(b->member, b->text, fence)) {
		b->number = ++b->keeper->breakings.last;
		if (!breaking_start(b->member, b->text, fence, (uint64_t)s->request.to,
				    &(struct breaking_asker){.uid = s->peer.uid, .question = b->number}))
			control_break_say(b, WIRE_REFUSED, "the keeper is busy with others: try again");
	} else if (!trusted) {
		control_break_say(b, WIRE_REFUSED,
				  "this host has no such lease, and only root or the keeper's user may take away what "
				  "other hosts have");
	} else {
		b->pending++;
		store_entries(b->member->store, b->text, NULL, control_break_on_entries, b);
	}
}

/* --- a rest --- */

static void control_break_rest(struct control_break *b)
{
	const struct wire_request *r = &b->session->request;

	b->pending++;
	store_end_rest(b->member->store, b->text, r->space, (uint64_t)r->to, control_break_on_done, b);
}

/* --- a host --- */

static void control_break_give_up(struct control_break *b, const struct store_blocker *host)
{
	b->pending++;
	store_give_up(b->member->store, host, control_break_on_done, b);
}

/* Since when this keeper has seen this very beat. */
static int64_t control_break_silent_since(const struct member *m, const struct store_blocker *host)
{
	const struct keeper *k = m->keeper;
	int64_t dead = watch_dead_at(m->watch, host->host, host->beat);
	int64_t swept = watch_dead_at(m->sweeping, host->host, host->beat);
	int64_t since = dead - deadline_ttl_ns(k);

	if (swept != INT64_MAX && swept - k->config->lease.sweep_ms * NS_PER_MS < since)
		since = swept - k->config->lease.sweep_ms * NS_PER_MS;
	return since;
}

static void control_break_host(struct session *s);

static void control_break_judge_host(struct control_break *b, const struct store_blocker *host)
{
	struct keeper *k = b->keeper;
	int64_t now = clock_now_ns(), ttl_ms = k->config->lease.ttl_ms, left;

	if (b->session->request.flags & WIRE_F_FORCE)
		return control_break_give_up(b, host);
	if (b->watched && host->beat != b->silent.beat)
		return control_break_say(b, WIRE_REFUSED, "host %s lives: it was heard of while it was watched",
					 b->text);
	if (!b->watched && host->age_ms < ttl_ms)
		return control_break_say(
			b, WIRE_REFUSED,
			"host %s was heard of %lld ms ago: it may be given up when it has been silent for "
			"%lld ms (ttl_ms); --force does it now, and its programs may run beside the next "
			"holders for up to a third of that",
			b->text, (long long)host->age_ms, (long long)ttl_ms);
	watch_see(b->member->watch, host, now);
	left = control_break_silent_since(b->member, host) + deadline_ttl_ns(k) - now;
	if (left <= 0) /* mutant: give-up-watched */
		return control_break_give_up(b, host);
	b->silent = *host;
	b->watched = true;
	session_expect(b->session, left / NS_PER_MS + 1, control_break_host);
}

static void control_break_on_hosts(void *arg, enum store_status status, const struct store_blocker *hosts, size_t count)
{
	struct control_break *b = arg;
	size_t i = 0;

	if (b->session && status != STORE_OK) {
		b->away = b->away ? b->away : b->member;
		control_break_next_host(b);
	} else if (b->session) {
		while (i < count && strcmp(hosts[i].host, b->text) != 0)
			i++;
		if (i < count)
			control_break_judge_host(b, &hosts[i]);
		else
			control_break_next_host(b);
	}
	control_break_answered(b);
}

static void control_break_host(struct session *s)
{
	struct control_break *b = s->breaking;

	if (!strcmp(b->text, b->keeper->host)) {
		control_break_say(b, WIRE_REFUSED, "that is this host, which lives");
		return;
	}
	b->pending++;
	store_hosts(b->member->store, control_break_on_hosts, b);
}

/* In the present store it has nothing any more, or that store is away, and does not keep what the host has in others. */
static void control_break_next_host(struct control_break *b)
{
	b->watched = false;
	if (!b->session)
		return;
	if (++b->member < b->keeper->members + b->keeper->member_count)
		control_break_host(b->session);
	else if ((b->member = b->away))
		control_break_trouble(b, STORE_UNREACHABLE, NULL);
	else if (b->known)
		control_break_done(b);
	else
		control_break_say(b, WIRE_WOULD_BLOCK, "the store knows no host %s", b->text);
}

/* From now on this host watches all that a store knows, so that a host that has to be silent for a ttl is watched in all shards at a time. */
static void control_break_on_watched(void *arg, enum store_status status, const struct store_blocker *hosts,
				     size_t count)
{
	struct member *m = arg;

	for (size_t i = 0; status == STORE_OK && i < count; i++)
		watch_see(m->watch, &hosts[i], clock_now_ns());
}

/* When what it is about is connected: shards are when they are needed. */
static void control_break_begin(struct session *s)
{
	struct control_break *b = s->breaking;
	struct keeper *k = s->keeper;
	char why[WIRE_REASON_BYTES];

	if (k->leaving) {
		control_break_say(b, WIRE_REFUSED, "the keeper ends");
	} else if (b->op == WIRE_GIVE_UP ? !host_reaches_all(k) : !b->member->tried) {
		session_expect(s, CONTROL_BREAK_REACH_MS, control_break_begin);
	} else if (b->op != WIRE_GIVE_UP && !store_is_up(b->member->store)) {
		deadline_trouble(b->member, why, sizeof(why));
		control_break_say(b, WIRE_REFUSED, "%s", why);
	} else if (b->op == WIRE_BREAK) {
		control_break_lease(b, s->peer.uid == 0 || s->peer.uid == geteuid());
	} else if (b->op == WIRE_END_REST) {
		control_break_rest(b);
	} else {
		for (struct member *m = k->members + 1; m < k->members + k->member_count; m++)
			store_hosts(m->store, control_break_on_watched, m);
		control_break_host(s);
	}
}

/* --- from outside --- */

void control_break(struct session *s, const char *text)
{
	struct keeper *k = s->keeper;
	struct control_break *b = calloc(1, sizeof(*b));

	if (!b) {
		session_refuse(s, "the keeper has no memory left");
		return;
	}
	b->keeper = k;
	b->session = s;
	b->op = s->request.op;
	snprintf(b->text, sizeof(b->text), "%s", text);
	b->member = b->op == WIRE_GIVE_UP ? &k->members[0] : member_of_name(k, text);
	s->breaking = b;
	session_enter(s, SESSION_BREAKING);
	s->leave = control_break_leave;
	control_break_begin(s);
}
