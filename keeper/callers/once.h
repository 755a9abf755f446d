/*
 * Files whose rule has at_least_ms: each new lock is a grant of the store of its own, after which the lock rests. Which
 * callers may be granted under a lease that this host has already, and which locks such files have. Loop only.
 *
 * Only the store remembers the rest (store/lua/acquire.lua). So a lease of such a file is for one lock of one caller,
 * and the keeper asks the store for another lease when the next caller wants the lock, also if that caller is on this
 * host. The two leases exclude each other in the store, as leases of two hosts do. The first caller that is granted
 * under a lease spends it. From then on these callers alone are granted under it:
 *
 *   - a caller whose description (with POSIX locks: process) has the lock already, and asks for it once more;
 *   - the caller that spent it, if it asks again in the same call, because its pin was over before it had the kernel
 *     lock. That it has the kernel lock when it asks (WIRE_F_HAVE) does not make it one of the first kind: it was not
 *     told that it has the lock.
 *
 * From the grant on, such a lease is on its way back (RECALL_RULE): closed, and probed until the kernel lock ends.
 */
#ifndef DFLOCK_KEEPER_ONCE_H
#define DFLOCK_KEEPER_ONCE_H

#include <stdbool.h>
#include <stdint.h>

struct lease;
struct session;

/* Is the lock that the caller asks for one that its file's rule does not have (shared, or a part of the file)? */
bool once_forbids(const struct session *s);
/* What the lease that is asked for this caller begins when it is granted: a rest of so many ms; 0: none. */
int64_t once_rest_ms(const struct session *s);
/* Has the caller the lock, or a part of it, from an earlier call? */
bool once_holds_already(const struct session *s);
/* May the caller be granted under this lease, as far as at_least_ms goes? needed: it was to have its pin already. */
bool once_may_use(const struct session *s, const struct lease *lease, bool needed);

#endif
