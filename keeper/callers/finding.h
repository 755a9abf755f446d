/*
 * Which processes of this host hold locks under the leases of a lock name? The one place that finds them by a name: for
 * who.h, and for all that acts on the holders of a name. Loop only.
 *
 * All names that wait share a search (survey.h).
 */
#ifndef DFLOCK_KEEPER_FINDING_H
#define DFLOCK_KEEPER_FINDING_H

#include <stddef.h>

#include "store/store.h"

struct keeper;

#define FINDING_MAX   64 /* findings in one answer */
#define FINDING_QUEUE 64 /* that wait for a search to begin */

/* One lock of one process; or, where no process holds any, a call under way that keeps the lock (seeing_next_keeping()). */
struct finding {
	/* since: the earliest moment at which it can have got the lock: when the lease was granted, or when the process was
	 * started if that is later. pid 0: a process that the keeper may not look into. */
	struct store_job job;
	struct store_range range;
};

struct finding_list {
	struct finding items[FINDING_MAX];
	size_t shown; /* of these */
	size_t count; /* that were found */
	int error;    /* 0; -errno: /proc could not be read; then there may be more */
};

/* `list` is valid during the call. */
typedef void finding_cb(void *arg, const struct finding_list *list);

/* cb is called once, later, from the loop; also while the keeper ends. -EAGAIN: too many wait; -ENOMEM, also after survey_stop(). Then it is
 * not called. */
int finding_find(struct keeper *k, const char *name, finding_cb *cb, void *arg);

#endif
