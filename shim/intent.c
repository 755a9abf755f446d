#include "shim/intent.h"

#include <errno.h>
#include <unistd.h>

bool intent_flock(int op, struct intent *want)
{
	if (!intent_is_flock(op))
		return false;
	*want = (struct intent){
		.space = WIRE_FLOCK,
		.mode = (op & ~LOCK_NB) == LOCK_SH ? WIRE_SHARED : WIRE_EXCLUSIVE,
		.owner = WIRE_OWNER_DESCRIPTION,
		.nonblock = (op & LOCK_NB) != 0,
		.from = 0,
		.to = WIRE_EOF,
	};
	return true;
}

/* The order of the checks is that of flock64_to_posix_lock() in Linux' fs/locks.c. */
int intent_record(const struct flock64 *lock, int64_t base, struct intent *want)
{
	int64_t first, last = INTENT_LAST;

	if (lock->l_whence != SEEK_SET && lock->l_whence != SEEK_CUR && lock->l_whence != SEEK_END)
		return -EINVAL;
	if (lock->l_start > INTENT_LAST - base)
		return -EOVERFLOW;
	first = base + lock->l_start;
	if (first < 0)
		return -EINVAL;
	if (lock->l_len > 0) {
		if (lock->l_len - 1 > INTENT_LAST - first)
			return -EOVERFLOW;
		last = first + (lock->l_len - 1);
	} else if (lock->l_len < 0) {
		if (first + lock->l_len < 0)
			return -EINVAL;
		last = first - 1;
		first += lock->l_len;
	}
	if (lock->l_type != F_RDLCK && lock->l_type != F_WRLCK)
		return -EINVAL;
	want->space = WIRE_RECORD;
	want->mode = lock->l_type == F_RDLCK ? WIRE_SHARED : WIRE_EXCLUSIVE;
	want->first = first;
	want->last = last;
	want->from = first < INTENT_LAST ? first : INTENT_LAST - 1;
	want->to = last < INTENT_LAST ? last + 1 : WIRE_EOF;
	return 0;
}
