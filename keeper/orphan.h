/*
 * A keeper whose parent was killed: nobody would stop the holders of leases that it cannot renew. It therefore makes
 * room for a new parent and a new keeper, which take up its leases as after any other death. Loop only.
 *
 * Whom the old parent had stopped by ptrace has died with it (EXITKILL); whom it had stopped by SIGSTOP, the new one
 * takes up.
 */
#ifndef DFLOCK_KEEPER_ORPHAN_H
#define DFLOCK_KEEPER_ORPHAN_H

#include <stdbool.h>

struct keeper;

/* From now on sees to it that there is a parent; sets k->orphan. 0 or -errno. */
int orphan_watch(struct keeper *k);
/* Closes its handles; orphan_free() when the loop has run. */
void orphan_close(struct keeper *k);
void orphan_free(struct keeper *k);

#endif
