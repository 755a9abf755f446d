/*
 * Which processes of this host hold locks under the leases of a lock name? The one place that finds them by a name: for
 * who.h, and for all that acts on the holders of a name. Loop only.
 *
 * A worker looks through /proc (holders.h, unseen.h), for one name at a time, and for at most a third of the time of one
 * processor, however many ask. The processes may have ended, and others may have got the lock, when the answer is read.
 */
#ifndef DFLOCK_KEEPER_HOLDING_H
#define DFLOCK_KEEPER_HOLDING_H

#include <stddef.h>

#include "store/job.h"
#include "store/store.h"

struct keeper;

#define HOLDING_MAX   64 /* holdings in one answer */
#define HOLDING_QUEUE 64 /* names that wait to be looked for */

/* One lock of one process. */
struct holding {
	/* since: the earliest moment at which it can have got the lock: when the lease was granted, or when the process was
	 * started if that is later. pid 0: a process that the keeper may not look into. */
	struct store_job job;
	struct store_range range;
};

struct holding_list {
	struct holding items[HOLDING_MAX];
	size_t shown; /* of these */
	size_t count; /* that were found */
	int error;    /* 0; -errno: /proc could not be read; then there may be more */
};

/* `list` is valid during the call. */
typedef void holding_cb(void *arg, const struct holding_list *list);

/* cb is called once, later, from the loop; also while the keeper ends. -EAGAIN: too many names wait; -ENOMEM. Then it is
 * not called. */
int holding_find(struct keeper *k, const char *name, holding_cb *cb, void *arg);

/* k->holdings. start: 0 or -ENOMEM. stop: no search starts any more; those that wait are answered with -ECANCELED. free:
 * after the loop has ended. */
int holding_start(struct keeper *k);
void holding_stop(struct keeper *k);
void holding_free(struct keeper *k);

#endif
