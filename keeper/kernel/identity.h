/*
 * Which file a descriptor refers to: the kernel's number of the file (procfs.h), or, where that does not tell
 * files apart, what stat says.
 *
 * Any thread. No path is walked, and no file system is asked but by identity_by_stat().
 */
#ifndef DFLOCK_KEEPER_IDENTITY_H
#define DFLOCK_KEEPER_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "procfs/procfs.h"

struct identity {
	uint64_t dev, ino;
};

/*
 * The kernel's number of an open file: fdinfo says on which mount it is, mountinfo has the device of that mount. The mount
 * table is read again when the kernel says that it has changed.
 *
 * fd: of this process. pid: a process that has the file open, too, perhaps in another mount namespace, whose table is
 * asked if ours does not have the mount; 0: none. If neither table has it: what st says, which is right for all but
 * btrfs and overlayfs.
 */
struct identity identity_of(int fd, pid_t pid, const struct stat *st);
/* The same, from what the descriptor's fdinfo says. *gone: both tables were read, and neither has the mount: it was unmounted
 * (umount -l), or is of a third namespace. */
struct identity identity_from(const struct procfs_fdinfo *info, pid_t pid, const struct stat *st, bool *gone);

/* Is this a mount of this process's own namespace? */
bool identity_mount_is_ours(int mount_id);

/*
 * What stat says of a descriptor of any process: `number` in the directory `fds`, which is /proc/PID/fd. May ask the
 * file system, in an errand (errand.h) that it waits for at most 20 ms. False: stat does not say it, or not in time.
 */
bool identity_by_stat(int fds, int number, struct identity *out);

#endif
