/*
 * What leases and questions were there during a look at the machine's locks (past.h). A lock that the look found may have
 * been under a lease, or been asked for with a question, that is gone when the look is judged. So the names whose leases
 * or questions end meanwhile are noted, and such locks are not judged. Other names that have the same bit are not judged
 * either. Loop only.
 */
#ifndef DFLOCK_KEEPER_TOUCHED_H
#define DFLOCK_KEEPER_TOUCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/msg.h"

#define TOUCHED_BITS 65536

struct keeper;
struct lock;

/* Part of struct keeper. */
struct touched {
	bool on;
	uint8_t bits[TOUCHED_BITS / 8];
};

/* Begins, or ends, to note which names' leases and questions end. None is noted then. */
void touched_set(struct keeper *k, bool on);

/* A lease of the lock has ended or covers less than before, or a question about it has ended. */
void touched_add(const struct lock *lock);
bool touched_has(const struct keeper *k, const char *name, enum wire_space space);

#endif
