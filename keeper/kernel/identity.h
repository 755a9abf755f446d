/*
 * The kernel's number of a file that is open: what lock lines and maps show it under (procfs.h). No path is walked and
 * no file system is asked: fdinfo says on which mount the file is, mountinfo has the device of that mount.
 *
 * Any thread; the mount table is read again when the kernel says that it has changed.
 */
#ifndef DFLOCK_KEEPER_IDENTITY_H
#define DFLOCK_KEEPER_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "keeper/kernel/procfs.h"

struct identity {
	uint64_t dev, ino;
};

/*
 * fd: of this process. pid: a process that has the file open, too, perhaps in another mount namespace, whose table is
 * asked if ours does not have the mount; 0: none. Where nothing can be learnt: what st says, which is right for all but
 * btrfs and overlayfs.
 */
struct identity identity_of(int fd, pid_t pid, const struct stat *st);
/* The same, from what the descriptor's fdinfo says. */
struct identity identity_from(const struct procfs_fdinfo *info, pid_t pid, const struct stat *st);

/* Is this mount one of this process's own namespace? */
bool identity_mount_is_ours(int mount_id);

#endif
