/* Status as JSON, for `dflock status`: this host's leases, the processes that hold them or wait for them, and the
 * whole store (docs/state.md). Loop only. */
#ifndef DFLOCK_KEEPER_STATUS_H
#define DFLOCK_KEEPER_STATUS_H

struct session;

/* Answers the session with WIRE_OK and a memfd, or a refusal. Takes a search of /proc (a worker) and some store
 * commands. */
void status_start(struct session *s);

#endif
