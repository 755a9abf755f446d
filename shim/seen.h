/*
 * What the page says of files, remembered for the rest of the second: reading the path of a descriptor costs
 * three times what flock() does. The path stays the truth; this only saves looking it up.
 *
 * A file is remembered with what would change if it got another path: its inode and change time (renames),
 * the mount it was opened through (bind mounts), and only while it has one link. A rename of a directory above
 * it shows in none of these: hence the second. What has changed just now is not remembered either: the change time
 * ticks (up to 10 ms before Linux 6.13, whole seconds on some file systems), and the next rename may not show. Callable
 * in signal handlers, from every thread.
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
	const struct page *page; /* says that it is protected; NULL: it is not */
	uint64_t path_hash;      /* leases_hash() */
	uid_t owner;             /* of the page that said so: root, or the one user who may go by it */
};

/* The key of fd's file under the configuration's stamp (settings.h). false: it must not be remembered; dev and ino are
 * set all the same, unless it is no regular file or directory, or cannot be examined: then they are 0. */
bool seen_key(int fd, int64_t stamp_ns, struct seen_key *key);

bool seen_find(const struct seen_key *key, struct seen *seen);
void seen_add(const struct seen_key *key, const struct seen *seen);

#endif
