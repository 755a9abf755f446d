/* See seenout.h. */
#include "keeper/leases/seenout.h"

#include "keeper/clock.h"

static bool calledback_is(const struct calledback_one *one, const struct underway_call *call)
{
	const struct underway_call *c = &one->call;

	return c->thread == call->thread && c->started == call->started && c->dev == call->dev && c->ino == call->ino &&
	       c->space == call->space && c->from == call->from && c->to == call->to;
}

static size_t calledback_find(const struct calledback *cb, const struct underway_call *call)
{
	size_t i = 0;

	while (i < CALLEDBACK_THREADS && !calledback_is(&cb->all[i], call))
		i++;
	return i;
}

static struct calledback_one *calledback_oldest(struct calledback *cb)
{
	struct calledback_one *oldest = &cb->all[0];

	for (size_t i = 1; i < CALLEDBACK_THREADS; i++)
		if (cb->all[i].at_ns < oldest->at_ns)
			oldest = &cb->all[i];
	return oldest;
}

/* One that was not called back for much longer than its pause has had another answer. */
static int64_t calledback_pause(const struct calledback_one *one, int64_t now_ns)
{
	if (now_ns - one->at_ns > 2 * one->pause_ns + CALLEDBACK_MAX_MS * NS_PER_MS)
		return CALLEDBACK_MIN_MS * NS_PER_MS;
	return one->pause_ns * 2 < CALLEDBACK_MAX_MS * NS_PER_MS ? one->pause_ns * 2 : CALLEDBACK_MAX_MS * NS_PER_MS;
}

void calledback_note(struct calledback *cb, const struct underway_call *call, int64_t now_ns)
{
	size_t at = calledback_find(cb, call);
	struct calledback_one *one = at < CALLEDBACK_THREADS ? &cb->all[at] : calledback_oldest(cb);

	*one = (struct calledback_one){.call = *call,
				       .at_ns = now_ns,
				       .pause_ns = at < CALLEDBACK_THREADS ? calledback_pause(one, now_ns)
									   : CALLEDBACK_MIN_MS * NS_PER_MS};
}

bool calledback_lately(const struct calledback *cb, const struct underway_call *call, int64_t now_ns)
{
	size_t at = calledback_find(cb, call);

	return at < CALLEDBACK_THREADS &&
	       now_ns / cb->all[at].pause_ns == cb->all[at].at_ns / cb->all[at].pause_ns; /* mutant: calledback-pause */
}

bool calledback_asks(struct calledback *cb, const struct underway_call *call)
{
	size_t at = calledback_find(cb, call);

	if (at == CALLEDBACK_THREADS || cb->all[at].asked)
		return false;
	cb->all[at].asked = true;
	return true;
}
