/*
 * What a caller holds of a file in the record space. The keeper needs it to tell newcomers, and the caller needs it to
 * undo a call that took a kernel lock without getting a lease.
 *
 * POSIX locks belong to the process: so every descriptor of the process that refers to the file is read (the kernel
 * shows a lock only with the descriptor by which it was taken). OFD locks belong to the description that was passed.
 *
 * Reads /proc only; no file server is asked. Any thread.
 */
#ifndef DFLOCK_KEEPER_BEFORE_H
#define DFLOCK_KEEPER_BEFORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "keeper/array.h"
#include "keeper/kernel/workers.h"
#include "wire/msg.h"

#define BEFORE_MAX 4096

struct held {
	int64_t from, to; /* half open */
	enum wire_mode mode;
};

struct before {
	UT_array locks; /* struct held, ascending, not overlapping; {0}: none */
};

/*
 * Fills *before; free it with before_free() whatever is returned. fd: the passed descriptor; pid: the process that
 * passed it. 0; -EACCES: the process may not be looked into; -E2BIG: it holds more than BEFORE_MAX ranges; -errno.
 */
int before_read(struct before *before, int fd, pid_t pid, enum wire_owner owner, const struct stat *st);
void before_free(struct before *before);
/* Fills *before with what another process has read (front.h). 0 or -ENOMEM; free it in any case. */
int before_copy(struct before *before, const struct held *held, size_t count);

size_t before_count(const struct before *before);
/* The locks as one C array; may be NULL if there are none. */
const struct held *before_locks(const struct before *before);

/* The first lock that ends after `from`; NULL: none. */
const struct held *before_after(const struct before *before, int64_t from);

/*
 * Reads what a caller's process holds (before.h) without delaying other callers: a process may have any number of
 * descriptors, and all of them must be read. The loop reads a few, which costs less than a worker; a worker reads many.
 * Each user has at most WORKERS_PER_DEVICE such workers at a time. Loop only.
 */
#define BEFORE_FEW 100 /* descriptors, and threads */

/* Does the process have few descriptors and threads? True also if it may not be looked into: before_read() says so at
 * once. */
bool before_are_few(pid_t pid);

/* ret: before_read()'s; *before is the receiver's. */
typedef void before_cb(void *arg, int ret, struct before *before);

/* Reads in a worker which POSIX locks on the file the peer's process holds. The loop calls cb once, never from inside
 * this call. 0 or -ENOMEM. */
int before_start(struct workers *workers, const struct ucred *peer, const struct stat *st, before_cb *cb, void *arg);

#endif
