/* dflock run --require: may a job rely on its locks? */
#ifndef DFLOCK_CLI_REQUIRE_H
#define DFLOCK_CLI_REQUIRE_H

#include "cli/cli.h"
#include "cli/program.h"

/* How long a keeper that has just started may take to reach the store. */
#define REQUIRE_PATIENCE_MS 1000

/*
 * Is everything there that protects a job: a valid configuration that is in force, a keeper (one is started if none
 * runs), and a store that grants new locks? And is each of the `count` files protected? True, or false with one line in
 * why: what is missing, and what to do. Waits at most REQUIRE_PATIENCE_MS for the store, and as long as
 * start_connect() for the keeper.
 */
bool require_fit(const struct place *place, const char *const *files, size_t count, char why[CLI_LINE_BYTES]);

#endif
