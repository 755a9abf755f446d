/* See callers.h. */
#include "keeper/callers/callers.h"

#include <stdarg.h>
#include <stdio.h>

#include "keeper/leases/keeper.h"
#include "keeper/leases/answers.h"
#include "keeper/leases/locks.h"
#include "keeper/callers/session.h"

bool caller_is_nonblocking(const struct session *s)
{
	return s->request.flags & WIRE_F_NONBLOCK;
}

void caller_would_block(struct session *s)
{
	session_would_block(s, s->waiter.lease ? answers_first(s->waiter.lease) : NULL); /* mutant: would-block */
}

static void __attribute__((format(printf, 3, 0)))
caller_refuse_by(struct session *s, void (*refuse)(struct session *s, const char *format, ...), const char *format,
		 va_list args)
{
	char why[WIRE_REASON_BYTES];

	vsnprintf(why, sizeof(why), format, args);
	refuse(s, "%s: %s", s->waiter.lock->file->path, why);
}

void caller_refuse(struct session *s, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	caller_refuse_by(s, session_refuse, format, args);
	va_end(args);
}

void caller_refuse_for_now(struct session *s, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	caller_refuse_by(s, session_refuse_for_now, format, args);
	va_end(args);
}

bool caller_is_patient(const struct session *s)
{
	return !caller_is_nonblocking(s) &&
	       config_on_refused(s->keeper->config, s->waiter.lock->file->path) == WIRE_ON_REFUSED_WAIT;
}

void caller_tell_waiting(struct session *s)
{
	if (!s->told_waiting)
		session_reply(s, WIRE_WAITING, NULL, -1);
	s->told_waiting = true;
}
