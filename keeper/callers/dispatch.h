/*
 * What comes on a connection: reads questions, sees that a session asks one at a time, and gives each question to the
 * module that answers it. Loop only.
 */
#ifndef DFLOCK_KEEPER_DISPATCH_H
#define DFLOCK_KEEPER_DISPATCH_H

#include "keeper/callers/session.h"

struct fronts_news;

/* Something may be there to be read on the connection of a session that is not foreign. */
void dispatch_readable(struct session *s);
/* What fronts tell of foreign ones. */
extern const struct fronts_news dispatch_fronts_news;

/* Disconnects, whatever the session waits for. Nothing if it is closed already. */
void dispatch_close(struct session *s);

#endif
