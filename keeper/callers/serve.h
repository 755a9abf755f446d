/*
 * What a caller may have now: the decision between a lease that this host has, one that it must fetch, and
 * waiting. Loop only.
 */
#ifndef DFLOCK_KEEPER_SERVE_H
#define DFLOCK_KEEPER_SERVE_H

#include "keeper/clock.h"
#include "keeper/keeper.h"

/* A caller is told only of a lease that is sure for longer than this: else it would be over before the answer arrives.
 */
#define SERVE_LEAST_NS (5 * NS_PER_MS)

/* The caller's file is known and it wants request's range of the lock: into the lock's list, and serve. */
void serve_begin(struct session *s, struct lock *lock);
/* Looks at one waiting caller; at every waiting caller of the lock; of all locks. */
void serve_session(struct session *s);
void serve_lock(struct lock *lock);
void serve_all(struct keeper *k);

/* The caller's timer ran out: a pin, a non-blocking question, the wait for the store. */
void serve_timeout(struct session *s);
/* Out of the lock's list: answered, or gone. Cancels what it alone waited for; ends its pin. */
void serve_end(struct session *s);

/* The lease is not asking any more: nobody waits for it. */
void serve_detach(struct lease *lease);

/* Is there a caller, of this range or a part, that gets a pin when the probes there have ended? */
bool serve_needs_pin(const struct lock *lock, const struct store_range *range);
/* ... or one that has it? */
bool serve_is_pinned(const struct lock *lock, const struct store_range *range);

struct store_range session_range(const struct session *s);

#endif
