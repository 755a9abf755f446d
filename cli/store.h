/* What the keeper says of its store. */
#ifndef DFLOCK_CLI_STORE_H
#define DFLOCK_CLI_STORE_H

#include <jansson.h>
#include <stdbool.h>

#include "cli/ask.h"

/*
 * The keeper's status. A keeper that was just `started` serves before it has reached the store: then its status is
 * asked for again until the store is up, for STORE_PATIENCE_MS at most. The caller releases it. NULL with why.
 */
#define STORE_PATIENCE_MS 3000
json_t *store_await(struct ask *ask, const struct place *place, bool started, char why[CLI_LINE_BYTES]);

#endif
