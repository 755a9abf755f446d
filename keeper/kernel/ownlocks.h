/*
 * What a caller holds of a file in the record space. The keeper needs it to tell newcomers, and the caller needs it to
 * undo a call that took a kernel lock without getting a lease.
 *
 * POSIX locks belong to the process: so every descriptor of the process that refers to the file is read (the kernel
 * shows a lock only with the descriptor by which it was taken). OFD locks belong to the description that was passed.
 *
 * Reads /proc only; no file server is asked, but where the kernel's number does not tell files apart (holders.h). Any thread.
 */
#ifndef DFLOCK_KEEPER_OWNLOCKS_H
#define DFLOCK_KEEPER_OWNLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "keeper/array.h"
#include "keeper/kernel/claims.h"
#include "keeper/kernel/workers.h"
#include "wire/msg.h"

#define OWN_LOCKS_MAX 4096

struct own_lock {
	int64_t from, to; /* half open */
	enum wire_mode mode;
};

struct own_locks {
	UT_array locks; /* struct own_lock, ascending, not overlapping; {0}: none */
};

/*
 * Fill *before; free it with own_free() whatever is returned. fd: the passed descriptor; pid: the process that
 * passed it; file: with the kernel's number, which is all that lock lines show. 0; -EACCES: the process may not be looked into;
 * -E2BIG: it holds more than OWN_LOCKS_MAX ranges; -errno.
 */
int own_of_description(struct own_locks *before, int fd);
int own_of_process(struct own_locks *before, pid_t pid, const struct holders_file *file);
void own_free(struct own_locks *before);
/* Fills *before with what another process has read (front.c). 0 or -ENOMEM; free it in any case. */
int own_copy(struct own_locks *before, const struct own_lock *held, size_t count);

size_t own_count(const struct own_locks *before);
/* The locks as one C array; may be NULL if there are none. */
const struct own_lock *own_locks_all(const struct own_locks *before);

/* The first lock that ends after `from`; NULL: none. */
const struct own_lock *own_after(const struct own_locks *before, int64_t from);

/*
 * Reads what a caller's process holds (ownlocks.h) without delaying other callers: a process may have any number of
 * descriptors, and all of them must be read. The loop reads a few (own_is_quick()), which costs less than a worker; a worker reads many.
 * Each user has at most WORKERS_PER_DEVICE such workers at a time. Loop only.
 */
bool own_is_quick(pid_t pid, const struct holders_file *file);

/* ret: own_of_process()'s; *before is the receiver's. */
typedef void own_cb(void *arg, int ret, struct own_locks *before);

/* Reads in a worker which POSIX locks on the file the peer's process holds. The loop calls cb once, never from inside
 * this call. 0 or -ENOMEM. */
int own_start(struct workers *workers, const struct ucred *peer, const struct holders_file *file, own_cb *cb,
	      void *arg);

#endif
