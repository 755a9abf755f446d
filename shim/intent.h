/*
 * Which lock a call wants, as its arguments alone say. Pure: no system call, no state.
 */
#ifndef DFLOCK_SHIM_INTENT_H
#define DFLOCK_SHIM_INTENT_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/file.h>

#include "wire/msg.h"

/* The kernel's OFFSET_MAX: the last byte that a record lock can reach. */
#define INTENT_LAST INT64_MAX

struct intent {
	enum wire_space space;
	enum wire_mode mode;
	enum wire_owner owner;
	bool nonblock;       /* the caller does not wait */
	bool raw;            /* the call came through syscall(): waiting is no cancellation point */
	int64_t from, to;    /* [from, to) as in struct wire_request */
	int64_t first, last; /* record space: the range as the kernel has it, the last byte included */
};

/* Does flock(fd, op) take a lock? The kernel, too, compares the whole word: LOCK_SH | LOCK_EX is EINVAL. */
static inline bool intent_is_flock(int op)
{
	return (op & ~LOCK_NB) == LOCK_SH || (op & ~LOCK_NB) == LOCK_EX;
}

/* Says whether flock(fd, op) takes a lock, and which. False: it unlocks, or the kernel refuses this op; *want is
 * untouched then. */
bool intent_flock(int op, struct intent *want);

/*
 * Fills mode and range of *want with those of *lock; the space is WIRE_RECORD, the rest stays as it is. `base`: the
 * offset that l_start counts from: 0, the current offset, or the size. 0; -EINVAL, -EOVERFLOW as fcntl(2) gives them
 * (F_UNLCK is -EINVAL, too: it takes no lock).
 *
 * [from, to) cannot tell the last two offsets apart (INTENT_LAST and the one before), and contains both if the lock has
 * one of them: no file has a byte there.
 */
int intent_record(const struct flock64 *lock, int64_t base, struct intent *want);

/* The way back: from a wire range to the kernel's last byte. */
static inline int64_t intent_last(int64_t to)
{
	return to == WIRE_EOF ? INTENT_LAST : to - 1;
}

/* The l_len of [first, last]. */
static inline int64_t intent_len(int64_t first, int64_t last)
{
	return last == INTENT_LAST ? 0 : last - first + 1;
}

#endif
