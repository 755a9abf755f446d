/* See keyed.h. */
#include "keeper/callers/keyed.h"

#include <string.h>

#include "keeper/callers/once.h"
#include "keeper/callers/session.h"
#include "keeper/clock.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"

struct store_range keyed_range(const struct session *s, const struct store_range *range)
{
	struct store_range whole = {.space = range->space, .mode = WIRE_EXCLUSIVE, .from = 0, .to = WIRE_EOF};

	return s->waiter.lock->file->redis_key ? whole : *range;
}

/* A lease of before the rule, or with another key, excludes no client of this one. A caller that has the lock already
 * would wait for itself. */
bool keyed_may_use(const struct session *s, const struct lease *lease)
{
	const char *key = s->waiter.lock->file->redis_key;

	/* mutant: keyed-old */
	return !key || (lease->key && strcmp(lease->key, key) == 0) || once_holds_already(s);
}

bool keyed_is_due(const struct lease *lease)
{
	const struct keeper *k = lease_keeper(lease);

	return lease->key && clock_now_ns() - lease->granted_ns >= k->config->lease.fair_ms * NS_PER_MS;
}
