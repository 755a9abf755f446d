/*
 * Locks whose holder cannot be stopped (census.h): another user's process, for an ordinary user's keeper; or nobody knows
 * the holder. The log and status say so while the lease is held. Loop.
 */
#ifndef DFLOCK_KEEPER_UNSEEN_H
#define DFLOCK_KEEPER_UNSEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct keeper;
struct lease;

/* Part of struct keeper. */
struct unseen {
	uv_timer_t timer; /* the next look */
	bool looking;     /* a worker looks now */
	size_t due_count;
	int64_t not_before_ns; /* the next look */
};

/* A lease was found in use: looks soon which process holds its lock. If that process cannot be stopped, the log says
 * so, once for each lease. One worker looks at all leases that are due, for at most a twentieth of the time. */
void unseen_due(struct lease *lease);
void unseen_start(struct keeper *k);
void unseen_stop(struct keeper *k);

#endif
