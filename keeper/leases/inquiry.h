/*
 * A question of another host (F_GETLK, a call that does not wait) about record locks on a file system that is not known
 * to be local: which lock of this host is in the way? Only a worker asks the kernel there, or the front that keeps the
 * file (fronts.h), since the kernel may ask a file server. The answer is sent, or the recall goes on, when the worker
 * has come back. A mount that hangs leaves the question without an answer: the asker's own limit (probe_ms) ends it.
 * Loop only.
 */
#ifndef DFLOCK_KEEPER_INQUIRY_H
#define DFLOCK_KEEPER_INQUIRY_H

#include "keeper/keeper.h"

/* In workers, of all leases together: each has a descriptor. What fronts keep: AWAY_LOOKS_MAX. */
#define INQUIRIES_MAX 256

/* Must the kernel be asked in a worker before this lease can say what is in the way? */
bool inquiry_needed(const struct lease *lease);

/*
 * Starts one. With a lock in the way the asker is told of that lock; else the recall goes on (queue_work.asked()), which
 * finds out without doubt. true also if one of the same asker runs already. false: no memory, no descriptor, or too many
 * run; then nothing was done.
 */
bool inquiry_start(struct lease *lease, const struct asker *asker);

#endif
