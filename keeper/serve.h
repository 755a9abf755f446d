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

/* Answers from act.c for all callers that wait for this asking lease. */
/* The store has it in its queue: tells the blocking ones, and numbers those who waited for it already when it was
 * asked. */
void serve_queued(struct lease *lease, int64_t asked_ns, uint64_t arrival);
void serve_in_use(struct lease *lease);                  /* a holder uses it: the non-blocking ones fail */
void serve_refuse(struct lease *lease, const char *why); /* all fail with ENOLCK */
void serve_refuse_nonblocking(struct lease *lease, const char *why);
bool serve_has_callers(const struct lease *lease);
bool serve_has_blocking(const struct lease *lease);
/* Has a caller record locks of the file already? The kernel would grant it more past whoever waits. */
bool serve_may_pass(const struct lease *lease);

/* Are there pins over the range, or callers that get one when the probes there have ended? */
bool serve_is_pinned(const struct lock *lock, const struct store_range *range);

struct store_range session_range(const struct session *s);

#endif
