/*
 * Locks that no descriptor shows: an open file description outlives its descriptors in a mapping, in a message on its
 * way through a socket, as a registered file of an io_uring, or under a loop device, and its lock with it. The kernel lists all locks in /proc/locks. Those that
 * holders_search() did not show are hidden, unless they came or went meanwhile.
 *
 *   hidden_begin()
 *   holders_search(), with hidden_seen() as its `seen`
 *   hidden_end()   what is listed and was not seen. If that is none: done
 *   holders_search() again, hidden_end() again: what was listed before this search, was not seen by it, and is still
 *                  listed. The rest came and went
 *
 * /proc/locks is read after the search, never before it: the kernel takes time that grows with the square of the number
 * of locks (0.7 s for 60,000), and holds up all lock calls of the machine meanwhile. The processes that the search
 * found are stopped before that.
 *
 * Any process that has the file mapped (mappers.h) may have the description, and so may the process that took the lock,
 * which the list names; the kernel does not tell which one.
 *
 * What it cannot see in a pid namespace: locks that were taken by a process outside of it, or by a process that has
 * ended since.
 *
 * Blocking, like holders.h. All -errno of /proc, or -ENOMEM.
 */
#ifndef DFLOCK_KEEPER_HIDDEN_H
#define DFLOCK_KEEPER_HIDDEN_H

#include "keeper/array.h"
#include "keeper/kernel/file_index.h"
#include "procfs/procfs_locks.h"

struct lock_set; /* of locks, by hash */

struct hidden {
	const struct holders_file *files;
	size_t file_count;
	struct file_index index;
	struct lock_set *seen, *before;
	UT_array locks; /* struct procfs_lock: the result; see hidden_lock() */
};

/* files stay as long as this. hidden_free() also after an error. */
int hidden_begin(struct hidden *hidden, const struct holders_file *files, size_t count);
int hidden_seen(struct hidden *hidden, const struct procfs_lock *lock);
int hidden_end(struct hidden *hidden);
void hidden_free(struct hidden *hidden);

size_t hidden_count(const struct hidden *hidden);
const struct procfs_lock *hidden_lock(const struct hidden *hidden, size_t i);

#endif
