/* Hosts that ask whether a lease is in use, and do not wait: they are told so, and which lock is in their way. Loop only. */
#ifndef DFLOCK_KEEPER_ASKERS_H
#define DFLOCK_KEEPER_ASKERS_H

#include "keeper/leases/locks.h"

/* It is to be told (askers_tell()). When there are too many, its own limit ends its question. */
void askers_add(struct lease *lease, const struct asker *asker);
/* The lease is in use: tells those that asked what is in their way, and the callers of `dflock stop` (queue_tell_in_use()). */
void askers_tell(struct lease *lease);
void askers_forget(struct lease *lease);

#endif
