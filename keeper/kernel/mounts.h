/*
 * Which files are on local file systems, where no call waits for another machine or process: the event loop looks only
 * at such files; a worker looks at all others. Loop only.
 *
 * Known to be local: the usual disk file systems and those in memory, by their type; btrfs, ZFS; and an overlay all of
 * whose layers are. A file is found by the id of its mount, as st_dev of btrfs subvolumes and of overlays is in no
 * table. A mount of another mount namespace (a container's) is in no table of ours, and an overlay may have been made
 * from folders that only another namespace has: neither is known to be local. That costs no more than a worker.
 *
 * A block device counts as local, whatever is behind it. If a disk image on a file server, or a network block device,
 * hangs, it delays reads; but the kernel answers the loop's calls (stat, locks, opening an open file anew) from memory.
 */
#ifndef DFLOCK_KEEPER_MOUNTS_H
#define DFLOCK_KEEPER_MOUNTS_H

#include <stdbool.h>
#include <stdint.h>

struct mounts;

/* NULL: no memory, or no /proc/self/mountinfo: then every file is a worker's job (mounts_local(NULL) is false). */
struct mounts *mounts_new(void);
void mounts_free(struct mounts *mounts);
/* No file counts as local any more. A scanner of files (fanotify) may let an open() on any file system wait, and no table shows which. */
void mounts_doubt(struct mounts *mounts);

/*
 * Is the file system of this open file known to be local? Asks no file system that is not. Reads the mount table again
 * after it has changed. *device: what the file's workers are counted by (workers.h): the kernel's number of the file
 * system (procfs.h) where the table has it, else a number of the mount's own. *ino: the kernel's inode number; 0: what
 * stat says, or not known.
 */
bool mounts_local(struct mounts *mounts, int fd, uint64_t *device, uint64_t *ino);

/* The same for an absolute path, with everything that it leads over; false also if it leads nowhere. */
bool mounts_local_path(struct mounts *mounts, const char *path);

/* The same for the number that the kernel's lists of locks have for a file system. */
bool mounts_local_device(struct mounts *mounts, uint64_t device);

/*
 * Calls back with what page_covers() is to know: the device of each mount that may have files of these rules, and PAGE_COVERED_TYPE
 * with its type where the device does not tell. Does nothing unless rules or mounts have changed since the last call.
 */
struct config;
void mounts_covered(struct mounts *mounts, const struct config *config, void (*cover)(void *arg, uint64_t dev),
		    void *arg);

#endif
