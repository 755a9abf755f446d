/*
 * The tally: which lock calls the programs of one job made, for `dflock run --report`.
 *
 * dflock makes it, a sealed memfd that cannot shrink, and names it in DFLOCK_REPORT; the library in each process of the
 * job maps it and counts in it; dflock reads it when the job has ended. It holds sums and no list of calls: so it has
 * room for a job of any length, nothing is sent while the job runs, and no disk can be full.
 *
 * An entry is one program's calls on one file. A held lock has a slot from the call that took it to the call that
 * unlocks it, which another process may make. Every process of the job can write anything anywhere here, and can be
 * killed at any moment. So no process waits for another: an entry that is being made by another process is passed over
 * (the same file may get two entries, which dflock adds up), and no offset is believed without a check. What a lost
 * race costs is one count, or the time of one lock.
 *
 * libc only, no allocation, no lock: callable in signal handlers, from every thread, in a vfork child.
 */
#ifndef DFLOCK_WIRE_TALLY_H
#define DFLOCK_WIRE_TALLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/msg.h"

#define TALLY_ENV           "DFLOCK_REPORT"
#define TALLY_MAGIC         UINT64_C(0x796c6c6174666c64) /* "dlftally" */
#define TALLY_VERSION       5
#define TALLY_ENTRIES       4096 /* a power of two */
#define TALLY_NAMES_BYTES   (1u << 20)
#define TALLY_PROGRAM_BYTES 16 /* as the kernel's comm, NUL included */
#define TALLY_HELD          256

enum tally_count {
	TALLY_CALLS,  /* that ask for a lock, when they begin */
	TALLY_LEASED, /* of these: got the lock, with a lease */
	TALLY_ALONE,  /* got the lock from this kernel alone */
	TALLY_BUSY,   /* did not wait, and another process or host has the lock */
	TALLY_REFUSED,
	TALLY_FAILED,
	TALLY_TESTS,   /* F_GETLK, F_OFD_GETLK, F_TEST */
	TALLY_FOUND,   /* of these: a lock was in the way */
	TALLY_UNLOCKS, /* that succeeded */
	TALLY_WAITED_NS,
	TALLY_WAITED_MAX_NS,
	TALLY_ENDED,       /* locks that an unlock call ended */
	TALLY_HELD_NS,     /* for how long at least one of these was held */
	TALLY_HELD_MAX_NS, /* the longest of these */
	TALLY_CAUGHT, /* by the net, which let them go on with a grant; of programs with the preload, also counted above */
	TALLY_CAUGHT_FAILED, /* ... and which it ended: another host has the lock, or it was refused */
	TALLY_CAUGHT_BUSY,   /* of these: another host has the lock */
	TALLY_COUNTS
};

enum tally_state { TALLY_FREE = 0, TALLY_BEING_MADE, TALLY_READY };

struct tally_entry {
	uint32_t state; /* enum tally_state */
	uint32_t space;
	uint64_t hash;
	uint32_t path_at, path_bytes; /* in names; without the NUL, which follows */
	uint32_t moved;               /* the path is that of another root directory than at the program's start */
	uint32_t reserved;
	char program[TALLY_PROGRAM_BYTES];
	uint64_t counts[TALLY_COUNTS];
};

/* The owner of an exclusive lock, which any process may unlock that has its description. */
#define TALLY_ANYBODY 0
struct tally_lock {
	uint64_t dev, ino;
	int64_t first, last; /* of the range, both included; 0 and INT64_MAX in the flock space */
	uint32_t space, exclusive;
	uint32_t owner; /* the pid if the lock is shared or a process's; else TALLY_ANYBODY */
	uint32_t reserved;
};

struct tally_slot {
	uint32_t state;
	uint32_t entry; /* of the program that took the lock */
	struct tally_lock lock;
	int64_t since_ns;
	uint64_t told_ns; /* of the time since then: counted already, for locks of this entry that have ended */
};

struct tally {
	uint64_t magic;
	uint32_t version;
	uint32_t names_used;
	uint64_t left_out; /* calls on files for which there was no room */
	uint64_t reserved[5];
	_Alignas(64) struct tally_entry entries[TALLY_ENTRIES];
	_Alignas(64) struct tally_slot held[TALLY_HELD];
	_Alignas(64) char names[TALLY_NAMES_BYTES];
};
_Static_assert(sizeof(struct tally_entry) % 8 == 0 && sizeof(struct tally_slot) == 72, "32-bit programs see the same");

/* --- the library's side --- */

struct tally_key {
	const char *program; /* cut off at TALLY_PROGRAM_BYTES - 1 */
	const char *path;
	enum wire_space space;
	bool moved;
};

/* The entry of this program and file, made if it is missing. NULL: there is no room, which is counted as left out. */
struct tally_entry *tally_find(struct tally *tally, const struct tally_key *key);

void tally_add(struct tally_entry *entry, enum tally_count which, uint64_t n);
/* Adds to `sum` (TALLY_WAITED_NS), and keeps the largest in the count after it. A negative time counts as none. */
void tally_add_time(struct tally_entry *entry, enum tally_count sum, int64_t ns);

/* The lock was taken now. Ends, without a time, what cannot be held beside it: those locks ended by a close. */
void tally_take(struct tally *tally, const struct tally_entry *entry, const struct tally_lock *lock, int64_t now_ns);
/* This range was unlocked by the process `pid`; lock->owner and lock->exclusive do not count. */
void tally_unlock(struct tally *tally, const struct tally_lock *lock, uint32_t pid, int64_t now_ns);

/* --- dflock's side --- */

/* `tally` is all zero. */
void tally_init(struct tally *tally);

struct tally_line {
	char program[TALLY_PROGRAM_BYTES];
	const char *path; /* in the tally */
	enum wire_space space;
	bool moved;
	uint64_t counts[TALLY_COUNTS];
};
/* Entry `i` of a tally that no process writes any more (a copy). False: there is none. Any contents are harmless; sets
 * the last byte of the names. */
bool tally_read(struct tally *tally, size_t i, struct tally_line *line);

#endif
