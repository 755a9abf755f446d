/*
 * Files that were found not to be protected, remembered for the rest of the second: reading the path of
 * a descriptor costs three times what flock() does. The path stays the truth; this only saves looking it up.
 *
 * A file is remembered with what would change if it got another path: its inode and change time (renames),
 * the mount it was opened through (bind mounts), and only while it has one link. A rename of a directory above
 * it shows in none of these: hence the second. Callable in signal handlers, from every thread.
 */
#ifndef DFLOCK_SHIM_SEEN_H
#define DFLOCK_SHIM_SEEN_H

#include <stdbool.h>
#include <stdint.h>

struct seen {
	uint64_t dev, ino, mount;
	int64_t ctime_ns, stamp_ns;
};

/* The key of fd's file under the configuration's stamp (settings.h). false: it must not be remembered. */
bool seen_key(int fd, int64_t stamp_ns, struct seen *key);

bool seen_has(const struct seen *key);
void seen_add(const struct seen *key);

#endif
