/*
 * Finds a file again of which device, inode and perhaps a path are known, and opens it: by the path, else through any process
 * that has it open. The description is a new one. It is never a copy of a process's own descriptor: that is the process's
 * description, and a probe would drop its lock.
 *
 * A search takes no more than an O_PATH descriptor: opening a file may block, and one that does must not keep the others
 * from being found. Where no file can be opened, the kernel's list of locks may still say that no process has a lock on it
 * (listed_ask()).
 *
 * All of this but refind_at_once() may block: for workers. One thread at a time for a struct refind.
 */
#ifndef DFLOCK_KEEPER_REFIND_H
#define DFLOCK_KEEPER_REFIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/msg.h"

/*
 * Does the kernel list a lock on a file? /proc/locks has every lock of the machine, even if its description has no
 * descriptor any more (it lives on in a mapping, or is on its way through a socket). So "none is listed" proves that no
 * process holds a lock on the file, where the list can be trusted:
 *
 *   - The caller is in the first pid namespace. In another one the kernel leaves out the locks that were taken by
 *     processes outside of it, or by processes that have ended since.
 *   - The list shows the file system's st_dev, and has every lock on it: true for a fixed set of types, mounted in the
 *     caller's mount namespace. (btrfs and overlayfs show other numbers; FUSE may keep locks in its server alone.)
 *
 * A reading that fails, or that may not be whole (procfs_locks()), makes the answer unknown. The kernel's time for a reading
 * grows with the square of the number of locks (60,000: a second), and no lock of the machine can be taken or dropped while the
 * kernel writes a page: read the list only if nothing else tells.
 *
 * Reads /proc only: no file server is asked. Any thread.
 */
enum listed_answer {
	LISTED_UNKNOWN, /* the list cannot be trusted for this file */
	LISTED_NONE,    /* no process holds a lock on it */
	LISTED_SOME,    /* there is a lock on it, of whatever range */
};

struct listed;

/* Reads the list now. NULL: no memory; listed_ask(NULL) is LISTED_UNKNOWN. */
struct listed *listed_read(void);
void listed_free(struct listed *listed);

/* dev, ino: as stat has them. */
enum listed_answer listed_ask(const struct listed *listed, uint64_t dev, uint64_t ino, enum wire_space space);

struct refind {
	uint64_t dev, ino; /* constant */
	int path_fd;       /* found, and not tried to open: O_PATH; -1 */
	int fd;            /* open; -1. The caller's */
	int error;         /* it was found, but could not be opened: why. Else 0 */
	bool forbidden; /* ... in this try or an earlier one: the list is of use though the file may be found again */
	enum listed_answer listed[WIRE_SPACES];
};

/* Opens nothing yet. */
void refind_init(struct refind *r, uint64_t dev, uint64_t ino);
/* Another try. What an earlier one opened is the caller's. */
void refind_begin(struct refind *r);

/* Opens the file if the path leads to it. */
void refind_by_path(struct refind *r, const char *path);
/* Looks at the descriptors of all processes for those of the files that have no error: path_fd. Where that finds nothing,
 * or the file was forbidden once: `listed`. Sorts the array. */
void refind_search(struct refind **files, size_t count);
/* Opens what the search has found. On a local file system this does not block. */
void refind_open(struct refind *r);

/* Closes path_fd: no file server is told. */
void refind_end(struct refind *r);

/* A new description of what a descriptor, of whatever kind, refers to: to read, or else to write. A descriptor or -errno. */
int refind_description(int any_fd);

/* For a file of a local file system: opens it if the kernel has all of the path in memory, so without waiting. A descriptor,
 * or -1. */
int refind_at_once(uint64_t dev, uint64_t ino, const char *path);

#endif
