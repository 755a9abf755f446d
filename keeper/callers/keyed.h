/*
 * Callers of files whose rule has redis_key (keeper/leases/keys.h): which lease is asked for them, and under which they may
 * be granted. Loop only.
 *
 * A key has no shared locks and no ranges. So the lease is exclusive and for the whole range, whatever the caller wants;
 * processes of one host share it as their kernel allows.
 */
#ifndef DFLOCK_KEEPER_KEYED_H
#define DFLOCK_KEEPER_KEYED_H

#include <stdbool.h>

#include "store/store.h"

struct lease;
struct session;

/* The range that the store is asked for if the caller wants this one. */
struct store_range keyed_range(const struct session *s, const struct store_range *range);
/* May the caller be granted under this lease, as far as its key goes? */
bool keyed_may_use(const struct session *s, const struct lease *lease);
/* Is the lease so old that newcomers wait for the next one? Else processes of one host that take turns would keep the key from
 * all clients. */
bool keyed_is_due(const struct lease *lease);

#endif
