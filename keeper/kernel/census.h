/*
 * Which processes rely on which kernel locks: the locks that descriptors show (holders.h), and those that no descriptor
 * shows. These are held by processes which the caller may not look into: a program that may be run but not read (mode
 * 0111) or that asked for it (PR_SET_DUMPABLE), and for an ordinary user's keeper another user's process that has
 * inherited the descriptor (sudo, su). Or their open file description outlives its descriptors in a mapping, in a message
 * on its way through a socket, as a registered file of an io_uring, or under a loop device.
 *
 * What is known of a lock that no descriptor shows: /proc/locks has it, and who took it, unless it is an OFD lock.
 *   - HOLDER_TAKER: the process that took it, if it runs. This may be wrong: the holder may have passed the lock on and
 *     ended, and another process may have its number by now. The kernel does not say when a lock was taken, so that other
 *     process is stopped, and killed, in the holder's place.
 *   - HOLDER_MAPPER: each process that has the file mapped (mappers.c), unless it is a record lock of the process that
 *     took it, or the taker may not be looked into.
 *   - HOLDER_NOBODY: there is neither. A process may have inherited a flock from one that has ended, or taken an OFD lock,
 *     and cannot be stopped. So it is with a taker whose sight is SIGHT_BEYOND.
 *
 * What it cannot see in a pid namespace: locks that were taken by a process outside of it, or by a process that has
 * ended since.
 */
#ifndef DFLOCK_KEEPER_CENSUS_H
#define DFLOCK_KEEPER_CENSUS_H

#include <stddef.h>
#include <sys/types.h>

#include "keeper/kernel/claims.h"
#include "keeper/kernel/holders.h"

/*
 * holders_search() for the files of the claims, which were built; then calls back for each lock under a claim that no
 * descriptor has shown (a claim on a file by_number asks for no such locks). Those that descriptors show come whether they
 * are under a claim or not. ask->files, count and seen are set here. With HOLDERS_AT_ONCE, HOLDER_SHOWN may come twice for a lock. A caller that stops processes does it when
 * they come: the list of all locks is read after that.
 *
 * Blocking, like holders.h. 0; what the callback returned; -ENOMEM or -errno.
 */
int census_take(const struct claims *claims, struct holders_search *ask);

/*
 * --- mappers.c: which processes have a file mapped ---
 *
 * To show the maps of a process, the kernel takes a lock of its memory, and waits for that without limit: a thread that
 * maps or unmaps something on a mount that does not answer has it. So errands (errand.h) read the maps. One errand goes
 * through the processes; if it makes no progress for a moment, it is left behind, and another one goes on with the next
 * process.
 *
 * Blocking, like holders.h: for a worker, or the keeper's parent.
 */

/* file: its index in the search. A result other than 0 ends the search. */
typedef int mappers_cb(void *arg, size_t file, pid_t pid);

/*
 * Calls back for each process that may be looked into and has one of the files mapped. The same file may come more than
 * once for a process. A process whose memory a hanging thread has locked is skipped after a moment; *passed_over counts
 * these. 0; what cb returned; -errno; -EAGAIN: too many threads hang in such reads already (errand.h).
 */
int mappers_find(const struct holders_file *files, size_t count, mappers_cb *cb, void *arg, size_t *passed_over);

#endif
