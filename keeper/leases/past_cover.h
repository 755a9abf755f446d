/* What covers a lock that the kernel lists: see past.h. Loop only, but for what is pure. */
#ifndef DFLOCK_KEEPER_PAST_COVER_H
#define DFLOCK_KEEPER_PAST_COVER_H

#include <stdbool.h>
#include <stddef.h>

#include "keeper/kernel/openers.h"
#include "store/store.h"

struct keeper;

enum past_cover {
	PAST_COVERED, /* by leases of this host */
	PAST_UNSURE,  /* a question is under way, or something has ended meanwhile */
	PAST_NAKED,
};

/* Do the leases of a file that the kernel's number leads to cover the lock? The quick way, since most locks are
 * covered; false: ask past_cover_of(). */
bool past_is_covered(struct keeper *k, const struct openers_lock *lock);
/* name: the lock name of the opener's path. */
enum past_cover past_cover_of(struct keeper *k, const struct openers_lock *lock, const char *name);

/* Do these ranges together cover all of the lock, each at least in its mode? Pure. */
bool past_ranges_cover(const struct store_range *ranges, size_t count, const struct procfs_lock *lock);

/*
 * Is one of these entries of the store from another keeper on the machine of the host `own`, and of this file and a part of
 * this range? A file that is not plain has other numbers in the store than in the kernel's list: any file counts then. Pure.
 */
bool past_entries_cover(const struct store_entry *entries, size_t count, const char *own,
			const struct procfs_lock *lock, bool plain);

#endif
