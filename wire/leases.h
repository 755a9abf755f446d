/*
 * The leases in the shared page: a lock call under a lease that this host has, and that no other host wants, needs no
 * question to the keeper.
 *
 * The keeper writes a slot for each lease that it grants from; programs read:
 *
 *   program                                        keeper
 *   page says open -> takes the kernel lock        closes the slot
 *   full fence                                     full fence
 *   page says open and now < sure_until: success   probes the kernel: in use?
 *   else: keeps the kernel lock, asks the keeper   free -> gives the lease back
 *
 * Why no program succeeds under a lease that was given back (promise 1): a program succeeds only if it read "open"
 * after it took the kernel lock. Of two threads that each write, fence and then read what the other one writes, at
 * least one sees the other's write. The program read "open", so it did not see the close; so the keeper's probe sees
 * the kernel lock, and the keeper does not give the lease back (promise 2). Both fences are needed: the kernel's test
 * for record locks has a path that takes no lock.
 *
 * Why no program succeeds under a lease that ran out: sure_until is before the host's deadline by freeze_margin_ms. The
 * program reads the clock after it took the kernel lock. The keeper tells its parent each value of sure_until before it
 * writes that value here, and the parent begins to look for holders to freeze when the clock has reached it; so it
 * finds this program (promise 3). A lease that is unsure after that (rules/lease.h) is closed before sure_until is
 * raised again, and the program reads sure_until before it reads "open": a program that read the new time sees that the
 * slot is closed. (In the other order, a program that was stopped between the two reads, say with its machine
 * suspended, would combine "open" from before with the time from after.)
 *
 * Why an old page does no harm: there is one file for all keepers of a runtime directory, never truncated or replaced.
 * While a keeper is dead its leases are not given back, so an open slot stays true until sure_until. The next keeper
 * closes every slot before it does anything else. A slot may be used for another lease meanwhile: the slot says which
 * lease it is for, and that is read together with "open" (under a sequence number, odd while the slot is being
 * written).
 *
 * Why the right file: a slot names the inode and the path by which the keeper found the lock name. A program compares
 * both; it may remember for at most a second that a descriptor has this path (shim/recent.h). When the keeper reads the
 * configuration again, it closes every slot.
 *
 * Why the keeper can stop the program: the keeper finds holders by their numbers in /proc, so a reader must be in the
 * keeper's pid namespace (pid_dev, pid_ino). The keeper could find a program further in, too, but that program cannot
 * know where it is: it asks. A process never leaves its pid namespace, and the processes that it starts can only be
 * further in.
 *
 * All times are the keeper's: the reader's clock must not have another offset (time_dev, time_ino: its time
 * namespace).
 *
 * libc only, no allocation, callable anywhere.
 */
#ifndef DFLOCK_WIRE_LEASES_H
#define DFLOCK_WIRE_LEASES_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/msg.h"

#define LEASES_BUCKETS   1024
#define LEASES_IN_BUCKET 8

/* What a lock call looks for in the page, and what a slot says. */
struct leases_file {
	uint64_t dev, ino;
	uint64_t path_hash; /* leases_hash() */
};
struct leases_range {
	int64_t from, to;
	uint32_t space, mode; /* enum wire_space, enum wire_mode */
};

struct leases_entry {
	struct leases_file file;
	struct leases_range range;
	uint32_t open; /* 0: closed, or empty */
	uint32_t reserved;
};
struct leases_slot {
	uint32_t seq, reserved;
	struct leases_entry entry;
};
_Static_assert(sizeof(struct leases_slot) == 64, "the layout is the protocol; a slot is a cache line");

/*
 * Until when open slots may be believed (CLOCK_BOOTTIME), which clock that is, and in which namespace the keeper sees
 * processes. sure_until is never more than a second after the keeper was last alive: if keeper and parent are gone, a
 * program must ask, which starts a keeper that will freeze in time.
 */
struct leases_clock {
	int64_t sure_until_ns;
	uint64_t time_dev, time_ino; /* of the time namespace; 0: the kernel has none */
	uint64_t pid_dev, pid_ino;   /* of the pid namespace */
};

struct leases {
	uint32_t clock_seq, reserved[15];
	struct leases_clock clock;
	_Alignas(64) struct leases_slot slots[LEASES_BUCKETS][LEASES_IN_BUCKET];
};

/* The hash of a path as the kernel shows it. Never compared across machines. */
uint64_t leases_hash(const char *path);

/* The bucket in which a file's leases stand. */
unsigned leases_bucket(uint64_t dev, uint64_t ino);

/* An open slot of `file` that covers `wanted` (an exclusive lease covers both modes). NULL: there is none. */
const struct leases_slot *leases_find(const struct leases *leases, const struct leases_file *file,
				      const struct leases_range *wanted);

/* Does the slot still say so, and has the clock not reached sure_until? To be called after the kernel lock was taken, if
 * one is; contains the program's fence. */
bool leases_stand(const struct leases *leases, const struct leases_slot *slot, const struct leases_file *file,
		  const struct leases_range *wanted);

/* Fills in the namespaces of the calling process: the writer's side. What /proc does not show stays as it was. */
void leases_set_namespaces(struct leases_clock *clock);

/* Do the times of the leases mean the same to this process, and can the keeper see it? Looks into /proc; errno
 * changes. */
bool leases_same_namespaces(const struct leases *leases);

#endif
