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

#endif
