/*
 * Leases that are also the lock of a key of Redis (redis_key), which programs take with a client library. Loop only.
 *
 * store/lua/renew.lua and key.lua say why both worlds never have the lock at once. Here: what a beat says of the keys. A key
 * that is not the lease's own any more means that the lease is lost, at once.
 *
 * How it ends. As a lease that an operator takes away (breaking.h): it is closed to all callers; when its last pin has
 * ended, the slot in the table says "lost", and the parent ends the holders as on_lost says; and only then does the lease
 * go back. So no caller that was granted before comes to rely on the lock after the parent has looked. A lease
 * that the store must confirm first has no pins: it is lost as if the store had said that it has gone, and what the store
 * still has of it goes back as any token that no lease here has.
 *
 * Clients cannot recall a lease. So one with a key is never in the page, does not linger (RECALL_RULE), and callers that
 * come when it is older than fair_ms wait for the next one (callers.h).
 */
#ifndef DFLOCK_KEEPER_KEYS_H
#define DFLOCK_KEEPER_KEYS_H

#include <stddef.h>
#include <uv.h>

#include "store/store.h"

struct keeper;

/* Part of struct keeper. */
struct keys {
	uv_timer_t timer;       /* while leases with key_lost end, or tokens go back */
	struct keys_owed *owed; /* tokens that no lease has: they go back when no holders of lost leases are left */
};

void keys_open(struct keeper *k);
void keys_close(struct keeper *k);

/* How many leases with a key the store has of this host, as far as is known. */
size_t keys_count(const struct keeper *k);
/* The answer to a beat. */
void keys_heard(struct keeper *k, const struct store_reply *reply);

#endif
