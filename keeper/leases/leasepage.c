/* See leasepage.h. There is one writer, so a slot that an earlier writer left odd is written anyway; seqcopy_write()
 * would give up. */
#include "keeper/leases/leasepage.h"

#include <string.h>
#include <utlist.h>

#include "keeper/leases/keeper.h"
#include "keeper/clock.h"
#include "keeper/leases/locks.h"
#include "wire/page.h"
#include "wire/seqcopy.h"

static void write_slot(struct leases_slot *slot, const struct leases_entry *entry)
{
	seqcopy_publish(&slot->seq, &slot->entry, entry, sizeof(*entry));
}

static void write_clock(struct page *page, const struct leases_clock *clock)
{
	seqcopy_publish(&page->leases.clock_seq, &page->leases.clock, clock, sizeof(*clock));
}

void leasepage_reset(struct page *page)
{
	const struct leases_entry closed = {0};
	struct leases_clock clock = {0};

	for (unsigned b = 0; b < LEASES_BUCKETS; b++)
		for (unsigned i = 0; i < LEASES_IN_BUCKET; i++)
			write_slot(&page->leases.slots[b][i], &closed); /* mutant: page-reset */
	leases_set_namespaces(&clock);
	write_clock(page, &clock);
}

static struct leases_slot *free_slot(struct page *page, const struct file_key *key)
{
	struct leases_slot *slots = page->leases.slots[leases_bucket(key->dev, key->ino)];

	for (int i = 0; i < LEASES_IN_BUCKET; i++)
		if (!slots[i].entry.open)
			return &slots[i];
	return NULL;
}

void leasepage_show(struct lease *lease)
{
	const struct file *file = lease->lock->file;
	const struct leases_entry entry = {
		.file = {.dev = file->key.dev, .ino = file->key.ino, .path_hash = leases_hash(file->path)},
		.range = {.from = lease->range.from,
			  .to = lease->range.to,
			  .space = lease->range.space,
			  .mode = lease->range.mode},
		.open = 1};
	char name[LOCK_NAME_BYTES];

	if (lease->shown && lease->shown->entry.file.path_hash == entry.file.path_hash)
		return;
	/* The caller may have begun to wait before the configuration was read again. */
	if (config_lock_name(lease_keeper(lease)->config, file->path, name) < 0 || strcmp(name, file->name) != 0)
		return;
	/* Each caller must be looked at again, or asks the store. */
	if (config_rule(lease_keeper(lease)->config, file->path)->refuse_unstoppable || file->at_least_ms ||
	    file->redis_key || file_is_limited(file)) /* mutant: page-limited */
		return;
	if (!lease->shown) {
		lease->shown = free_slot(lease_keeper(lease)->page, &file->key);
		lease_keeper(lease)->shown += lease->shown != NULL;
	}
	if (lease->shown)
		write_slot(lease->shown, &entry);
}

void leasepage_close(struct lease *lease)
{
	const struct leases_entry closed = {0};

	if (lease->shown) {
		write_slot(lease->shown, &closed);
		lease_keeper(lease)->shown--;
	}
	lease->shown = NULL;
}

void leasepage_close_lock(struct lock *lock)
{
	struct lease *lease;

	DL_FOREACH (lock->leases, lease)
		leasepage_close(lease);
}

void leasepage_close_all(struct keeper *k)
{
	struct lease *lease, *next;

	HASH_ITER (hh, k->leases, lease, next)
		leasepage_close(lease);
}

void leasepage_refresh(struct keeper *k, int64_t sure_until_ns)
{
	struct leases_clock clock = k->page->leases.clock;
	int64_t fresh = clock_now_ns() + LEASEPAGE_FRESH_MS * NS_PER_MS;

	clock.sure_until_ns = k->leaving              ? 0
			      : sure_until_ns < fresh ? sure_until_ns
						      : fresh; /* mutant: page-sure-until */
	write_clock(k->page, &clock);
}
