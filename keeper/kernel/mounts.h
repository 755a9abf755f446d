/*
 * Which files are on file systems of this machine's own, on which no call waits for anybody else: only what is
 * on these is looked at in the event loop; everything else is a worker's job. Loop only.
 *
 * Known to be local: the usual disk file systems and those in memory, by their type; btrfs, ZFS; and an overlay all of
 * whose layers are. A file is found by the id of its mount, as st_dev of btrfs subvolumes and of overlays is in no
 * table. A mount of another mount namespace (a container's) is in no table of ours, and an overlay may have been made
 * from folders that only another namespace has: neither is known to be local. That costs a worker's turn, and nothing
 * else.
 *
 * A block device counts as this machine's own, whatever is behind it: a disk image on a file server, or a network block
 * device, that hangs delays what reads from it; but the calls that the loop makes (stat, locks, reopening what is open)
 * are answered from memory.
 */
#ifndef DFLOCK_KEEPER_MOUNTS_H
#define DFLOCK_KEEPER_MOUNTS_H

#include <stdbool.h>
#include <stdint.h>

struct mounts;

/* NULL: no memory, or no /proc/self/mountinfo: then every file is a worker's job (mounts_local(NULL) is false). */
struct mounts *mounts_new(void);
void mounts_free(struct mounts *mounts);

/*
 * Is the file system of this open file known to be local? No file system is asked that is not. Reads the mount table
 * again after it has changed. *device, unless NULL: what the file's workers are counted by (workers.h): st_dev where
 * the table has it, else a number of the mount's own.
 */
bool mounts_local(struct mounts *mounts, int fd, uint64_t *device);

/* The same for what an absolute path leads to, over all that it leads over; false also if it leads nowhere. */
bool mounts_local_path(struct mounts *mounts, const char *path);

/* The same for the number that the kernel's lists of locks have for a file system. */
bool mounts_local_device(struct mounts *mounts, uint64_t device);

#endif
