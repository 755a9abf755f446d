/* See callers.h. */
#include "keeper/callers/callers.h"

#include <stdarg.h>
#include <stdio.h>
#include <utlist.h>

#include "keeper/leases/act.h"
#include "keeper/leases/answers.h"
#include "keeper/leases/locks.h"
#include "keeper/callers/sessions.h"

bool caller_is_nonblocking(const struct session *s)
{
	return s->request.flags & WIRE_F_NONBLOCK;
}

void caller_would_block(struct session *s)
{
	session_would_block(s, s->lease ? answers_first(s->lease) : NULL); /* mutant: would-block */
}

void caller_refuse(struct session *s, const char *format, ...)
{
	char why[WIRE_REASON_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	session_refuse(s, "%s: %s", s->lock->file->path, why);
}

void caller_tell_waiting(struct session *s)
{
	if (!s->told_waiting)
		session_reply(s, WIRE_WAITING, NULL, -1);
	s->told_waiting = true;
}

static bool has_callers(const struct lease *lease, bool of_nonblocking)
{
	const struct session *s;

	DL_FOREACH2 (lease->lock->sessions, s, lock_next)
		if (s->lease == lease && caller_is_nonblocking(s) == of_nonblocking)
			return true;
	return false;
}

#define FOR_CALLERS(lease, s, next)                                                                                    \
	DL_FOREACH_SAFE2 ((lease)->lock->sessions, s, next, lock_next)                                                 \
		if ((s)->lease == (lease))

void callers_queued(struct lease *lease, int64_t asked_ns, uint64_t arrival)
{
	struct session *s, *next;

	FOR_CALLERS (lease, s, next) {
		if (!s->arrival && s->joined_ns <= asked_ns)
			s->arrival = arrival;
		if (!caller_is_nonblocking(s))
			caller_tell_waiting(s);
	}
}

void callers_in_use(struct lease *lease)
{
	struct session *s, *next;
	struct keeper *k = lease->lock->file->keeper;
	bool complete = answers_complete(lease) || lease->range.space != WIRE_RECORD;

	keeper_enter(k);
	FOR_CALLERS (lease, s, next)
		if (caller_is_nonblocking(s) && (s->request.op != WIRE_TEST || complete))
			caller_would_block(s);
	keeper_leave(k);
}

static void refuse_some(struct lease *lease, const char *why, bool blocking_too)
{
	struct session *s, *next;
	struct keeper *k = lease->lock->file->keeper;

	keeper_enter(k);
	FOR_CALLERS (lease, s, next)
		if (blocking_too || caller_is_nonblocking(s))
			caller_refuse(s, "%s", why);
	keeper_leave(k);
}

void callers_refuse(struct lease *lease, const char *why)
{
	refuse_some(lease, why, true);
}

void callers_refuse_nonblocking(struct lease *lease, const char *why)
{
	refuse_some(lease, why, false);
}

bool callers_may_pass(const struct lease *lease)
{
	struct session *s;

	DL_FOREACH2 (lease->lock->sessions, s, lock_next)
		if (s->lease == lease && before_count(&s->before))
			return true;
	return false;
}

bool callers_exist(const struct lease *lease)
{
	return callers_ask(lease) || callers_wait(lease);
}

bool callers_wait(const struct lease *lease)
{
	return has_callers(lease, false);
}

bool callers_ask(const struct lease *lease)
{
	return has_callers(lease, true);
}
