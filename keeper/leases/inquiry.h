/*
 * A question of another host (F_GETLK, a call that does not wait) about record locks on a file system that is not known
 * to be local: which lock of this host is in the way? Only a worker asks the kernel there, or the front that keeps the
 * file (fronts.h), since the kernel may ask a file server. When the worker has finished, the keeper sends the answer,
 * or goes on with the recall. A mount that hangs leaves the question without an answer: the asker's own limit
 * (probe_ms) ends it. Loop only.
 */
#ifndef DFLOCK_KEEPER_INQUIRY_H
#define DFLOCK_KEEPER_INQUIRY_H

#include <stdbool.h>

struct asker;
struct inquiry;
struct lease;

/* Part of struct keeper: the inquiries under way. */
struct inquiries {
	struct inquiry *all;
	unsigned count; /* in workers */
};

/* Limit of inquiries in workers, of all leases together: each needs a descriptor. For files that fronts keep:
 * AWAY_LOOKS_MAX. */
#define INQUIRIES_MAX 256

/* Must the kernel be asked in a worker before this lease can say what is in the way? */
bool inquiry_needed(const struct lease *lease);

/*
 * Starts an inquiry. If there is a lock in the way, it tells the asker of that lock; else the recall goes on
 * (queue_work.asked()), which finds out for certain. true also if an inquiry of the same asker runs already. false: no
 * memory, no descriptor, or too many run; then nothing was done.
 */
bool inquiry_start(struct lease *lease, const struct asker *asker);

/* Tells the asker that its recall is refused, and which lock is in its way. */
struct store_range;
void inquiry_tell_in_use(const struct lease *lease, const struct asker *asker, const struct store_range *in_use);

#endif
