/*
 * What the holders of other hosts said is in the way of a lease that is asked for. A call that only wants the lock is
 * refused by the first answer. F_GETLK shows one lock, and the same one each time: so it waits until every holder that
 * the store named has answered (or probe_ms are over), and shows the lock that begins first. Loop only.
 */
#ifndef DFLOCK_KEEPER_ANSWERS_H
#define DFLOCK_KEEPER_ANSWERS_H

#include "keeper/keeper.h"

/* A holder's answer to an asking lease has come: its waiters are told (WAITER_IN_USE). */
void answers_add(struct lease *lease, const char *host, const struct store_range *in_use);

/* The store has named the holders of an asking lease anew (lease->blockers): the same. */
void answers_look(struct lease *lease);

/* Have all holders that the store named answered? */
bool answers_complete(const struct lease *lease);

/* The lock that begins first, of those that are known. NULL: no answer has come. */
const struct store_range *answers_first(const struct lease *lease);

/* When to ask the store again who holds: a holder that has given its lease back instead says nothing to us. ms. */
int64_t answers_reask_ms(const struct lease *lease);

/* Frees them. */
void answers_forget(struct lease *lease);

#endif
