/*
 * One look for the processes that hold locks under leases: for which slots, which holders count, and what it found.
 *
 * Which holders count: all processes that hold a lock that overlaps a lease's range, but for those that rely on
 * nothing. A process relies on nothing if
 *   - it is not one of the first: the processes that held locks when the leases ceased to be sure, and those that they
 *     started; and
 *   - it is in a lock call that the keeper has not answered (table_has_caller()).
 * Such a process got the kernel lock only because the holder ended, and has not been told that it holds the lock. Every
 * process that relies on the lock is one of the first, or inherited the lock from one of these and asked no question.
 *
 * A lock that no descriptor shows (census.h) counts for each process that may have it, whatever that waits for. If no process is
 * known to have it, or if that cannot be signalled, the holder cannot be stopped: the log says so, once for each outage, and
 * the slot is marked for `dflock status`.
 *
 * Parent only. look_search() reads /proc: microseconds for each descriptor of the machine.
 */
#ifndef DFLOCK_KEEPER_LOOK_H
#define DFLOCK_KEEPER_LOOK_H

#include <sys/types.h>

#include "keeper/guard/table.h"
#include "keeper/kernel/claims.h"
#include "keeper/kernel/family.h"
#include "keeper/kernel/holders.h"

/* Called for each process at the moment it is found. */
struct look_found {
	void (*cb)(void *arg, pid_t pid);
	void *arg;
};

struct look {
	/* Set by the caller, and not owned: */
	struct table *table;
	pid_t keeper;                   /* never counts */
	const struct family *first;     /* NULL: not known; then all holders count */
	const struct look_found *found; /* NULL: nothing is done at once */
	struct family *family;          /* processes that count are added here */
	/* look_begin()'s: */
	struct claims claims; /* tag: the slot */
	pid_t last;           /* the process that was found last */
	/* look_search_all()'s: */
	bool *beyond; /* of each claim: a lock on it has a holder that cannot be stopped */
};

/* The look is about these slots (slots.h). look_end() also after an error. 0 or -ENOMEM. */
int look_begin(struct look *look, unsigned which);
void look_end(struct look *look);
/* Adds the processes that have a descriptor with such a lock, and count. 0 or -errno. */
int look_search(struct look *look);
/* The same, and for those whose lock no descriptor shows. It takes longer, since it may ask the kernel for all locks of the
 * machine: call it when all other holders are stopped. */
int look_search_all(struct look *look);
/* The leases are sure again: takes the marks off all slots. */
void look_forget(struct table *table);

/* Looks at one lock of one process. A holders_cb. */
int look_holder(void *look, const struct holder *holder);
/*
 * Is this process left alone where the locks of this claim are concerned? `dflock break` of a user who is not trusted ends
 * processes of that user only. The keeper has looked at that before; but a user could pass the lock to another user's process,
 * or have that map the file, between the keeper's look and this one.
 */
bool look_spares(const struct look *look, const struct claim *claim, pid_t pid);
/* Adds a process, and tells `found` if it is new. 0 or -ENOMEM. */
int look_add(struct look *look, pid_t pid);

#endif
