/*
 * See takeup.h. That a file cannot be opened says nothing about who uses it: a lease whose fence number stands in the
 * journal is kept, with or without a description (promise 2: it goes back when it is known that no process relies on it).
 */
#include "keeper/leases/takeup.h"

#include "keeper/leases/locks.h"
#include "keeper/log.h"
#include "keeper/kernel/mounts.h"
#include "keeper/leases/reopen.h"

static struct file *take_up_file(struct keeper *k, const struct journal_entry *entry)
{
	const struct stat st = {.st_dev = entry->dev, .st_ino = entry->ino};
	bool local = mounts_local_path(k->mounts, entry->path);
	struct file *file = file_find(k, entry->dev, entry->ino);
	int fd = -1;

	/* Without a fence number nobody was told of it: it is given back without a look at the file. */
	if (entry->fence && (!file || file->fd < 0))
		fd = reopen_at_once(&(struct file_key){.dev = entry->dev, .ino = entry->ino}, local, entry->path);
	return file_get(k, &st, local, entry->path, entry->name, fd, &file) == 0 ? file : NULL;
}

void takeup_entry(void *arg, const struct journal_entry *entry)
{
	struct keeper *k = arg;
	struct file *file = take_up_file(k, entry);
	struct lease *lease =
		file ? lease_take_up(&file->locks[entry->range.space], &entry->range, entry->token) : NULL;

	__atomic_add_fetch(&k->fence->alive, 1, __ATOMIC_RELAXED); /* there may be many: it does not hang */
	if (!lease) {
		log_error("%s: its lease could not be taken up and runs out", entry->name);
		return;
	}
	lease->fence = entry->fence;
	lease->slot = FENCE_NO_SLOT;
	lease->state = entry->fence ? LEASE_UNSURE : LEASE_RELEASING; /* mutant: taken-up */
	if (lease->state == LEASE_UNSURE) {
		lease->slot = fence_take_up(k->fence, entry->dev, entry->ino, &entry->range, k->fence_taken);
		fence_on_lost(k->fence, lease->slot, config_on_lost(k->config, file->path));
		reopen_file(file);
	}
	log_info("%s: lease %s from the journal", entry->name,
		 lease->state == LEASE_UNSURE ? "taken up" : "given back, since it was never used,");
}
