/* The socket that programs connect to: which connection gets a session, and which session has something to read. Loop
 * only. */
#ifndef DFLOCK_KEEPER_LISTENER_H
#define DFLOCK_KEEPER_LISTENER_H

#include <sys/types.h>
#include <uv.h>

struct keeper;
struct session;

/* k->listener. Other modules only read it. */
struct listener {
	int fd;
	int spare_fd; /* given up for a moment when there is no descriptor left, so that a peer can be told */
	uv_poll_t accepting;
	uv_poll_t readable; /* k->sessions->epoll */
	unsigned limit;     /* of sessions */
	uid_t unknown_uid;  /* overflowuid_get() */
};

/* Makes RUNTIME_DIR/keeper.sock and listens; sets k->listener. limit: how many sessions there may be. 0 or -errno; then
 * the process ends. */
int listener_start(struct keeper *k, unsigned limit);
/* Closes the socket and every session. listener_free() frees the rest once the loop has run. */
void listener_stop(struct keeper *k);
void listener_free(struct keeper *k);

/* For a process that ends at once: shuts down all connections and the socket now, since a thread that waits for a file
 * system that does not answer would keep them open. */
void listener_abandon(struct keeper *k);

/*
 * Connections that rest: the loop does not watch them. A call that no other host is in the way of is over some 0.2 ms after it has connected,
 * and its hang-up would wake the keeper once more, for something that nobody waits for. So a connection whose question came with it is
 * watched only from when
 *   - its peer was answered and may ask on, or was told to wait: session_watch();
 *   - its pin is in the way of a lease that is to go back: WAITER_PIN_WANTED;
 *   - LISTENER_REST_MS are over, or LISTENER_REST_MOST rest, or there is no room for another connection: listener_rest_look().
 *
 * Why that is safe: only a hang-up, which ends a pin, is noticed later than it could be, and a pin that lasts longer can only delay. It delays
 * nobody for long: before a lease waits for the end of a pin, the keeper has the connection watched, and epoll then reports a hang-up of before. A
 * question is never in time's way: a peer with a grant asks on only when the grant is over, or for the locks that it had before.
 * What concludes from a session that its caller is still in the call (the table's callers) asks session_has_hung_up() first.
 */

#define LISTENER_REST_MS   100
#define LISTENER_REST_MOST 64

/* Before the first session, and after the last one. */
void listener_rest_start(struct keeper *k);
void listener_rest_stop(struct keeper *k);

/* A session rests: it is looked at again in LISTENER_REST_MS. */
void listener_rest_begin(struct session *s);

/* Closes those of all that rest whose peers have hung up, and has the others watched. An input: calls queue_settle(). */
void listener_rest_look(struct keeper *k);

#endif
