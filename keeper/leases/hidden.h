/*
 * Locks whose holder cannot be stopped (census.h): another user's process, for an ordinary user's keeper; or nobody knows
 * the holder. The log and status say so while the lease is held. Loop.
 */
#ifndef DFLOCK_KEEPER_HIDDEN_H
#define DFLOCK_KEEPER_HIDDEN_H

#include <stdbool.h>
#include <stddef.h>

#include "keeper/leases/survey.h"

struct lease;
struct hidden_row;

/* Part of struct keeper. */
struct hidden {
	struct survey survey;
	struct hidden_row *rows; /* the leases of the survey that runs; a claim's tag is the index */
	size_t count;
	size_t due_count; /* leases that wait for the next */
	bool asked;
};

/* A lease was found in use: looks soon which process holds its lock. If that process cannot be stopped, the log says
 * so, once for each lease. A lazy survey (survey.h) looks at all leases that are due. */
void hidden_due(struct lease *lease);

#endif
