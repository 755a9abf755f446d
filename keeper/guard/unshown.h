/*
 * The second half of a look: holders whose lock no descriptor shows (hidden.h). Their open file description lives on in
 * a mapping, in a message on its way through a socket, in an io_uring or a loop device; or the keeper may not look into the
 * process.
 *
 * Which processes count as the holders of such a lock:
 *   the process that took the lock, by the kernel's list, if it runs; and, unless it is a record lock of that process,
 *   or the keeper may not look into it, each process that has the file mapped
 * If there is none, or if it cannot be signalled, the holder cannot be stopped: the log says so, once for each outage,
 * and the slot is marked for `dflock status`.
 *
 * Parent only. It takes longer than look_search(), since it may ask the kernel for all locks of the machine: call it
 * when all other holders are stopped.
 */
#ifndef DFLOCK_KEEPER_UNSHOWN_H
#define DFLOCK_KEEPER_UNSHOWN_H

#include "keeper/guard/table.h"
#include "keeper/guard/look.h"

/* Searches as look_search() does, and for these, too. 0 or -errno. */
int unshown_search(struct look *look);
/* The leases are sure again: takes the marks off all slots. */
void unshown_forget(struct table *table);

#endif
