/* Status as JSON, for `dflock status`: this host's leases with who holds and waits, and the whole store. Loop only. */
#ifndef DFLOCK_KEEPER_STATUS_H
#define DFLOCK_KEEPER_STATUS_H

struct session;

/* Answers the session with WIRE_OK and a memfd, or a refusal. Takes a search of /proc (a worker) and some store
 * commands. */
void status_start(struct session *s);

#endif
