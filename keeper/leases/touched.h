/*
 * What leases and questions were there during a look at the machine's locks (past.h). A lock that the look found may have
 * been under a lease, or been asked for with a question, that is gone when the look is judged. So the names whose leases
 * or questions end meanwhile are noted, and such locks are not judged. Loop only.
 */
#ifndef DFLOCK_KEEPER_TOUCHED_H
#define DFLOCK_KEEPER_TOUCHED_H

#include <stdbool.h>
#include <stddef.h>

#include "wire/msg.h"

#define TOUCHED_MAX 4096 /* names; if there are more, all count as noted */

struct keeper;
struct lock;
struct touched_name;

/* Part of struct keeper. */
struct touched {
	bool on, over;
	struct touched_name *names;
};

/* Begins to note which names' leases and questions end. None is noted so far. */
void touched_begin(struct keeper *k);
void touched_end(struct keeper *k);

/* A lease of the lock has ended or covers less than before, or a question about it has ended. */
void touched_add(const struct lock *lock);
bool touched_has(const struct keeper *k, const char *name, enum wire_space space);

#endif
