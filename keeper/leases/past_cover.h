/* What covers a lock that the kernel lists: see past.h. Loop only, but for what is pure. */
#ifndef DFLOCK_KEEPER_PAST_COVER_H
#define DFLOCK_KEEPER_PAST_COVER_H

#include <stdbool.h>
#include <stddef.h>

#include "procfs/procfs.h"
#include "store/store.h"

struct keeper;

enum past_cover {
	PAST_COVERED, /* by leases of this host */
	PAST_UNSURE,  /* a question is under way, or something has ended meanwhile */
	PAST_NAKED,
};

/* Do the leases of the file that the kernel's number leads to cover the lock? The quick way, since most locks are
 * covered; false: ask past_cover_of(). */
bool past_is_covered(struct keeper *k, const struct procfs_lock *lock);
/* name: the lock name of the file. plain: the kernel's number is the keeper's number of it, too. */
enum past_cover past_cover_of(struct keeper *k, const struct procfs_lock *lock, const char *name, bool plain);

/* Everything of the lock before *at is covered. If this range, at least in the lock's mode, covers more: true, and *at is behind
 * that. Pure. */
bool past_extend(int64_t *at, const struct store_range *range, const struct procfs_lock *lock);

/*
 * Is one of these entries of the store from another keeper on the machine of the host `own`, and of this file and a part of
 * this range? A file that is not plain has other numbers in the store than in the kernel's list: any file counts then. Pure.
 */
bool past_entries_cover(const struct store_entry *entries, size_t count, const char *own,
			const struct procfs_lock *lock, bool plain);

#endif
