/* See answers.h. One host's leases all give the same answer: what its kernel says is in the way of the whole question.
 */
#include "keeper/leases/answers.h"

#include <stdlib.h>
#include <string.h>

#include "keeper/clock.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/waiters.h"

#define REASK_MS 10

struct answers {
	struct store_range first;
	size_t count;
	char hosts[STORE_MAX_BLOCKERS][STORE_HOST_BYTES];
};

static bool has_answered(const struct answers *answers, const char *host)
{
	for (size_t i = 0; i < answers->count; i++)
		if (strcmp(answers->hosts[i], host) == 0)
			return true;
	return false;
}

/* If two begin at the same byte, any order will do that does not depend on which host answers first. */
static bool is_before(const struct store_range *a, const struct store_range *b)
{
	if (a->from != b->from)
		return a->from < b->from;
	if (a->mode != b->mode)
		return a->mode == WIRE_EXCLUSIVE;
	return a->to < b->to;
}

bool answers_complete(const struct lease *lease)
{
	if (!lease->asking.answers || !lease->asking.blocker_count)
		return false;
	for (size_t i = 0; i < lease->asking.blocker_count; i++)
		if (!lease->asking.blockers[i].waiter && lease->asking.answers->count < STORE_MAX_BLOCKERS &&
		    !has_answered(lease->asking.answers, lease->asking.blockers[i].host))
			return false;
	return true;
}

const struct store_range *answers_first(const struct lease *lease)
{
	return lease->asking.answers ? &lease->asking.answers->first : NULL;
}

void answers_look(struct lease *lease)
{
	if (!lease->asking.answers)
		return;
	waiters_tell(lease, WAITER_IN_USE);
	/* Should all of them be answered now, the lease is unwanted. Else it asks the store again: a holder that gives its lease back sends no
	 * answer. */
	if (waiters_ask(lease))
		lease_start_timer(lease, REASK_MS + (clock_now_ns() - lease->since_ns) / NS_PER_MS / 2);
}

void answers_add(struct lease *lease, const char *host, const struct store_range *in_use)
{
	struct answers *answers = lease->asking.answers;

	if (!answers) {
		answers = lease->asking.answers = calloc(1, sizeof(*answers));
		if (!answers)
			return; /* probe_ms end the question */
		answers->first = *in_use;
	}
	if (is_before(in_use, &answers->first))
		answers->first = *in_use;
	if (answers->count < STORE_MAX_BLOCKERS && !has_answered(answers, host))
		strcpy(answers->hosts[answers->count++], host);
	answers_look(lease);
}

void answers_forget(struct lease *lease)
{
	free(lease->asking.answers);
	lease->asking.answers = NULL;
}
