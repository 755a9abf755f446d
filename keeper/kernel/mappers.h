/*
 * Which processes have a file mapped.
 *
 * The kernel locks the memory of a process to show its maps, and waits for that lock for as long as it takes: a thread that
 * maps or unmaps something on a mount that does not answer has it. So the maps are read in errands (errand.h). One goes
 * through the processes until it is done; if it does not get on for a moment, it is left behind, and another one goes on
 * with the next process.
 *
 * Blocking, like holders.h: for a worker, or the keeper's parent.
 */
#ifndef DFLOCK_KEEPER_MAPPERS_H
#define DFLOCK_KEEPER_MAPPERS_H

#include <stddef.h>
#include <sys/types.h>

#include "keeper/kernel/file_index.h"

/* file: the index of one of those that were asked about. Anything but 0 ends the search. */
typedef int mappers_cb(void *arg, size_t file, pid_t pid);

/*
 * Calls back for each process that has one of the files mapped, of those that may be looked into. A file may come more than
 * once for a process. A process whose memory is locked by a thread that hangs is passed over after a moment; *passed_over
 * counts them. 0; what cb returned; -errno; -EAGAIN if too many threads hang in that already (errand.h).
 */
int mappers_find(const struct holders_file *files, size_t count, mappers_cb *cb, void *arg, size_t *passed_over);

#endif
