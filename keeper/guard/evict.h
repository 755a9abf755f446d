/*
 * on_lost = "kill": the holders of such locks are asked to end (SIGTERM) when the margin before the deadline begins,
 * and killed (SIGKILL) when half of the margin is over, that is before the leases end. A process that was asked to end
 * must not be stopped, since it could not obey.
 *
 * Parent only. Each step is a search of /proc (relying.h), and at most LASTWORDS_MS for lines on standard errors.
 */
#ifndef DFLOCK_KEEPER_EVICT_H
#define DFLOCK_KEEPER_EVICT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper/guard/relying.h"
#include "keeper/kernel/family.h"

struct evict {
	struct relying *relying; /* not owned */
	bool asked;              /* SIGTERM was sent ... */
	bool killed;             /* ... and SIGKILL */
	struct family targets;   /* to these processes */
};

/* Begin with {.relying = ...}. */

/* To be called when the margin begins, and at each later look: asks the holders to end, or kills them, once each. */
void evict_holders(struct evict *evict, int64_t now_ns);
/* Were holders asked to end, and is there still time for them to do so? */
bool evict_is_under_way(const struct evict *evict);
/* Was this process, or one of its ancestors, asked to end? False when all have got SIGKILL. */
bool evict_has_asked(const struct evict *evict, pid_t pid);
/* From now on evict_has_asked() is false, so processes that were asked may be stopped. */
void evict_let_stop(struct evict *evict);
/* The leases are sure again. */
void evict_forget(struct evict *evict);

/* Sends a signal to each process of the family, but not to the caller itself. */
void evict_signal(const struct family *family, int number);

#endif
