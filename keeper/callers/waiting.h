/*
 * How long a caller waits, and what it is told meanwhile: the session's timer while the session is WAITING or PINNED. What
 * the caller may have is serve.c's decision; this says when it has waited for long enough. Loop only.
 */
#ifndef DFLOCK_KEEPER_WAITING_H
#define DFLOCK_KEEPER_WAITING_H

struct session;

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
