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
 * The kernel gives the list in pages of 4 kB and lets locks come and go between two of them: when an entry before the
 * next page goes, the first lock of that page is skipped. So "none" counts only after LISTED_READS readings; a lock
 * counts as listed if it was in any of them, and a reading that fails makes the answer unknown. The kernel's time for a
 * reading grows with the square of the number of locks (60,000: a second), and no lock of the machine can be taken or
 * dropped while the kernel writes a page: read the list only if nothing else tells.
 *
 * Reads /proc only: no file server is asked. Any thread.
 */
#ifndef DFLOCK_KEEPER_LISTED_H
#define DFLOCK_KEEPER_LISTED_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/msg.h"

#define LISTED_READS 3

enum listed_answer {
	LISTED_UNKNOWN, /* the list cannot be trusted for this file */
	LISTED_NONE,    /* no process holds a lock on it */
	LISTED_SOME,    /* there is a lock on it, of whatever range */
};

struct listed;

/* Reads the list now, once. NULL: no memory; listed_ask(NULL) is LISTED_UNKNOWN. */
struct listed *listed_read(void);
/* Reads the list once more, and keeps the locks of earlier readings. */
void listed_read_again(struct listed *listed);
void listed_free(struct listed *listed);

/* dev, ino: as stat has them. */
enum listed_answer listed_ask(const struct listed *listed, uint64_t dev, uint64_t ino, enum wire_space space);

#endif
