/* A connection of another user's program. The session, which owns the connection, embeds this struct for this room. */
#ifndef DFLOCK_KEEPER_CONNECTION_H
#define DFLOCK_KEEPER_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct front;
struct fronts;

struct front_connection {
	/* The owner's, constant while the connection is in use: */
	struct fronts *fronts;
	void *owner;
	uid_t uid;
	int fd;
	/* This room's, {0} at first. The owner may ask whether `front` is NULL. */
	struct front *front; /* reads from it, or has a description for it */
	bool queued;         /* no front reads it yet */
	bool again;          /* something more came while a front has it */
	bool tests;          /* away_test_shared() */
	int64_t since_ns;    /* when it was queued */
	struct front_connection *prev, *next;
};

#endif
