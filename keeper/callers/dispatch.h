/*
 * What comes on a connection: reads questions, sees that a session asks one at a time, and gives each question to the
 * module that answers it. Loop only.
 */
#ifndef DFLOCK_KEEPER_DISPATCH_H
#define DFLOCK_KEEPER_DISPATCH_H

#include "keeper/callers/session.h"

struct front_answer;

/* Something may be there to be read on the connection of a session that is not foreign. */
void dispatch_readable(struct session *s);
/* What a front has read on a foreign one (fronts.h); fd: a file of a local file system, or -1. */
void dispatch_received(struct session *s, const struct front_answer *answer, const struct held *before, int fd);

/* Disconnects, whatever the session waits for. Nothing if it is closed already. */
void dispatch_close(struct session *s);

#endif
