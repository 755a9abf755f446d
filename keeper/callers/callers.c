/* See callers.h. */
#include "keeper/callers/callers.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "keeper/callers/session.h"
#include "keeper/clock.h"
#include "keeper/leases/answers.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/event.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/keys.h"
#include "keeper/leases/locks.h"

bool caller_is_nonblocking(const struct session *s)
{
	return s->request.flags & WIRE_F_NONBLOCK;
}

void caller_would_block(struct session *s)
{
	session_would_block(s, s->waiter.lease ? answers_first(s->waiter.lease) : NULL); /* mutant: would-block */
}

static void __attribute__((format(printf, 4, 0)))
caller_refuse_by(struct session *s, enum refusal refusal, bool may_mend, const char *format, va_list args)
{
	char why[WIRE_REASON_BYTES];

	vsnprintf(why, sizeof(why), format, args);
	session_refuse_call(s, refusal, may_mend, "%s: %s", s->waiter.lock->file->path, why);
}

void caller_refuse(struct session *s, enum refusal refusal, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	caller_refuse_by(s, refusal, false, format, args);
	va_end(args);
}

void caller_refuse_for_now(struct session *s, enum refusal refusal, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	caller_refuse_by(s, refusal, true, format, args);
	va_end(args);
}

bool caller_is_patient(const struct session *s)
{
	return !caller_is_nonblocking(s) &&
	       config_rule_for(s->keeper->config, s->waiter.lock->file->path).on_refused == WIRE_ON_REFUSED_WAIT;
}

void caller_tell_waiting(struct session *s)
{
	if (!s->told_waiting)
		session_reply(s, WIRE_WAITING, NULL, -1);
	s->told_waiting = true;
}

/* --- files whose rule has at_least_ms, or redis_key --- */

static int64_t at_least_ms(const struct session *s)
{
	return s->waiter.lock->file->at_least_ms;
}

static bool wants_whole_file(const struct session *s)
{
	return s->request.from == 0 && s->request.to == WIRE_EOF;
}

/* Has the caller the lock, or a part of it, from an earlier call? */
static bool caller_once_holds_already(const struct session *s)
{
	return !(s->request.flags & WIRE_F_HAVE) &&
	       (s->holds.exclusive || s->holds.shared || own_count(&s->before) > 0);
}

bool caller_once_forbids(const struct session *s)
{
	if (!at_least_ms(s) || s->request.op != WIRE_LOCK)
		return false;
	/* A lock that is there may become a shared one: that is no new lock. */
	return !wants_whole_file(s) || (s->request.mode != WIRE_EXCLUSIVE && !caller_once_holds_already(s));
}

int64_t caller_once_rest_ms(const struct session *s)
{
	/* A test takes no lock. A shared lock that is there already (at_least_ms is new) stays as it is. */
	return s->request.op == WIRE_LOCK && s->request.mode == WIRE_EXCLUSIVE ? at_least_ms(s) : 0;
}

bool caller_once_may_use(const struct session *s, const struct lease *lease, bool needed)
{
	if (!at_least_ms(s) || caller_once_holds_already(s))
		return true;
	if (s->request.op != WIRE_LOCK)
		return !lease->rest_ms;
	if (!lease->rest_ms) /* of before the rule: no rest began with it */
		return false;
	if (lease->spent)
		return lease->fence == s->granted_fence; /* mutant: once */
	return lease->state == LEASE_OPEN || needed;
}

struct store_range caller_keyed_range(const struct session *s, const struct store_range *range)
{
	struct store_range whole = {.space = range->space, .mode = WIRE_EXCLUSIVE, .from = 0, .to = WIRE_EOF};

	return s->waiter.lock->file->redis_key ? whole : *range;
}

/* A lease of before the rule, or with another key, excludes no client of this one. A caller that has the lock already
 * would wait for itself. */
