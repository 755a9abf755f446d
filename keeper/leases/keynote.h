/* What people are told of keys (redis_key, keys.h). */
#ifndef DFLOCK_KEEPER_KEYNOTE_H
#define DFLOCK_KEEPER_KEYNOTE_H

#include <stddef.h>

struct lease;

/* The key of a lease, without its format; "": it has none. */
const char *keynote_name(const struct lease *lease);
/* "a Redis client (1a2b3c4d...) has its key jobs:nightly, for another 12 s", of an asking lease that is `taken`. */
void keynote_taken(const struct lease *lease, char *out, size_t size);
/* Why a lease with key_lost was lost. */
const char *keynote_lost(const struct lease *lease);

#endif
