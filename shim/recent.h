/*
 * What the page says about files, remembered for at most a second: to read the path of a descriptor takes longer than
 * several lock calls. The path decides; this only saves reading it, and asking the page about it.
 *
 * What makes the path of an open file another one, and how it is noticed:
 *
 * - A rename of the file. It changes the change time, as every write does, and it is the only thing that says so. So an
 *   answer counts for as long as the file has the change time that it had before its path was read (recent_find()).
 *   XFS leaves it as it was if two files change places in one step (RENAME_EXCHANGE): for these, too, only the limit of a second.
 * - Another link is made, or one is removed: only a file with one link is remembered. A directory has one name.
 * - The descriptor refers to another file now, or to the same one by way of another mount: inode and mount are compared.
 * - A rename of a directory above the file, or a mount that is moved (before Linux 6.8: or one that is unmounted and mounted elsewhere), shows
 *   in nothing that can be had cheaply. Hence the limit of a second: for so long the old path counts.
 *
 * A file that is written all the time always has another change time. Then the path is read again, but if it is the
 * one of the last look, the page need not be asked again, nor what the page depends on (recent_find_path()).
 *
 * Not where a server keeps the change time (FUSE, NFS): this kernel may learn of it after the rename, even its own. vfat does not
 * change it. File systems that know whether a file is immutable keep the time themselves; on others no file is remembered.
 *
 * When does an equal change time mean that nothing has changed? File systems stamp with a clock that ticks: every 10 ms
 * or less, or once in one or two seconds (a time of a whole second may mean that). A change in the tick of the one
 * before it leaves the time as it was. So a time must be older than two ticks before the path is read: later changes
 * then get another one.
 *
 * Callable in signal handlers, from every thread.
 */
#ifndef DFLOCK_SHIM_RECENT_H
#define DFLOCK_SHIM_RECENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "wire/page.h"

/* Asked of statx(): the mount's number. Since Linux 6.8 one that does not come again; before that, the number that mountinfo has, which the next mount
 * may get. */
#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x4000u
#endif
#define RECENT_MOUNT (STATX_MNT_ID | STATX_MNT_ID_UNIQUE)

struct recent_key {
	uint64_t dev, ino; /* dev as in struct stat */
	uint64_t mount;    /* RECENT_MOUNT */
	int64_t stamp_ns;  /* of the configuration (settings.h) */
	uint64_t era;      /* how often recent_forget() was called */
	int64_t ctime_ns;
	uint64_t young; /* not compared: the change time was young before the path was read */
};

struct recent {
	const struct page *page; /* the page that says that the file is protected; NULL: it is not protected */
	uint64_t path_hash;      /* leases_hash(); 0: the file has no path */
	uid_t owner;             /* of the page that was asked: root, or the only user who may go by it */
};

/* The key of fd's file under the configuration's stamp. False: the file must not be remembered; then only
 * dev and ino count, which are 0 if it is no regular file or directory, or cannot be examined. errno may change. */
bool recent_key(int fd, int64_t stamp_ns, struct recent_key *key);

/* What is remembered of this file with this change time. *seen may change in any case, and errno. */
bool recent_find(const struct recent_key *key, struct recent *seen);
/* After recent_find() found nothing, and before the path is read: is the change time young? */
void recent_look(struct recent_key *key);
/* What is remembered of this file with any change time, if the file still has the path of *seen, which is not 0. *seen may change in any case. */
bool recent_find_path(const struct recent_key *key, struct recent *seen);

/* Remembers it, unless another thread is writing there. The path was read after recent_look(). */
void recent_add(const struct recent_key *key, const struct recent *seen);

/* What was remembered, or is being remembered by other threads, is not found any more: the process has another root directory. */
void recent_forget(void);

#endif
