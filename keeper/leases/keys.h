/*
 * Leases that are also the lock of a key of Redis (redis_key), which programs take with a client library. Loop only.
 *
 * store/lua/renew.lua and key.lua say why both worlds never have the lock at once. Here: what a beat says of the keys. A key
 * that is not the lease's own any more means that the lease is lost, at once: its holders end, and only then does the
 * store give the lease to another host (LEASE_ENDING).
 *
 * Clients cannot recall a lease. So one with a key is never in the page, does not linger (RECALL_RULE), and callers that
 * come when it is older than fair_ms wait for the next one (keyed.h).
 */
#ifndef DFLOCK_KEEPER_KEYS_H
#define DFLOCK_KEEPER_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "store/store.h"

struct keeper;
struct lease;

/* How many leases with a key the store has of this host, as far as is known. */
size_t keys_count(const struct keeper *k);
/* The answer to a beat. */
void keys_heard(struct keeper *k, const struct store_reply *reply);

/* The lease is about to be lost because of its key: notes its slot. keys_why(): for people. */
void keys_lose(struct lease *lease);
const char *keys_why(const struct lease *lease);
/* The parent may have ended the holders of such leases: these go back. */
void keys_look(struct keeper *k);

/* "a Redis client (1a2b3c4d...) has its key jobs:nightly, for another 12 s", of an asking lease that is `taken`. */
void keys_describe(const struct lease *lease, char *out, size_t size);

#endif
