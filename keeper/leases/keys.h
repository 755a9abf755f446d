/*
 * Leases that are also the lock of a key of Redis (redis_key), which programs take with a client library. Loop only.
 *
 * store/rules/renew.lua and key.lua say why both worlds never have the lock at once. Here: what a beat says of the keys. A key
 * that is not the lease's own any more means that the lease is lost, at once.
 *
 * How it ends. As a lease that an operator takes away (breaking.h): it is closed to all callers; when its last pin has
 * ended, the slot in the table says "lost", and the parent ends the holders as on_lost says; and only then does the lease
 * go back. So no caller that was granted before comes to rely on the lock after the parent has looked. A lease
 * that the store must confirm first has no pins: it is lost as if the store had said that it has gone, and what the store
 * still has of it goes back as any token that no lease here has: each beat names it, until no holders of lost leases are left.
 *
 * Clients cannot recall a lease. So one with a key is never in the page, does not linger (RECALL_RULE), and callers that
 * come when it is older than fair_ms wait for the next one (callers.h).
 */
#ifndef DFLOCK_KEEPER_KEYS_H
#define DFLOCK_KEEPER_KEYS_H

#include <stddef.h>

#include "store/store.h"

struct member;
struct lease;

/* How many leases with a key the store has of this host, as far as is known. */
size_t keys_count(const struct member *m);
/* The answer to a beat. */
void keys_heard(struct member *m, const struct store_reply *reply);

/* --- for people --- */

/* "a Redis client (1a2b3c4d...) has its key jobs:nightly, for another 12 s", of an asking lease that is `taken`. */
void keys_say_taken(const struct lease *lease, char *out, size_t size);
/* Why a lease with key_lost was lost. */
const char *keys_why_lost(const struct lease *lease);

#endif
