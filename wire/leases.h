/*
 * The leases in the shared page: a lock whose lease the host has, and nobody recalls, needs no question to the keeper.
 *
 * Written by the keeper, a slot for each lease that it grants from; read by programs:
 *
 *   program                                        keeper
 *   page says open -> takes the kernel lock        closes the slot
 *   full fence                                     full fence
 *   page says open and now < sure_until: success   probes the kernel: in use?
 *   else: keeps the kernel lock, asks the keeper   free -> gives the lease back
 *
 * Why no program succeeds under a lease that was given back (promise 1): it succeeds if it read "open" after it took
 * the kernel lock. Of two threads that each write, fence and then read what the other one writes, at least one sees the
 * other's write. The program read "open", so it did not see the close: then the keeper's probe sees the kernel lock,
 * and does not give the lease back (promise 2). Both fences are needed: the kernel's test for record locks has a path
 * that takes no lock.
 *
 * Why none succeeds under a lease that ran out: sure_until is before the host's deadline by freeze_margin_ms. The
 * clock is read after the kernel lock was taken. The keeper's parent begins to look for holders to freeze when the
 * clock has reached the value that it was told before it was written here, so it finds this one (promise 3). What is
 * unsure after that (LEASE_UNSURE) is closed before sure_until is raised again, and the program reads sure_until before
 * it reads "open": if it met the new time, it sees that the slot is closed. (The other way round, one that was stopped
 * between the two, in a machine that was suspended, say, would take "open" from before and the time from after.)
 *
 * Why an old page does no harm: there is one file for all keepers of a runtime directory, never truncated or replaced.
 * While a keeper is dead nobody gives its leases back, so what is open stays true until sure_until. The next keeper
 * closes every slot before it does anything else. A slot may be used for another lease meanwhile: whose it is stands in
 * it, and is read together with "open" (a sequence number, odd while the slot is being written).
 *
 * Why the right file: a slot names the inode and the path by which the keeper found the lock name. A program compares
 * both; that a descriptor has this path may be remembered for at most a second (shim/protect.h). When the configuration
 * is read again, every slot is closed.
 *
 * Why the keeper can stop it: it finds holders by their numbers in /proc, so a reader must be in the keeper's pid
 * namespace (pid_dev, pid_ino). One further in could be found, too, but cannot tell: it asks. A process never leaves its
 * pid namespace, and what it starts can only be further in.
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

/* What a lock call wants of the page, and what a slot says. */
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
 * Until when leases are sure, CLOCK_BOOTTIME, but not for longer than a second from when the keeper was last alive: if
 * keeper and parent are gone, somebody must ask, to start a keeper that will freeze in time. And which clock that is,
 * and where the keeper can see processes.
 */
struct leases_clock {
	int64_t sure_until_ns;
	uint64_t time_dev, time_ino; /* of the time namespace; 0: there are none */
	uint64_t pid_dev, pid_ino;   /* of the pid namespace */
};

struct leases {
	uint32_t clock_seq, reserved[15];
	struct leases_clock clock;
	_Alignas(64) struct leases_slot slots[LEASES_BUCKETS][LEASES_IN_BUCKET];
};

/* Of a path as the kernel shows it. */
uint64_t leases_hash(const char *path);

/* The bucket in which a file's leases stand. */
unsigned leases_bucket(uint64_t dev, uint64_t ino);

/* An open slot of `file` that covers `wanted`; NULL: none. */
const struct leases_slot *leases_find(const struct leases *leases, const struct leases_file *file,
				      const struct leases_range *wanted);

/* Does it (still) say so, and has the clock not reached sure_until? Call it after the kernel lock was taken; has the
 * fence. */
bool leases_stand(const struct leases *leases, const struct leases_slot *slot, const struct leases_file *file,
		  const struct leases_range *wanted);

/* Fills in the writer's own namespaces. */
void leases_set_namespaces(struct leases_clock *clock);

/* Do the leases' times mean the same to this process, and can the keeper see it? Asks /proc. */
bool leases_same_namespaces(const struct leases *leases);

#endif
