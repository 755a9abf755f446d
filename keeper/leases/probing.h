/* A lease's probes, and what the kernel's answers mean for the lease. Loop only. */
#ifndef DFLOCK_KEEPER_PROBING_H
#define DFLOCK_KEEPER_PROBING_H

#include <stdbool.h>

#include "keeper/leases/locks.h"

/* Asks the kernel whether the lease is in use; if another host waits, waits for the end of the use. LEASE_CUE_*
 * follow. */
void lease_start_probe(struct lease *lease);
/* Stops the lease's probe, if one runs. */
void lease_stop_probe(struct lease *lease);
/*
 * Which lock of this host is in the way of what another host wants? 1: *in_use, as the kernel says. 0: none. -1: the
 * kernel cannot be asked without waiting (never for flock), and *in_use is what the lease covers.
 */
int lock_in_the_way(const struct lease *lease, const struct store_range *wanted, struct store_range *in_use);
/* Is the lease in use, as far as this can be known at once and without closing it? False: perhaps not. Not to be called
 * over a pinned range. */
bool lease_is_in_use(const struct lease *lease);
/* Does the running probe wait until no process has the lock at all, though shared would do? Then it must be started
 * anew. */
bool probe_waits_for_more(const struct lease *lease);
/* Tells the probes in this range to stop, so that a pin can be given. false: some have not ended so far; the lock's
 * callers are served again when they have. */
bool lock_stop_probes(struct lock *lock, const struct store_range *range);

#endif
