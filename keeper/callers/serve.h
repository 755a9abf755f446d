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
/* What has become of what it waits for: queue_news.told(). */
void serve_told(struct waiter *waiter, unsigned news, const char *why);

static inline struct session *session_of_waiter(struct waiter *waiter)
{
	return (struct session *)((char *)waiter - offsetof(struct session, waiter));
}

#endif
