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
};

/* The look is about these slots (slots.h). look_end() also after an error. 0 or -ENOMEM. */
int look_begin(struct look *look, unsigned which);
void look_end(struct look *look);
/* Adds the processes that have a descriptor with such a lock, and count. 0 or -errno. */
int look_search(struct look *look);

/* For callers with a search of their own: looks at one lock of one process; a holders_cb except for its argument. */
int look_holder(struct look *look, const struct holder *holder);
/*
 * Is this process left alone where the locks of this claim are concerned? `dflock break` of a user who is not trusted ends
 * processes of that user only. The keeper has looked at that before; but a user could pass the lock to another user's process,
 * or have that map the file, between the keeper's look and this one.
 */
bool look_spares(const struct look *look, const struct claim *claim, pid_t pid);
/* Adds a process, and tells `found` if it is new. 0 or -ENOMEM. */
int look_add(struct look *look, pid_t pid);

#endif
