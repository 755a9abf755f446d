/*
 * Which processes have a file mapped.
 *
 * To show the maps of a process, the kernel takes a lock of its memory, and waits for that without limit: a thread that
 * maps or unmaps something on a mount that does not answer has it. So errands (errand.h) read the maps. One errand goes
 * through the processes; if it makes no progress for a moment, it is left behind, and another one goes on with the next
 * process.
 *
 * Blocking, like holders.h: for a worker, or the keeper's parent.
 */
#ifndef DFLOCK_KEEPER_MAPPERS_H
#define DFLOCK_KEEPER_MAPPERS_H

#include <stddef.h>
#include <sys/types.h>

#include "keeper/kernel/claims.h"

/* file: its index in the search. A result other than 0 ends the search. */
typedef int mappers_cb(void *arg, size_t file, pid_t pid);

/*
 * Calls back for each process that may be looked into and has one of the files mapped. The same file may come more than
 * once for a process. A process whose memory a hanging thread has locked is skipped after a moment; *passed_over counts
 * these. 0; what cb returned; -errno; -EAGAIN: too many threads hang in such reads already (errand.h).
 */
int mappers_find(const struct holders_file *files, size_t count, mappers_cb *cb, void *arg, size_t *passed_over);

#endif
