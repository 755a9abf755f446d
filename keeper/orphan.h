/*
 * A keeper whose parent was killed: no process would stop the holders of leases that it cannot renew. So it makes room
 * for a new parent and a new keeper, which take up its leases as after any other death. Loop only.
 *
 * Processes that the old parent had stopped by ptrace died with it (EXITKILL). Those that it had stopped by SIGSTOP,
 * the new parent takes up.
 */
#ifndef DFLOCK_KEEPER_ORPHAN_H
#define DFLOCK_KEEPER_ORPHAN_H

#include <stdbool.h>

struct keeper;

/* From now on makes sure that there is a parent; sets k->orphan. 0 or -errno. */
int orphan_watch(struct keeper *k);
/* Closes its handles; orphan_free() when the loop has run. */
void orphan_close(struct keeper *k);
void orphan_free(struct keeper *k);

#endif
