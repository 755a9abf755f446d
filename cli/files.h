/* Files that are or may become protected: their path as the kernel has it, and what their file system does with locks.
 */
#ifndef DFLOCK_CLI_FILES_H
#define DFLOCK_CLI_FILES_H

#include <limits.h>

/*
 * The path as the kernel shows it for an open descriptor of the file: links are resolved as far as they exist, and what
 * does not exist yet follows as it is written. 0 or -errno.
 */
int files_resolve(const char *file, char path[PATH_MAX]);

enum files_locks {
	FILES_LOCAL,         /* an ordinary file system of this machine */
	FILES_UNKNOWN,       /* not known to this program */
	FILES_NETWORK_LOCAL, /* a network file system that keeps locks on this machine */
	FILES_NETWORK,       /* one that asks its server for every lock */
	FILES_FUSE,
	FILES_UNFIT, /* locks mean nothing there */
};

#define FILES_LINE_BYTES 512

/*
 * What becomes of flock() on the file or directory at `path`. line says it in words: the file system and what it means.
 * 0, or -errno if path cannot be examined. Does not ask a file server for anything that is in the cache.
 */
int files_examine(const char *path, enum files_locks *locks, char line[FILES_LINE_BYTES]);

/* What a file system of that type, mounted with those options, does with flock(). Pure. */
enum files_locks files_judge(const char *type, const char *options, char line[FILES_LINE_BYTES]);

#endif
