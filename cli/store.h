/* What the keeper says of its store. */
#ifndef DFLOCK_CLI_STORE_H
#define DFLOCK_CLI_STORE_H

#include <jansson.h>

#include "cli/ask.h"

/*
 * The keeper's status. A keeper serves before it has reached the store, and tries one that was down every 2 s: until
 * then what it says may be old. So it is asked again until the store is up, for STORE_PATIENCE_MS at most. The caller
 * releases the answer. NULL with why.
 */
#define STORE_PATIENCE_MS 3000
json_t *store_await(struct ask *ask, const struct place *place, char why[CLI_LINE_BYTES]);

#endif
