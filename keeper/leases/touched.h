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

#include "wire/leases.h"
#include "wire/msg.h"

#define TOUCHED_BITS 65536

/* Part of struct keeper. */
struct touched {
	bool on;
	uint8_t bits[TOUCHED_BITS / 8];
};

static inline unsigned touched_bit(const char *name, enum wire_space space)
{
	return (unsigned)((leases_hash(name) ^ (uint64_t)space) % TOUCHED_BITS);
}

/* Begins, or ends, to note which names' leases and questions end. None is noted then. */
static inline void touched_set(struct touched *t, bool on)
{
	*t = (struct touched){.on = on};
}

/* A lease of this name and space has ended or covers less than before, or a question about it has ended. */
static inline void touched_add(struct touched *t, const char *name, enum wire_space space)
{
	unsigned bit = t->on ? touched_bit(name, space) : 0;

	if (t->on)
		t->bits[bit / 8] |= (uint8_t)(1 << bit % 8);
}

static inline bool touched_has(const struct touched *t, const char *name, enum wire_space space)
{
	unsigned bit = touched_bit(name, space);

	return t->bits[bit / 8] & 1 << bit % 8;
}

#endif
