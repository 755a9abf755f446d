/*
 * The processes that rely on locks under leases: those that hold them and count, and all that these started.
 *
 * Which holders count: all processes that hold a lock that overlaps a lease's range, but for those that rely on
 * nothing. A process relies on nothing if
 *   - it is not one of the first: the processes that held locks when the leases ceased to be sure, and those that they
 *     started; and
 *   - it is in a lock call that the keeper has not answered (table_has_caller()).
 * Such a process got the kernel lock only because the holder ended, and has not been told that it holds the lock. Every
 * process that relies on the lock is one of the first, or inherited the lock from one of these and asked no question.
 *
 * Init of the machine (process 1, unless in a container, where it may be the job) is no holder: it takes no locks by way of dflock, a user
 * may send it one through a socket, and it has started all others.
 *
 * A lock that no descriptor shows (census.h) counts for each process that may have it, whatever that waits for. If no process is
 * known to have it, or if that cannot be signalled, the holder cannot be stopped: the log says so, once for each outage, and
 * the slot is marked for `dflock status`.
 *
 * It remembers the first: the processes that held locks, or had a call under way, when the leases ceased to be sure. It searches
 * for them before anything is done to any process, and forgets them when the leases are sure again, or another deadline has come. All
 * of this is so for each store by itself: a process may be one of the first for one store, and rely on nothing in another.
 *
 * Parent only. Errors are logged once. A search that fails keeps what it found: it is repeated anyway.
 */
#ifndef DFLOCK_KEEPER_RELYING_H
#define DFLOCK_KEEPER_RELYING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper/guard/table.h"
#include "keeper/kernel/claims.h"
#include "keeper/kernel/family.h"
#include "keeper/kernel/holders.h"

/* Called for each process at the moment it is found. stores: SLOTS_OF() of those under whose leases. Again when there are more of them. */
struct look_found {
	void (*cb)(void *arg, pid_t pid, uint64_t stores);
	void *arg;
};

/* One look for the processes that hold locks under some slots. */
struct look {
	/* Set by the caller, and not owned: */
	struct table *table;
	pid_t keeper;                   /* never counts */
	const struct family *first;     /* marks: for which stores; NULL: not known */
	uint64_t first_of;              /* of other stores than these it is not known; then all holders count */
	const struct look_found *found; /* NULL: nothing is done at once */
	struct family *family;          /* processes that count are added here; marks: SLOTS_OF() */
	struct claims claims;           /* slots_claims() */
	pid_t last;                     /* the process that was found last */
	bool *beyond;                   /* of each claim: a lock on it has a holder that cannot be stopped */
	uint64_t due;     /* it ends when the leases in all of these stores are sure again; 0: it does not, ... */
	int64_t until_ns; /* ... or then: relying->until_ns */
	int64_t kin_ns;   /* when to add again what the processes have started */
};

struct relying {
	struct table *table;                    /* not owned */
	pid_t keeper;                           /* neither this process nor what it started relies on anything */
	struct family first;                    /* marks: SLOTS_OF() */
	uint64_t first_of;                      /* SLOTS_OF() of the stores for which they are known */
	int64_t first_freeze_at[TABLE_MEMBERS]; /* that store's freeze_at when they were searched for */
	/* Set by freezer.c: for which stores a freeze is due. A search for its holders ends when the leases are sure again, and, unless it is
	 * 0, at until_ns: then without those that only the last of very many descriptors would show. It is repeated. */
	uint64_t due;
	int64_t until_ns;
	bool blind; /* the last search failed or was ended early, and the log says so if it failed */
};

/* Begin with {.table = ...}. */

enum relying_how {
	RELYING_SHOWN, /* that have a descriptor with a lock under the slots, which is noted (family_show(), slots_tag()) */
	RELYING_UNSHOWN, /* the same, and those whose lock no descriptor shows. Slower: for when all others are stopped */
	/* Those of calls under way (underway.h), whose threads may take such a lock at any moment, or have taken it. Most do not have it. */
	RELYING_CALLS,
};

/* Adds to `family` such processes, under such slots (slots.h), and all that they started, and marks each with SLOTS_OF() of the stores
 * for which it counts. found: is told each at once (not what it started); or NULL. */
void relying_find(struct relying *relying, struct family *family, enum relying_how how, uint64_t which,
		  const struct look_found *found);
/*
 * Finds the first, if it is time to. relying->due is set. True: this call found some, and called `found` (unless NULL)
 * for each.
 */
bool relying_find_first(struct relying *relying, const struct look_found *found);

/* Looks at one lock of one process: a holders_cb. And the end of a look. For tests. */
int look_holder(void *look, const struct holder *holder);
void look_end(struct look *look);

#endif
