/*
 * Which lock a call wants, as its arguments say. No state, and no system call but for the offset and the size of the file.
 */
#ifndef DFLOCK_SHIM_INTENT_H
#define DFLOCK_SHIM_INTENT_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/file.h>
#include <unistd.h>

#include "wire/leases.h"
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
 * Fills mode and range of *want with those of *lock, a lock of `fd`; the space is WIRE_RECORD, the rest stays as it is.
 * 0; -errno of the look for the offset that l_start counts from; -EINVAL, -EOVERFLOW as fcntl(2) gives them
 * (F_UNLCK is -EINVAL, too: it takes no lock).
 *
 * [from, to) cannot tell the last two offsets apart (INTENT_LAST and the one before), and contains both if the lock has
 * one of them: no file has a byte there.
 */
int intent_record(int fd, const struct flock64 *lock, struct intent *want);

/* The way back: from a wire range to the kernel's last byte. */
static inline int64_t intent_last(int64_t to)
{
	return to == WIRE_EOF ? INTENT_LAST : to - 1;
}

/* The lock of this type on [first, last]. */
static inline struct flock64 intent_lock(int type, int64_t first, int64_t last)
{
	return (struct flock64){
		.l_type = (short)type,
		.l_whence = SEEK_SET,
		.l_start = first,
		.l_len = last == INTENT_LAST ? 0 : last - first + 1,
	};
}

/* The command of fcntl64() that takes or tests a lock for this owner. */
static inline int intent_command(const struct intent *want, bool test, bool wait)
{
	if (want->owner == WIRE_OWNER_PROCESS)
		return test ? F_GETLK64 : wait ? F_SETLKW64 : F_SETLK64;
	return test ? F_OFD_GETLK : wait ? F_OFD_SETLKW : F_OFD_SETLK;
}

/* The lease that the call needs, as the page shows it. */
static inline struct leases_range intent_wanted(const struct intent *want)
{
	return (struct leases_range){.from = want->from, .to = want->to, .space = want->space, .mode = want->mode};
}

/* The kind of lock that the call wants. */
static inline short intent_type(const struct intent *want)
{
	return want->mode == WIRE_SHARED ? F_RDLCK : F_WRLCK;
}

/* --- which record locks the caller had in a range before the call. The memory of a long list is mapped (no heap: signal handlers) --- */

#define EARLIER_FEW 8    /* kept in place */
#define EARLIER_MAX 4096 /* kept at all */

struct piece {
	int64_t first, last; /* both included */
	enum wire_mode mode;
};

struct own {
	int64_t first, last; /* the range */
	int64_t next_from;   /* of the next question: all locks that end up to here are known */
	bool exclusive;      /* one of the pieces is exclusive */
	size_t count;
	struct piece *many; /* the list, if it is long; else NULL */
	struct piece few[EARLIER_FEW];
};

/* An empty list for [first, last]. Releases nothing. */
void own_init(struct own *e, int64_t first, int64_t last);

/* Unmaps a long list, which is then empty. */
void own_release(struct own *e);

/*
 * Takes the answer to a WIRE_BEFORE that asked from e->next_from: a lock over [from, to), or from == to: there are no
 * more. 1: the list is complete. 0: ask for the next one. -EPROTO: such an answer is impossible. -E2BIG, -ENOMEM: the
 * list is too long.
 */
int own_add(struct own *e, unsigned int mode, int64_t from, int64_t to);

/* Goes through the range, cut where the mode changes: for (struct stretch s = {0}; own_next(e, &s);). */
#define EARLIER_NONE (-1)
struct stretch {
	int64_t first, last;
	int had;    /* enum wire_mode, or EARLIER_NONE */
	bool begun; /* this and the next: own_next()'s own */
	size_t piece;
};
bool own_next(const struct own *e, struct stretch *s);

#endif
