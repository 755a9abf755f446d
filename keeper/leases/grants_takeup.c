/* See grants_takeup.h. */
#include "keeper/leases/grants_takeup.h"

#include "keeper/clock.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"

/* A keeper of a version that keeps no grants may have served since: what was written before that counts no more. */
#define GRANTS_TAKEUP_RECENT_NS (60000 * NS_PER_MS)

/* False: it does not count any more. */
static bool grants_takeup_record(struct keeper *k, const struct grantsfile_record *r, size_t number)
{
	struct file *file = file_find(k, r->dev, r->ino);
	struct lock *lock = file && r->space < WIRE_SPACES ? &file->locks[r->space] : NULL;

	return lock && lock->leases && file_is_limited(file) && r->pid >= 0 && grants_adopt(lock, r, number);
}

void grants_takeup(struct keeper *k)
{
	struct grantsfile *kept = &k->grants.file;
	bool recent;

	k->grants.last_ns = clock_now_ns();
	if (grantsfile_open(kept, k->dir_fd, false) < 0)
		return; /* nothing was granted so far, or no grant counts any more */
	k->grants.ran_ns = grantsfile_ran_ns(kept);
	recent = k->grants.last_ns - grantsfile_ticked_ns(kept) < GRANTS_TAKEUP_RECENT_NS;
	for (size_t i = 1; i <= GRANTSFILE_RECORDS; i++) {
		const struct grantsfile_record *r = grantsfile_get(kept, i);

		if (!r || !recent || !grants_takeup_record(k, r, i)) /* mutant: grants-recent */
			grantsfile_drop(kept, i);
	}
}
