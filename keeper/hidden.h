/*
 * Locks that no descriptor shows: an open file description outlives its descriptors in a mapping, or in a message on
 * its way through a socket, and its lock with it. The kernel lists all locks in /proc/locks; those that holders_find()
 * has not shown are such ones, unless they came or went meanwhile.
 *
 *   hidden_begin()  before holders_find(): what the kernel lists
 *   hidden_seen()   for each holder that is found
 *   hidden_end()    what is left, and is still listed
 *
 * A process that has the file mapped may be the one that has the description; which one it is, the kernel does not
 * tell.
 *
 * What it cannot see: locks on file systems whose st_dev is not the kernel's own number (btrfs, overlayfs), and, in a
 * pid namespace, those that a process outside of it took, or one that has ended since.
 *
 * Blocking, without state of its own, like holders.h. All -errno of /proc, or -ENOMEM.
 */
#ifndef DFLOCK_KEEPER_HIDDEN_H
#define DFLOCK_KEEPER_HIDDEN_H

#include "keeper/family.h"
#include "keeper/holders.h"

struct hidden {
	const struct holders_file *files;
	size_t file_count;
	struct holder *locks; /* file, space, owner, mode, from, to and locker */
	size_t count, room;
};

/* files stay as long as this. hidden_free() also after an error. */
int hidden_begin(struct hidden *hidden, const struct holders_file *files, size_t count);
void hidden_seen(struct hidden *hidden, const struct holder *holder);
int hidden_end(struct hidden *hidden);
void hidden_free(struct hidden *hidden);

/* Adds all processes that have the file mapped, of those that may be looked into. */
int hidden_mappers(const struct holders_file *file, struct family *family);

#endif
