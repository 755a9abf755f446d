/* A lease's probes: what the kernel's answers mean for it. Loop only. */
#ifndef DFLOCK_KEEPER_PROBING_H
#define DFLOCK_KEEPER_PROBING_H

#include "keeper/keeper.h"
#include "keeper/leases/locks.h"

/* Asks the kernel whether the lease is in use; waits for the end of it if another host waits. LEASE_EV_* follow. */
void lease_start_probe(struct lease *lease);
/* Tells it to end, if one runs. */
void lease_stop_probe(struct lease *lease);
/*
 * Which record lock is in the way of what is wanted, as the kernel says by this description? 1: *in_use is the first
 * one in the kernel's list. 0: none. -EAGAIN: one of our own probes, for a moment. Else -errno. May wait for a file
 * server: in the loop only on local file systems; in a worker on any.
 */
int kernel_lock_in_the_way(int fd, const struct store_range *wanted, struct store_range *in_use);
/*
 * Which lock of this host is in the way of what another one wants? 1: *in_use, as the kernel says. 0: none. -1: the
 * kernel cannot be asked without waiting (never for flock), and *in_use is what the lease covers.
 */
int lock_in_the_way(const struct lease *lease, const struct store_range *wanted, struct store_range *in_use);
/* Is the lease in use, as far as can be said at once and without closing it? False: perhaps not. Not over a pinned
 * range. */
bool lease_is_in_use(const struct lease *lease);
/* Does the probe that runs wait until nobody has the lock, though shared is wanted, too? Then it must be started anew.
 */
bool probe_waits_for_more(const struct lease *lease);
/* Tells the probes in this range to stop, so that a pin can be given. false: some have not ended yet; the lock's callers
 * are served again when they have. */
bool lock_stop_probes(struct lock *lock, const struct store_range *range);

#endif
