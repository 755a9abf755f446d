/*
 * Calls under way: lock calls that the kernel was told to go on with, after a grant, and whose threads were not seen out of
 * them since. So each of these threads may take the kernel lock at any moment, and its program relies on it as soon as the
 * call returns. These are calls that the net caught (docs/net.md); a call of the preload asks again after it has the lock.
 *
 * RUNTIME_DIR/calls, a file on a tmpfs, beside the table of leases and for the same three processes: the keeper writes an
 * entry before it grants the call, and takes it away when the thread was seen out of it; the parent stops the processes of
 * entries together with the holders; the next keeper finds the entries as they are. A file of another boot, another version or
 * another size is void.
 *
 * An entry counts as a whole or not at all: `taken` is written last, and taken away first. A keeper that dies while it writes
 * one has granted nothing under it.
 *
 * Neither allocates memory nor waits. Loop only in the keeper; one thread in the parent.
 */
#ifndef DFLOCK_KEEPER_UNDERWAY_H
#define DFLOCK_KEEPER_UNDERWAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define UNDERWAY_NAME  "calls"
#define UNDERWAY_CALLS 1024

struct underway_call {
	int32_t thread, pid; /* the thread, and its process */
	uint64_t started;    /* of the thread: family_started() */
	uint64_t number;     /* grows with each of the thread's calls, and may pass from the largest to 0 */
	uint64_t dev, ino;   /* the lock: file and space */
	uint32_t space;      /* enum wire_space */
	uint32_t uid;        /* onbehalf.h: of the thread */
	int64_t from, to;    /* half open */
	uint64_t taken;      /* 0: the entry is free */
};

struct underway_file;

/* This process's view. All zero: closed, and nothing is under way. A forked keeper uses its copy. */
struct underway {
	struct underway_file *file; /* NULL: closed */
};

/* For the parent: opens what an earlier keeper has left, or makes it. 0 or -errno; then no call can be noted. */
int underway_open(struct underway *underway, int dir_fd);
void underway_close(struct underway *underway);

/* The whole file, as it is in memory; NULL: closed. */
const void *underway_bytes(const struct underway *underway, size_t *bytes);

/* Notes a call; call->taken is not read. 0, also if it is there already; -ENOSPC: there is no room, or the file is closed. */
int underway_note(struct underway *underway, const struct underway_call *call);
/*
 * The thread makes the call `number`, so it has left all earlier calls: their entries end. False: an entry has a later
 * number. Then who asks is not up to date (a supervisor that died has asked before), and nothing changes.
 */
bool underway_begin(struct underway *underway, int32_t thread, uint64_t started, uint64_t number);

/* Is there a call? */
bool underway_any(const struct underway *underway);
/* Is the call on this lock, in this range or a part of it? */
bool underway_is_on(const struct underway_call *call, uint64_t dev, uint64_t ino, uint32_t space, int64_t from,
		    int64_t to);
/* The entries: *next is 0 for the first call. False: no more. *out is a copy. */
bool underway_next(const struct underway *underway, size_t *next, struct underway_call *out);
/* The entries of one thread: cheaper. */
bool underway_next_of(const struct underway *underway, int32_t thread, size_t *next, struct underway_call *out);
/* How many entries there are: in all, and of this user. */
size_t underway_count(const struct underway *underway, uid_t uid, size_t *of_user);
/* The thread was seen out of the call whose entry is `call`. An entry that has changed since stays. */
void underway_end(struct underway *underway, const struct underway_call *call);

#endif
