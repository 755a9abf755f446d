/* See once.h. */
#include "keeper/callers/once.h"

#include "keeper/callers/session.h"
#include "keeper/leases/locks.h"

static int64_t at_least_ms(const struct session *s)
{
	return s->waiter.lock->file->at_least_ms;
}

static bool wants_whole_file(const struct session *s)
{
	return s->request.from == 0 && s->request.to == WIRE_EOF;
}

bool once_holds_already(const struct session *s)
{
	return !(s->request.flags & WIRE_F_HAVE) &&
	       (s->holds.exclusive || s->holds.shared || before_count(&s->before) > 0);
}

bool once_forbids(const struct session *s)
{
	if (!at_least_ms(s) || s->request.op != WIRE_LOCK)
		return false;
	/* A lock that is there may become a shared one: that is no new lock. */
	return !wants_whole_file(s) || (s->request.mode != WIRE_EXCLUSIVE && !once_holds_already(s));
}

int64_t once_rest_ms(const struct session *s)
{
	/* A test takes no lock. A shared lock that is there already (at_least_ms is new) stays as it is. */
	return s->request.op == WIRE_LOCK && s->request.mode == WIRE_EXCLUSIVE ? at_least_ms(s) : 0;
}

bool once_may_use(const struct session *s, const struct lease *lease, bool needed)
{
	if (!at_least_ms(s) || once_holds_already(s))
		return true;
	if (s->request.op != WIRE_LOCK)
		return !lease->rest_ms;
	if (!lease->rest_ms) /* of before the rule: no rest began with it */
		return false;
	if (lease->spent)
		return lease->fence == s->granted_fence; /* mutant: once */
	return lease->state == LEASE_HELD || needed;
}
