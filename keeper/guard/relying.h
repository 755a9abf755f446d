/*
 * The processes that rely on locks under leases: those that hold them (look.h), and all that these started.
 *
 * It remembers the first: the processes that held locks, or had a call under way, when the leases ceased to be sure. It searches
 * for them before anything is done to any process, and forgets them when the leases are sure again, or another deadline has come.
 *
 * Parent only. Errors are logged once. A search that fails keeps what it found: it is repeated anyway.
 */
#ifndef DFLOCK_KEEPER_RELYING_H
#define DFLOCK_KEEPER_RELYING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper/guard/table.h"
#include "keeper/guard/look.h"
#include "keeper/kernel/family.h"

struct relying {
	struct table *table; /* not owned */
	pid_t keeper;        /* neither this process nor what it started relies on anything */
	struct family first;
	bool first_known;
	int64_t first_freeze_at; /* the table's freeze_at when they were searched for */
	bool blind;              /* the last search failed, and the log says so */
};

/* Begin with {.table = ...}. */

/*
 * Adds to `family` the processes that have a descriptor with a lock under such slots (slots.h), and all that they
 * started. found: is told each holder at once (not what it started); or NULL.
 */
void relying_find(struct relying *relying, struct family *family, unsigned which, const struct look_found *found);
/* The same, and the holders that no descriptor shows. Slower: to be called when all others are stopped. */
void relying_find_unshown(struct relying *relying, struct family *family, unsigned which,
			  const struct look_found *found);
/*
 * The same of the calls under way (underway.h): the processes whose threads may take such a lock at any moment, or have taken it.
 * Most of them do not have it.
 */
void relying_find_calls(struct relying *relying, struct family *family, unsigned which, const struct look_found *found);
/*
 * Finds the first, if it is time to. due: freeze_at has come, and there are leases. True: this call found them, and
 * called `found` (unless NULL) for each.
 */
bool relying_find_first(struct relying *relying, bool due, int64_t freeze_at_ns, const struct look_found *found);

#endif
