/*
 * Which devices are file systems of this machine's own, on which no call waits for anybody else: only what is
 * on these is looked at in the event loop; everything else is a worker's job. Loop only.
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
 * Is the file system of this st_dev known to be local? Reads the mount table again after it has changed, which takes no
 * look at any file system. What is not in the table under this number (btrfs, overlayfs) is not known.
 */
bool mounts_local(struct mounts *mounts, uint64_t dev);

#endif
