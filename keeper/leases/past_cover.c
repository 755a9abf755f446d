/* See past.h. */
#include "keeper/leases/past.h"

#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "keeper/leases/hostid.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/touched.h"

bool past_extend(int64_t *at, const struct store_range *range, const struct procfs_lock *lock)
{
	if (range->space != lock->space || range->mode < lock->mode || range->from > *at || range->to <= *at)
		return false;
	*at = range->to;
	return true;
}

bool past_entries_cover(const struct store_entry *entries, size_t count, const char *own,
			const struct procfs_lock *lock, bool plain)
{
	const struct store_range range = {.space = lock->space, .from = lock->from, .to = lock->to};
	char file[STORE_FILE_BYTES];

	file_inode_text(&(struct file_key){.dev = lock->dev, .ino = lock->ino}, file);
	for (size_t i = 0; i < count; i++)
		if (range_overlaps(&entries[i].range, &range) && strcmp(entries[i].host, own) != 0 &&
		    hostid_same_machine(own, entries[i].host) && (!plain || strcmp(entries[i].file, file) == 0))
			return true;
	return false;
}

/* Goes on over the leases of ours on one file. */
static bool past_extend_by_file(int64_t *at, const struct file *file, const struct procfs_lock *lock)
{
	const struct lease *lease;
	bool further = false;

	DL_FOREACH (file->locks[lock->space].leases, lease)
		if (lease_is_ours(lease->state)) /* mutant: past-lease */
			further |= past_extend(at, &lease->range, lock);
	return further;
}

bool past_is_covered(struct keeper *k, const struct procfs_lock *lock)
{
	const struct file *file = file_find_by_id(k, lock->dev, lock->ino);
	int64_t at = lock->from;

	while (file && at < lock->to && past_extend_by_file(&at, file, lock))
		;
	return at >= lock->to;
}

/* A lease is asked for, or on its way back: the look may be from when it was there. */
static bool past_changes(const struct lock *lock)
{
	const struct lease *lease;

	DL_FOREACH (lock->leases, lease)
		if (!lease_is_ours(lease->state))
			return true;
	return lock->waiters;
}

enum past_cover past_cover_of(struct keeper *k, const struct procfs_lock *lock, const char *name, bool plain)
{
	bool unsure = k->lost.losing || touched_has(&k->touched, name, lock->space), further = true;
	const struct file *file, *next;
	const struct lost_lease *lost;
	int64_t at = lock->from;

	while (further && at < lock->to) {
		further = false;
		HASH_ITER (hh, k->files, file, next) {
			/* A file that is not plain may be known to the keeper by other numbers; then its name tells. */
			if ((file->id.dev != lock->dev || file->id.ino != lock->ino) &&
			    (plain || strcmp(file->name, name) != 0))
				continue;
			further |= past_extend_by_file(&at, file, lock);
			unsure |= past_changes(&file->locks[lock->space]);
		}
		DL_FOREACH (k->lost.all, lost) /* status says so already */
			if (strcmp(lost->name, name) == 0)
				further |= past_extend(&at, &lost->range, lock);
	}
	return at >= lock->to ? PAST_COVERED : unsure ? PAST_UNSURE : PAST_NAKED;
}
