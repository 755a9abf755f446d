/*
 * What the page says about files, remembered for at most a second: to read the path of a descriptor takes three times
 * as long as flock(). The path decides; this only saves reading it.
 *
 * A file is remembered with all that would change if it got another path: its inode and change time (renames), and the
 * mount that it was opened through (bind mounts); and only while it has one link. A rename of a directory above it
 * shows in none of these: hence the limit of a second. A file that has just changed is not remembered either, since the
 * change time moves in ticks (up to 10 ms before Linux 6.13, whole seconds on some file systems) and may not show the
 * next rename. Callable in signal handlers, from every thread.
 */
#ifndef DFLOCK_SHIM_SEEN_H
#define DFLOCK_SHIM_SEEN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/page.h"

struct seen_key {
	uint64_t dev, ino; /* dev as in struct stat */
	uint64_t mount;
	int64_t ctime_ns, stamp_ns;
};

struct seen {
	const struct page *page; /* the page that says that the file is protected; NULL: it is not protected */
	uint64_t path_hash;      /* leases_hash() */
	uid_t owner;             /* of the page that was asked: root, or the only user who may go by it */
};

/* The key of fd's file under the configuration's stamp (settings.h). False: the file must not be remembered; then only
 * dev and ino count, which are 0 if it is no regular file or directory, or cannot be examined. errno may change. */
bool seen_key(int fd, int64_t stamp_ns, struct seen_key *key);

/* What is remembered; false: nothing. */
bool seen_find(const struct seen_key *key, struct seen *seen);
/* Remembers it, unless another thread is writing there. */
void seen_add(const struct seen_key *key, const struct seen *seen);

#endif
