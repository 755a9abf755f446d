/* Locks that were found uncovered: watched, confirmed, reported. See past.h. Loop only. */
#ifndef DFLOCK_KEEPER_PAST_SUSPECTS_H
#define DFLOCK_KEEPER_PAST_SUSPECTS_H

#include "keeper/kernel/openers.h"

struct keeper;

/* In the look that is judged nothing covers this lock, or (sure: false) that cannot be said. linked: as in struct suspect. */
void suspects_found(struct keeper *k, const struct openers_lock *lock, const char *name, const char *path,
		    const char *linked, bool sure);

/* The judgement is over: forgets the suspects that this look has not found, and begins to confirm others. Until that
 * is done, k->past.confirming is true; then confirmed() is called. */
void suspects_judged(struct keeper *k, void (*confirmed)(struct keeper *k));

void suspects_free(struct keeper *k);

#endif
