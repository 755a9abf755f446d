/* The keeper's files, locks and leases: making, finding, freeing. Loop only. */
#ifndef DFLOCK_KEEPER_LOCKS_H
#define DFLOCK_KEEPER_LOCKS_H

#include "keeper/kernel/claims.h"
#include "keeper/keeper.h"

/* The file of this inode, or NULL. */
struct file *file_find(struct keeper *k, uint64_t dev, uint64_t ino);
/*
 * The file of this inode under this lock name. Takes over fd (closes it if the file is known already); -1 is allowed.
 * local: as mounts_local() says. 0 and *out; -EEXIST: the inode is in use under another name (*out is that file);
 * -ENOMEM.
 */
int file_get(struct keeper *k, const struct stat *st, bool local, const char *path, const char *name, int fd,
	     struct file **out);
/* A front has a description of it (fronts.h), which is forgotten if it has one already. */
void file_is_away(struct file *file, struct away *away);
/* Is there a description that its leases can be probed with? */
static inline bool file_is_open(const struct file *file)
{
	return file->fd >= 0 || file->away;
}
/* Frees the file if no lease and no session is left of it. */
void file_put(struct file *file);
/* Closes a descriptor (-1: none) of a file on this device: in a worker, which may wait for it, unless it is local. */
void file_close(struct keeper *k, uint64_t dev, int fd, bool local);
/* It may be so: file_put() at the outermost keeper_leave(). */
void file_unused(struct file *file);

/* What a search of /proc is to look for (holders.h). */
struct holders_file file_searched(const struct file *file);
/* What an inspection, or the table of an earlier keeper, knows of the kernel's number; ino 0: nothing. */
void file_learnt(struct file *file, const struct identity *id);

/* A new lease of the lock, asking, with a token of its own; in both tables. uid: whose call asks for it. NULL: no
 * memory or no randomness. */
struct lease *lease_new(struct lock *lock, const struct store_range *range, uid_t uid);
/* A lease that has a token already, from the table; the caller sets its state. uid: as above. */
struct lease *lease_take_up(struct lock *lock, const struct store_range *range, const char *token, uid_t uid);
/* Frees it. Nothing may refer to it. */
void lease_free(struct lease *lease);
struct lease *lease_find(struct keeper *k, const char *token);

bool range_covers(const struct store_range *a, const struct store_range *b); /* whatever b allows, a does */
bool range_overlaps(const struct store_range *a, const struct store_range *b);

/* The lease of ours that covers the range; an open one before a closed one. NULL: none. */
struct lease *lock_covering(const struct lock *lock, const struct store_range *range);
/* Do other open leases of ours, together, cover what this one does? Leases that are being split do not count. */
bool lock_covered_without(const struct lease *lease);
/* "NAME (PATH)", for people. */
void lock_describe(const struct lock *lock, char *out, size_t size);

#endif