bool caller_keyed_may_use(const struct session *s, const struct lease *lease)
{
	const char *key = s->waiter.lock->file->redis_key;

	/* mutant: keyed-old */
	return !key || (lease->key && strcmp(lease->key, key) == 0) || caller_once_holds_already(s);
}

bool caller_keyed_is_due(const struct lease *lease)
{
	const struct keeper *k = lease_keeper(lease);

	return lease->key && clock_now_ns() - lease->granted_ns >= k->config->lease.fair_ms * NS_PER_MS;
}

#define CALLER_HOSTS_BYTES 256 /* bytes */

/* --- callers that wait for too long --- */

/* The hosts that have leases in the way, as the store said when it was asked last; "": not known. */
static void caller_long_wait_hosts(const struct lease *lease, char out[CALLER_HOSTS_BYTES])
{
	size_t used = 0;

	out[0] = '\0';
	for (size_t i = 0; lease && i < lease->asking.blocker_count && used < CALLER_HOSTS_BYTES; i++)
		if (!lease->asking.blockers[i].waiter)
			used += (size_t)snprintf(out + used, CALLER_HOSTS_BYTES - used, "%s%s", used ? ", " : "",
						 lease->asking.blockers[i].host);
}

/* Who has the lock, and why the caller waits, as far as is known. */
static void caller_long_wait_why(const struct session *s, char holder[CALLER_HOSTS_BYTES], char why[WIRE_REASON_BYTES])
{
	const struct lease *lease = s->waiter.lease;

	caller_long_wait_hosts(lease, holder);
	if (s->away_ns)
		deadline_trouble(waiter_member(&s->waiter), why, WIRE_REASON_BYTES);
	else if (s->state == SESSION_PINNED)
		snprintf(why, WIRE_REASON_BYTES, "a process of this host has it");
	else if (s->waiter.roomless)
		snprintf(why, WIRE_REASON_BYTES, "this keeper holds as many leases as it can");
	else if (lease && lease->asking.taken)
		keys_say_taken(lease, why, WIRE_REASON_BYTES);
	else if (lease && lease->asking.resting)
		snprintf(why, WIRE_REASON_BYTES, "its rest is not over (at_least_ms)");
	else if (*holder)
		snprintf(why, WIRE_REASON_BYTES, "host %.200s has it", holder);
	else
		snprintf(why, WIRE_REASON_BYTES, "it waits for its turn");
	if (!*holder && s->state == SESSION_PINNED)
		snprintf(holder, CALLER_HOSTS_BYTES, "%.200s", s->keeper->host);
}

static void caller_long_wait_say(struct session *s, int64_t ms)
{
	const struct file *file = s->waiter.lock->file;
	char holder[CALLER_HOSTS_BYTES], why[WIRE_REASON_BYTES];

	caller_long_wait_why(s, holder, why);
	s->warned = true;
	s->keeper->sessions->counts.long_waits++;
	event_raise(s->keeper,
		    &(struct event){.kind = EVENT_WAITED_TOO_LONG,
				    .name = file->name,
				    .path = file->path,
				    .range = &s->waiter.range,
				    .pids = &s->peer.pid,
				    .pid_count = 1,
				    .holder = holder,
				    .reason = why,
				    .for_ms = ms},
		    "pid %d has waited for %s (%s) for %lld ms: %s; `dflock status` shows who has it", (int)s->peer.pid,
		    file->name, file->path, (long long)ms, why);
}

void caller_look(struct session *s, int64_t now_ns)
{
	int64_t limit_ms, ms;

	if (s->warned || !s->waiter.lock || (s->state != SESSION_WAITING && s->state != SESSION_PINNED) ||
	    caller_is_nonblocking(s))
		return;
	limit_ms = s->waiter.lock->file->wait_warn_ms;
	ms = (now_ns - s->received_ns) / NS_PER_MS;
	if (limit_ms && ms >= limit_ms)
		caller_long_wait_say(s, ms);
}
