/* What the keeper tells a caller that waits for a lease, while it waits, or instead of a grant; and what the rule of its file lets it have.
 * Loop only. */
#ifndef DFLOCK_KEEPER_CALLERS_H
#define DFLOCK_KEEPER_CALLERS_H

#include <stdbool.h>
#include <stdint.h>

#include "keeper/leases/waiters.h"
#include "store/store.h"

struct keeper;
struct lease;
struct session;

/* Does it want an answer now (LOCK_NB, a test), or to wait? */
bool caller_is_nonblocking(const struct session *s);
/* Tells the caller that it waits for another host: it then lets go of the kernel lock that it converts. Sent once. */
void caller_tell_waiting(struct session *s);
/* EWOULDBLOCK, with the lock in the way if that is known. */
void caller_would_block(struct session *s);
/* ENOLCK, with one line that begins with the file. */
void caller_refuse(struct session *s, enum refusal refusal, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The same for a reason that may be gone later. */
void caller_refuse_for_now(struct session *s, enum refusal refusal, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Does it wait for as long as store, keeper or lease are not there (on_refused = "wait")? */
bool caller_is_patient(const struct session *s);

/*
 * Files whose rule has at_least_ms: each new lock is a grant of the store of its own, after which the lock rests. Which
 * callers may be granted under a lease that this host has already, and which locks such files have.
 *
 * Only the store remembers the rest (store/rules/acquire.lua). So a lease of such a file is for one lock of one caller,
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

/* Is the lock that the caller asks for one that its file's rule does not have (shared, or a part of the file)? */
bool caller_once_forbids(const struct session *s);
/* What the lease that is asked for this caller begins when it is granted: a rest of so many ms; 0: none. */
int64_t caller_once_rest_ms(const struct session *s);
/* May the caller be granted under this lease, as far as at_least_ms goes? needed: it was to have its pin already. */
bool caller_once_may_use(const struct session *s, const struct lease *lease, bool needed);

/*
 * Callers of files whose rule has redis_key (keeper/leases/keys.h): which lease is asked for them, and under which they may
 * be granted.
 *
 * A key has no shared locks and no ranges. So the lease is exclusive and for the whole range, whatever the caller wants;
 * processes of one host share it as their kernel allows.
 */

/* The range that the store is asked for if the caller wants this one. */
struct store_range caller_keyed_range(const struct session *s, const struct store_range *range);
/* May the caller be granted under this lease, as far as its key goes? */
bool caller_keyed_may_use(const struct session *s, const struct lease *lease);
/* Is the lease so old that newcomers wait for the next one? Else processes of one host that take turns would keep the key from
 * all clients. */
bool caller_keyed_is_due(const struct lease *lease);

/*
 * Callers that wait for longer than wait_warn_ms of their file's rule: an event for each, once. Both those that wait for
 * another host or the store, and those that have a grant and wait in the kernel for a process of this host.
 */

/* Raises it if this caller has waited for so long by now. */
void caller_look(struct session *s, int64_t now_ns);

#endif
