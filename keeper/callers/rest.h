/*
 * Connections that rest: the loop does not watch them. A call that no other host is in the way of is over some 0.2 ms after it has connected,
 * and its hang-up would wake the keeper once more, for something that nobody waits for. So a connection whose question came with it is
 * watched only from when
 *   - its peer was answered and may ask on, or was told to wait: session_watch();
 *   - its pin is in the way of a lease that is to go back: WAITER_PIN_WANTED;
 *   - REST_MS are over, or REST_MOST rest, or there is no room for another connection: rest_look().
 *
 * Why that is safe: only a hang-up, which ends a pin, is noticed later than it could be, and a pin that lasts longer can only delay. It delays
 * nobody for long: before a lease waits for the end of a pin, the keeper has the connection watched, and epoll then reports a hang-up of before. A
 * question is never in time's way: a peer with a grant asks on only when the grant is over, or for the locks that it had before.
 * What concludes from a session that its caller is still in the call (the table's callers) asks session_has_hung_up() first.
 *
 * Loop only.
 */
#ifndef DFLOCK_KEEPER_REST_H
#define DFLOCK_KEEPER_REST_H

struct keeper;
struct session;

#define REST_MS   100
#define REST_MOST 64

/* Before the first session, and after the last one. */
void rest_start(struct keeper *k);
void rest_stop(struct keeper *k);

/* A session rests: it is looked at again in REST_MS. */
void rest_begin(struct session *s);

/* Closes those of all that rest whose peers have hung up, and has the others watched. An input: calls queue_settle(). */
void rest_look(struct keeper *k);

#endif
