/* Hosts that ask whether a lease is in use, and do not wait: this tells them so, and which lock is in their way. Loop
 * only. */
#ifndef DFLOCK_KEEPER_ASKERS_H
#define DFLOCK_KEEPER_ASKERS_H

#include "keeper/leases/locks.h"

/* Notes an asker for askers_tell(). If there are too many, or no memory, leaves it out: the asker's own limit ends its question. */
void askers_add(struct lease *lease, const struct asker *asker);
/* The lease is in use: tells the askers what is in their way, and sessions of `dflock stop` (queue_tell_in_use()). */
void askers_tell(struct lease *lease);
/* All, or those that asked for a shared lease, since there is one now: the store has granted theirs. */
void askers_forget(struct lease *lease);
void askers_forget_shared(struct lease *lease);

#endif
