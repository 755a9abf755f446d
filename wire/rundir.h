/*
 * The runtime directory: where the programs of one user and that user's keeper find each other. It holds the keeper's
 * socket, page and table of leases (dflockd(8), FILES). rundir.c has the rule, and why all processes of a user agree.
 *
 * libc only, no allocation, at most 5 kB of stack; usable in signal handlers; errno may change. `uid` is the caller's
 * effective one, as geteuid() gives it, or RUNDIR_MY_UID. `why` gets one line that says what is wrong and what to do.
 */
#ifndef DFLOCK_WIRE_RUNDIR_H
#define DFLOCK_WIRE_RUNDIR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "wire/place.h"

/* The caller's effective user, looked up only where it counts: not in a directory of root's. The number of no user. */
#define RUNDIR_MY_UID ((uid_t)-1)
/* The number that is meant. */
uid_t rundir_uid(uid_t uid);

/* The system keeper's directory. */
#define RUNDIR_SYSTEM "/run/dflock"

/* In a runtime directory: the keeper and its parent have this file's lock, as flock() takes it. */
#define RUNDIR_LOCK_NAME "keeper.lock"

/* In a runtime directory: files that stand for locks without a file (`dflock lock`), named as they are. */
#define NAMES_DIR "names"

/*
 * Finds the runtime directory of `uid`, and changes nothing:
 *   DFLOCK_RUNTIME_DIR, whether it exists and is usable or not (rundir_open() says that); else
 *   /run/dflock, if it has a keeper.sock: the system keeper's; else
 *   /run/dflock/UID, if it exists and belongs to the user; else
 *   /dev/shm/dflock-UID, or a sibling of it (rundir.c).
 * 0 with its path in `dir`. -ENOENT with "" in `dir`: none exists; the next keeper makes one. Else -errno.
 */
int rundir_find(const struct place *place, uid_t uid, char dir[PLACE_DIR_BYTES], char *why, size_t why_size);

/* The same for a keeper: makes one (mode 0700, less the umask) if there is none; but a DFLOCK_RUNTIME_DIR is left to
 * rundir_open(). 0 or -errno, never -ENOENT. */
int rundir_make(const struct place *place, uid_t uid, char dir[PLACE_DIR_BYTES], char *why, size_t why_size);

/*
 * Opens a runtime directory (O_PATH | O_CLOEXEC, links not followed) and checks it: its owner must count (rundir_owner_counts()), it must
 * not be writable by others, and be on a tmpfs or ramfs. With `create`, makes it (mode 0700, less the umask) if it is
 * missing. Returns the descriptor, which the caller closes, or -errno. -ENOENT: it does not exist (no keeper has run
 * since boot).
 */
int rundir_open(const char *dir, uid_t uid, bool create, char *why, size_t why_size);

/*
 * May `uid` go by what this owner has in the runtime directory `dir`? The owner must be root or `uid`. In a user namespace root
 * outside has no number, and looks like all users without one. In /run/dflock such an owner counts as well: only root makes that
 * directory, or in a mount namespace of its own the one who made that, and so decides what everything in it is.
 */
bool rundir_owner_counts(const char *dir, uid_t owner, uid_t uid);

/* Does the first name below /dev/shm belong to something that is not ours? If so, `why` says to what: for `dflock
 * doctor`. */
bool rundir_is_taken(uid_t uid, char *why, size_t why_size);

#endif
