/*
 * Fronts: processes that touch the descriptors of other users in the keeper's place (front.c), so that nothing that one
 * user does delays another. This room knows neither sessions nor leases nor files: its owner gets news by callbacks,
 * and embeds struct front_connection where a connection is another user's.
 *
 * Why nothing that one user does delays another:
 *   - the only descriptor of such a user that comes to the keeper is a new description of a local file, which a front
 *     opened
 *   - the keeper waits for no front: sockets to them are non-blocking, and what a front does not take is kept (away.c)
 *   - the keeper makes no last close of a connection that may have descriptors in it (crew.h)
 *   - each user has processes of its own, a bounded number, and those that hang count (crew.h, AWAY_FRONTS_MAX)
 * What users share is FRONTS_ALL: a user without a front is refused while that many exist.
 *
 * May call: kernel/, wire/. Loop only.
 *
 *   away.h      keeps files that are not local, and probes them
 *   crew.h      how it is made inside
 */
#ifndef DFLOCK_KEEPER_FRONTS_H
#define DFLOCK_KEEPER_FRONTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct front;
struct front_answer;
struct fronts;
struct own_lock;

/* A connection of another user's program. The session, which owns the connection, embeds this struct for this room. */
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

/* What the owner is told. None of these may free the connection before the loop's next turn. */
struct fronts_news {
	/*
	 * A front has read a question (frontmsg.h). fd: of a local file, the receiver's from now on; or -1. If the
	 * front has a description (answer->away), it waits during this call for away_keep() or fronts_hold(). before:
	 * answer->before_count record locks.
	 */
	void (*received)(struct front_connection *connection, const struct front_answer *answer,
			 const struct own_lock *before, int fd);
	/* The front that has the question has not answered for `ms`, or has ended. The owner calls fronts_leave(). */
	void (*slow)(struct front_connection *connection, int ms);
	/* The question was not read, and will not be. */
	void (*refused)(struct front_connection *connection, const char *why);
};

/* door: from door_start(); taken over. NULL: no memory. */
struct fronts *fronts_new(uv_loop_t *loop, int door, const struct fronts_news *news);
/* Ends all fronts that can be ended. No connection may exist any more. */
void fronts_free(struct fronts *fronts);
/* Gives the door a copy of the listening socket, or, in a process that ends at once, of a connection that may have unread
 * descriptors in it: so the last close is not the keeper's. 0 (the caller may close fd) or -errno. */
int fronts_leave_open(struct fronts *fronts, int fd);
/* Closes a connection of this user, which may have unread descriptors in it. */
void fronts_bury(struct fronts *fronts, uid_t uid, int fd);

/*
 * Questions of other users' programs: which front reads which connection.
 *
 * The owner of a connection embeds struct front_connection, calls fronts_receive() when the connection has something
 * to read, and gets the question through fronts_news. A front is asked one question at a time; connections
 * for which no front is free wait in their user's queue. They are refused after FRONTS_QUEUE_MS, or at once if all of
 * the user's fronts hang; no other user notices. A front that reads questions refuses files of devices that others of
 * this user hang on: a mount that does not answer delays the user's other files by some seconds, once, unless even
 * closing its descriptors hangs.
 */

#define FRONTS_QUEUE_MS 9000 /* an unread question; longer than it takes to know which devices hang */

/* The connection may have something to read. Afterwards received(), refused() or slow() of fronts_news is called; only
 * refused() may be called from inside this call. */
void fronts_receive(struct front_connection *connection);
/* The owner ends, or has refused: later messages of a front about this connection are dropped. */
void fronts_leave(struct front_connection *connection);

/*
 * A front that has a description for this connection (front_answer's `away`) closes it after received(), unless
 * away_keep() was called in it; or fronts_hold(): then it waits until away_keep() or fronts_release().
 */
void fronts_hold(struct front_connection *connection);
/* The front's description is not needed: tells the front to close it. Does nothing after away_keep(), or if there is
 * none. */
void fronts_release(struct front_connection *connection);

#endif
