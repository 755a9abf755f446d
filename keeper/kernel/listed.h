/*
 * Does the kernel list a lock on a file? /proc/locks has every lock of the machine, also one whose description has no
 * descriptor left (it lives on in a mapping, or is on its way through a socket). So "none is listed" proves that no
 * process holds a lock on the file, where the list can be trusted:
 *
 *   - The caller is in the first pid namespace. In another one the kernel leaves out the locks that were taken by
 *     processes outside of it, or by processes that have ended since.
 *   - The file system's st_dev is the number that the list has, and every lock on it is in the list: a fixed set of
 *     types, mounted in the caller's mount namespace. (btrfs and overlayfs show other numbers; FUSE may keep locks in
 *     its server alone.)
 *
 * The kernel gives the list in pages of 4 kB and lets locks come and go between two of them: when an entry before the
 * next page goes, the first lock of that page is skipped. So "none" is worth something only after LISTED_READS readings; a
 * lock counts as listed if it was in any of them, and a reading that fails makes the answer unknown. The kernel's time for one grows with the square of the locks (60,000: a
 * second), and no lock can be taken or dropped on the machine during each page: read it only if nothing else tells.
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

/* Is st_dev, on a file system of this type, the number that the kernel's lists have? */
bool listed_is_trusted_type(const char *type);

struct listed;

/* Reads the list now, once. NULL: no memory; listed_ask(NULL) is LISTED_UNKNOWN. */
struct listed *listed_read(void);
/* Once more; what was there before stays. */
void listed_read_again(struct listed *listed);
void listed_free(struct listed *listed);

/* dev, ino: as stat has them. */
enum listed_answer listed_ask(const struct listed *listed, uint64_t dev, uint64_t ino, enum wire_space space);

#endif
