/* What the keeper says about its store. */
#ifndef DFLOCK_CLI_STORE_H
#define DFLOCK_CLI_STORE_H

#include <jansson.h>

#include "cli/ask.h"

/*
 * The keeper's status. A keeper serves before it has reached the store, and connects again every 2 s to a store that
 * was down: until then its status may be old. So it is asked again until the store is up, for at most
 * STORE_PATIENCE_MS. The caller releases the answer (json_decref()). NULL: why has one line.
 */
#define STORE_PATIENCE_MS 3000
json_t *store_await(struct ask *ask, const struct place *place, char why[CLI_LINE_BYTES]);

#endif
