/*
 * Decides what a caller gets now: a pin under a lease that this host has, a lease that the host must fetch, or a wait.
 * Loop only.
 */
#ifndef DFLOCK_KEEPER_SERVE_H
#define DFLOCK_KEEPER_SERVE_H

#include <stddef.h>

#include "keeper/callers/session.h"

/* The caller's file is known, and the caller wants the range of s->request: makes it a waiter; serve_told() looks at
 * it. */
void serve_begin(struct session *s, struct lock *lock);
/* Takes news of what the caller waits for: queue_news.told(). */
void serve_told(struct waiter *waiter, unsigned news, const char *why);

static inline struct session *session_of_waiter(struct waiter *waiter)
{
	return (struct session *)((char *)waiter - offsetof(struct session, waiter));
}

/*
 * --- waiting.c ---
 *
 * How long a caller waits, and what it is told meanwhile: the session's timer while the session is WAITING or PINNED. What
 * the caller may have is serve.c's decision; this says when it has waited for long enough.
 */

/* A new question: nothing was told so far. */
void waiting_begin(struct session *s);
/* The session has joined an asking lease. */
void waiting_for_lease(struct session *s);
/* The session waits for room for another lease (room_wait()). The time counts from when it first found none. */
void waiting_for_room(struct session *s);
/* The store is down, or was down for too long: the caller waits for nothing but the store. A caller that does not wait
 * may have been refused then. */
void waiting_for_store(struct session *s);
/* The store is not what the caller waits for: store_wait_ms will count from the next time that it goes down. */
void waiting_store_is_back(struct session *s);
/* The session was called back, and waits until the lease's probe has looked; for a moment, then it is served as any other. */
void waiting_for_probe(struct session *s);
/* The session has a pin: its end is an input. */
void waiting_pinned(struct session *s);

#endif
