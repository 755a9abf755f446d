/*
 * Fronts: processes that touch the descriptors of other users in the keeper's place (front.h), so that nothing that one
 * user does delays another. This room knows neither sessions nor leases nor files: its owner gets news by callbacks,
 * and embeds struct front_connection where a connection is another user's.
 *
 * Why nothing that one user does delays another:
 *   - the only descriptor of such a user that comes to the keeper is a new description of a local file, which a front
 *     opened
 *   - the keeper waits for no front: sockets to them are non-blocking, and what a front does not take is kept (away.c)
 *   - the keeper makes no last close of a connection that may have descriptors in it (graves.h)
 *   - each user has processes of its own, a bounded number, and those that hang count (hanging.h, AWAY_FRONTS_MAX)
 * What users share is FRONTS_ALL: a user without a front is refused while that many exist.
 *
 * May call: kernel/, wire/. Loop only.
 *
 *   reading.h   reads questions of connections
 *   away.h      keeps files that are not local, and probes them
 *   crew.h      how it is made inside
 */
#ifndef DFLOCK_KEEPER_FRONTS_H
#define DFLOCK_KEEPER_FRONTS_H

#include <sys/types.h>
#include <uv.h>

#include "keeper/fronts/connection.h"

struct front_answer;
struct fronts;
struct held;

/* What the owner is told. None of these may free the connection before the loop's next turn. */
struct fronts_news {
	/*
	 * A front has read a question (frontmsg.h). fd: of a local file, the receiver's from now on; or -1. If the
	 * front has a description (answer->away), it waits during this call for away_keep() or reading_hold(). before:
	 * answer->before_count record locks.
	 */
	void (*received)(struct front_connection *connection, const struct front_answer *answer,
			 const struct held *before, int fd);
	/* The front that has the question has not answered for `ms`, or has ended. The owner calls reading_leave(). */
	void (*slow)(struct front_connection *connection, int ms);
	/* The question was not read, and will not be. */
	void (*refused)(struct front_connection *connection, const char *why);
};

/* door: from door_start(); taken over. NULL: no memory. */
struct fronts *fronts_new(uv_loop_t *loop, int door, const struct fronts_news *news);
/* Ends all fronts that can be ended. No connection may exist any more. */
void fronts_free(struct fronts *fronts);
/* Gives the door a copy of the listening socket. 0 or -errno. */
int fronts_listen(struct fronts *fronts, int listen_fd);

/* For a process that ends at once. fd: a connection that may have unread descriptors in it. Gives the door a copy, so
 * that the last close is not the keeper's. 0 (the caller may close fd) or -errno. */
int fronts_abandon(struct fronts *fronts, int fd);
/* Closes a connection of this user, which may have unread descriptors in it. */
void fronts_bury(struct fronts *fronts, uid_t uid, int fd);

#endif
