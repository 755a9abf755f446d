/*
 * Reads the questions that come on a connection, makes sure that a session asks one at a time, and gives each question
 * to the module that answers it. Loop only.
 */
#ifndef DFLOCK_KEEPER_DISPATCH_H
#define DFLOCK_KEEPER_DISPATCH_H

#include "keeper/callers/session.h"

struct fronts_news;
struct keeper;

/* The connection of a session that is not foreign may have something to read. The caller settles (queue.h). */
void dispatch_readable(struct session *s);
/* What fronts tell of foreign sessions. */
extern const struct fronts_news dispatch_fronts_news;

/* Disconnects, whatever the session waits for; later, if another user's program has not read a descriptor so far. Does nothing if it is
 * closed already. The caller settles. */
void dispatch_close(struct session *s);

/* Says which function here takes which news from leases/ (queue.h): to be called before there is any news. */
void dispatch_take_news(struct keeper *k);

#endif
