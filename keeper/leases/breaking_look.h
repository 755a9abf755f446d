/* Which processes hold the lock of a lease that is to be taken away, and may they be ended? In a worker. */
#ifndef DFLOCK_KEEPER_BREAKING_LOOK_H
#define DFLOCK_KEEPER_BREAKING_LOOK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct keeper;
struct lease;

struct breaking_found {
	bool unstoppable; /* a holder, or a process that a holder started, cannot be ended by this keeper */
	bool not_yours; /* ... is of another user; or there is no holder, and the asker is neither root nor the keeper's user */
	pid_t pid; /* such a process; 0: not known */
	int error; /* -errno: the search failed */
};

typedef void breaking_look_cb(struct keeper *k, uint64_t number, const struct breaking_found *found);

/* Looks, and calls cb from the loop; `number` is the caller's. 0, or -errno: nothing was started. */
int breaking_look_start(struct lease *lease, uint64_t number, uid_t uid, breaking_look_cb *cb);

#endif
