/* Status as JSON, for `dflock status`: this host's leases, the processes that hold them or wait for them, and the
 * whole store. Loop only. */
#ifndef DFLOCK_KEEPER_STATUS_H
#define DFLOCK_KEEPER_STATUS_H

#include <jansson.h>

struct session;

/* Answers the session with WIRE_OK and a memfd, or a refusal. Takes a search of /proc (a worker) and some store
 * commands. */
void status_start(struct session *s);

/* status_text.c: a memfd with this text, for session_reply(); the caller closes it. -1 with errno. Any thread. */
int status_to_memfd(const json_t *doc);

#endif
