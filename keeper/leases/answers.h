/*
 * The locks that holders on other hosts reported to be in the way of a lease that is asked for. The first answer
 * refuses a call that wants the lock. F_GETLK must show one lock, and always the same one: so it waits until every
 * holder that the store named has answered (or probe_ms are over), and shows the lock that begins first. Loop only.
 */
#ifndef DFLOCK_KEEPER_ANSWERS_H
#define DFLOCK_KEEPER_ANSWERS_H

#include <stdbool.h>
#include <stdint.h>

struct lease;
struct store_range;

/* Takes a holder's answer to an asking lease: tells its waiters (WAITER_IN_USE). */
void answers_add(struct lease *lease, const char *host, const struct store_range *in_use);

/* The store has named the holders of an asking lease anew (lease->asking.blockers): tells its waiters, too. */
void answers_look(struct lease *lease);

/* Have all holders that the store named answered, or as many others as it names at most? */
bool answers_complete(const struct lease *lease);

/* The known lock that begins first. NULL: no answer has come. */
const struct store_range *answers_first(const struct lease *lease);

/* Frees them. */
void answers_forget(struct lease *lease);

#endif
