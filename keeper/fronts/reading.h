/*
 * Questions of other users' programs: which front reads which connection. Loop only.
 *
 * The owner of a connection embeds struct front_connection, calls reading_receive() when the connection has something
 * to read, and gets the question through fronts_news (fronts.h). A front is asked one question at a time; connections
 * for which no front is free wait in their user's queue. They are refused after READING_QUEUE_MS, or at once if all of
 * the user's fronts hang; no other user notices. A front that reads questions refuses files of devices that others of
 * this user hang on: a mount that does not answer delays the user's other files by some seconds, once, unless even
 * closing its descriptors hangs.
 */
#ifndef DFLOCK_KEEPER_READING_H
#define DFLOCK_KEEPER_READING_H

#include "keeper/fronts/connection.h"

struct front;
struct front_answer;
struct front_user;
struct held;

#define READING_QUEUE_MS 9000 /* an unread question; longer than it takes to know which devices hang */

/* The connection may have something to read. Afterwards received(), refused() or slow() of fronts_news is called; only
 * refused() may be called from inside this call. */
void reading_receive(struct front_connection *connection);
/* The owner ends, or has refused: later messages of a front about this connection are dropped. */
void reading_leave(struct front_connection *connection);

/*
 * A front that has a description for this connection (front_answer's `away`) closes it after received(), unless
 * away_keep() was called in it; or reading_hold(): then it waits until away_keep() or reading_release().
 */
void reading_hold(struct front_connection *connection);
/* The front's description is not needed: tells the front to close it. Does nothing after away_keep(), or if there is
 * none. */
void reading_release(struct front_connection *connection);

/* --- for this room --- */

/* Gives work to the user's idle fronts. */
void reading_serve(struct front_user *user);
/* Refuses the questions that no front has read for READING_QUEUE_MS. */
void reading_refuse_old(struct front_user *user);
/* Looks at a busy front: notes whether it hangs; calls slow() for a connection whose question it has had for too
 * long. */
void reading_look(struct front *front);
/* FRONT_QUESTION, FRONT_LOOKING, FRONT_READING and FRONT_READY. fd: taken over. */
void reading_said(struct front *front, const struct front_answer *answer, const struct held *before, int fd);
/* The connection's front has become free: if something more came meanwhile, it is read next. */
void reading_again(struct front_connection *connection);

#endif
