/* The socket that programs connect to: which connection gets a session, and which session has something to read. Loop
 * only. */
#ifndef DFLOCK_KEEPER_LISTENER_H
#define DFLOCK_KEEPER_LISTENER_H

#include <sys/types.h>
#include <uv.h>

struct keeper;

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

#endif
