/* See past_cover.h. */
#include "keeper/leases/past_cover.h"

#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "keeper/array.h"
#include "keeper/leases/hostid.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/touched.h"

bool past_ranges_cover(const struct store_range *ranges, size_t count, const struct procfs_lock *lock)
{
	int64_t at = lock->from;
	bool further = true;

	while (at < lock->to && further) {
		further = false;
		for (size_t i = 0; i < count; i++) {
			if (ranges[i].space != lock->space || ranges[i].mode < lock->mode || ranges[i].from > at ||
			    ranges[i].to <= at)
				continue;
			at = ranges[i].to;
			further = true;
		}
	}
	return at >= lock->to;
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

/* The leases of ours on one file. Without memory: none, and then the lock is looked at again. */
static void past_add_leases(UT_array *ranges, const struct file *file, enum wire_space space)
{
	const struct lease *lease;

	DL_FOREACH (file->locks[space].leases, lease)
		if (lease_is_ours(lease->state)) /* mutant: past-lease */
			(void)!array_push(ranges, &lease->range, sizeof(lease->range));
}

/* One is asked for, or on its way back: the look may be from when it was there. */
static bool past_changes(const struct lock *lock)
{
	const struct lease *lease;

	DL_FOREACH (lock->leases, lease)
		if (!lease_is_ours(lease->state))
			return true;
	return false;
}

static bool past_array_covers(const UT_array *ranges, const struct procfs_lock *lock)
{
	return past_ranges_cover(array_items(ranges), utarray_len(ranges), lock);
}

bool past_is_covered(struct keeper *k, const struct openers_lock *lock)
{
	const struct file *file = file_find_by_id(k, lock->lock.dev, lock->lock.ino);
	const struct lease *lease;
	UT_array ranges = {0};
	bool covered;

	if (!file)
		return false;
	/* Mostly one lease covers it all. */
	DL_FOREACH (file->locks[lock->lock.space].leases, lease)
		/* mutant: past-one */
		if (lease_is_ours(lease->state) && past_ranges_cover(&lease->range, 1, &lock->lock))
			return true;
	past_add_leases(&ranges, file, lock->lock.space);
	covered = past_array_covers(&ranges, &lock->lock);
	utarray_done(&ranges);
	return covered;
}

/* A file that is not plain may be known to the keeper by other numbers; then its name tells. */
static bool past_is_file(const struct file *file, const struct openers_lock *lock, const char *name)
{
	if (file->id.dev == lock->lock.dev && file->id.ino == lock->lock.ino)
		return true;
	return !lock->opener->plain && strcmp(file->name, name) == 0;
}

static void past_add_lost(UT_array *ranges, const struct keeper *k, const char *name)
{
	const struct lost_lease *lost;

	DL_FOREACH (k->lost.all, lost)
		if (strcmp(lost->name, name) == 0)
			(void)!array_push(ranges, &lost->range, sizeof(lost->range));
}

enum past_cover past_cover_of(struct keeper *k, const struct openers_lock *lock, const char *name)
{
	const struct file *file, *next;
	UT_array ranges = {0};
	bool unsure = k->lost.losing || touched_has(k, name, lock->lock.space), covered;

	HASH_ITER (hh, k->files, file, next) {
		if (!past_is_file(file, lock, name))
			continue;
		past_add_leases(&ranges, file, lock->lock.space);
		unsure =
			unsure || file->locks[lock->lock.space].waiters || past_changes(&file->locks[lock->lock.space]);
	}
	past_add_lost(&ranges, k, name); /* status says so already */
	covered = past_array_covers(&ranges, &lock->lock);
	utarray_done(&ranges);
	return covered ? PAST_COVERED : unsure ? PAST_UNSURE : PAST_NAKED;
}
