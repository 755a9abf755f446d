/*
 * What a caller may have now: the decision between a lease that this host has, one that it must fetch, and
 * waiting. Loop only.
 */
#ifndef DFLOCK_KEEPER_SERVE_H
#define DFLOCK_KEEPER_SERVE_H

#include <stddef.h>

#include "keeper/callers/session.h"

/* The caller's file is known and it wants request's range of the lock: it waits, and is looked at by serve_told(). */
void serve_begin(struct session *s, struct lock *lock);
/* The caller still waits, and something that only callers/ knows of has changed: the same. */
void serve_again(struct session *s);

/* What has become of what it waits for: queue_news.told(). */
void serve_told(struct waiter *waiter, unsigned news, const char *why);

/* The caller's timer ran out: a pin, a non-blocking question, the wait for the store. An input. */
void serve_timeout(struct session *s);
/* Answered, or gone: what it alone waited for is not wanted any more; its pin has ended. */
void serve_end(struct session *s);

static inline struct session *session_of_waiter(struct waiter *waiter)
{
	return (struct session *)((char *)waiter - offsetof(struct session, waiter));
}

struct store_range session_range(const struct session *s);

#endif
