/* Calls under way, for status: which threads keep a lease here that is wanted elsewhere (keeper/leases/seeing.h). Loop only. */
#ifndef DFLOCK_KEEPER_STATUS_CALLS_H
#define DFLOCK_KEEPER_STATUS_CALLS_H

#include <jansson.h>

struct lease;

/* [{"pid", "thread", "command", "from", "to"}]. */
json_t *status_calls_json(const struct lease *lease);

#endif
