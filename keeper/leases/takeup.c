/*
 * See reopen.h. That a file cannot be opened says nothing about which processes use it: so every lease of the table is
 * kept, with or without a description (promise 2: it goes back when it is known that no process relies on it).
 */

#include "keeper/leases/keeper.h"
#include "keeper/guard/table.h"
#include "keeper/kernel/mounts.h"
#include "keeper/kernel/refind.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/reopen.h"
#include "keeper/leases/room.h"
#include "keeper/log.h"

static struct file *take_up_file(struct keeper *k, const struct table_entry *entry)
{
	const struct stat st = {.st_dev = entry->dev, .st_ino = entry->ino};
	bool local = mounts_local_path(k->mounts, entry->path);
	struct file *file = file_find(k, entry->dev, entry->ino);
	struct member *m = &k->members[entry->member];
	int fd = -1;

	/* Of a store that this configuration does not have. */
	if (entry->member >= k->member_count) /* mutant: takeup-store */
		return NULL;
	if (config_shard(m->config, entry->name) != m->shard)
		return NULL;
	m->wanted = true;
	/* A lease on which no process relies is given back without a look at the file. */
	if (entry->unsure && local && (!file || file->fd < 0))
		fd = refind_at_once(entry->dev, entry->ino, entry->path);
	if (file_get(m, &st, local, entry->path, entry->name, fd, &file) < 0)
		return NULL;
	file_follow_rule(file);
	return file;
}

bool takeup_entry(void *arg, const struct table_entry *entry)
{
	struct keeper *k = arg;
	enum lease_state unsure = entry->forgotten ? LEASE_FORGOTTEN : LEASE_TAKEN_UP;
	struct file *file = take_up_file(k, entry);
	struct lease *lease =
		file ? lease_take_up(&file->locks[entry->range.space], &entry->range, entry->token, entry->uid) : NULL;

	table_alive(k->table); /* there may be many: it does not hang */
	if (!lease) {
		log_about(LINE_LEASE_TAKEN_UP, &(struct log_about){.lock = entry->name},
			  "%s: its lease could not be taken up", entry->name);
		return false;
	}
	lease->lock->taken_up = true;
	room_add(lease);
	lease->fence = entry->fence;
	lease->slot = entry->slot;
	lease_set_state(lease, entry->unsure ? unsure : LEASE_RELEASING); /* mutant: taken-up */
	lease->spent = entry->fence != 0;                                 /* else no caller was told of it */
	lease->rest_ms = file->at_least_ms;
	lease_set_key(lease, file->redis_key);
	if (lease->rest_ms || lease->key)
		lease_recall_by_rule(lease);
	if (entry->unsure) {
		table_set_on_lost(k->table, lease->slot, config_rule_for(k->config, file->path).on_lost);
		reopen_file(file);
	}
	log_about(LINE_LEASE_TAKEN_UP, &(struct log_about){.lock = entry->name}, "%s: lease %s", entry->name,
		  entry->unsure ? "of the earlier keeper taken up"
				: "that the earlier keeper asked for or gave back goes back");
	return true;
}
