/*
 * Questions of other users' programs: which front reads which connection. Loop only.
 *
 * The owner of a connection embeds struct front_connection, tells reading_receive() when the connection has something
 * to read, and gets the question by fronts_news (fronts.h). A front is asked one question at a time; connections that
 * no front is free for wait in their user's queue. A user whose file systems hang waits there, and is refused after
 * READING_QUEUE_MS, or at once if all of its fronts hang; no other user notices. A front that reads questions refuses
 * files of devices that others of this user hang on: a mount that does not answer delays the user's other files by some
 * seconds, once, unless even closing its descriptors hangs.
 */
#ifndef DFLOCK_KEEPER_READING_H
#define DFLOCK_KEEPER_READING_H

#include "keeper/fronts/connection.h"

struct front;
struct front_answer;
struct front_user;
struct held;

#define READING_QUEUE_MS 9000 /* nobody reads it: longer than it takes to know which devices hang */

/* Something may be there to be read: fronts_news.received() comes, never from inside the call; or refused() or slow(),
 * refused() also from inside. */
void reading_receive(struct front_connection *connection);
/* The owner ends, or has refused: what a front says later about this connection is dropped. */
void reading_leave(struct front_connection *connection);

/*
 * A front that has a description for this connection (front_answer's `away`) closes it after received(), unless
 * away_keep() was called in it; or reading_hold(): then it waits until away_keep() or reading_release().
 */
void reading_hold(struct front_connection *connection);
/* What a front holds is not to be kept: it closes that. Nothing if away_keep() has come, or it holds none. */
void reading_release(struct front_connection *connection);

/* --- for this room --- */

/* Gives the user's idle fronts what there is to do. */
void reading_serve(struct front_user *user);
/* Refuses the questions that no front has read for READING_QUEUE_MS. */
void reading_refuse_old(struct front_user *user);
/* A front is busy: notes whether it hangs; slow() for the connection whose question it has had for too long. */
void reading_look(struct front *front);
/* FRONT_QUESTION, FRONT_LOOKING, FRONT_READING and FRONT_READY. fd: taken over. */
void reading_said(struct front *front, const struct front_answer *answer, const struct held *before, int fd);
/* If something more came for it, it is read next; for when its front has become free. */
void reading_again(struct front_connection *connection);

#endif
