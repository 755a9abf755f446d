#include "shim/intent.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "wire/sys.h"

#define MANY_BYTES (EARLIER_MAX * sizeof(struct piece))

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
		.last = INTENT_LAST,
	};
	return true;
}

/* The offset that l_start counts from, or -errno. 0 also for an unknown `whence`, which intent_range() refuses. */
static int64_t intent_base(int fd, int whence)
{
	struct statx stx;
	long ret;

	if (whence == SEEK_CUR) {
#ifdef SYS__llseek
		int64_t offset;

		ret = sys(_llseek, fd, 0L, 0L, &offset, SEEK_CUR);

		return ret < 0 ? ret : offset;
#else
		return sys(lseek, fd, 0L, SEEK_CUR);
#endif
	}
	if (whence != SEEK_END)
		return 0;
	/* DONT_SYNC: the size that this kernel knows, by which it also goes in fcntl(). */
	ret = sys(statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_SIZE, &stx);
	return ret < 0 ? ret : (int64_t)stx.stx_size;
}

/* The order of the checks is that of flock64_to_posix_lock() in Linux' fs/locks.c. */
static int intent_range(const struct flock64 *lock, int64_t base, struct intent *want)
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

int intent_record(int fd, const struct flock64 *lock, struct intent *want)
{
	int64_t base = intent_base(fd, lock->l_whence);

	return base < 0 ? (int)base : intent_range(lock, base, want);
}

/* --- own locks --- */

void own_init(struct own *e, int64_t first, int64_t last)
{
	/* Not all of it: `few` is large, and this is part of each lock call. */
	e->first = first;
	e->last = last;
	e->next_from = first;
	e->count = 0;
	e->exclusive = false;
	e->many = NULL;
}

void own_release(struct own *e)
{
	if (e->many)
		munmap(e->many, MANY_BYTES);
	own_init(e, e->first, e->last);
}

static int own_append(struct own *e, const struct piece *piece)
{
	void *many;

	if (e->count == EARLIER_MAX)
		return -E2BIG;
	if (e->count == EARLIER_FEW && !e->many) {
		many = mmap(NULL, MANY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (many == MAP_FAILED)
			return -ENOMEM;
		e->many = many;
		memcpy(e->many, e->few, sizeof(e->few));
	}
	(e->many ? e->many : e->few)[e->count++] = *piece;
	e->exclusive |= piece->mode == WIRE_EXCLUSIVE;
	return 0;
}

int own_add(struct own *e, unsigned int mode, int64_t from, int64_t to)
{
	struct piece piece = {.first = from, .last = intent_last(to), .mode = (enum wire_mode)mode};
	int ret;

	if (from == to)
		return 1;
	if (mode >= WIRE_MODES || from < 0 || to < from || to <= e->next_from)
		return -EPROTO;
	/* Only the first lock may begin before the range, and so before the place that was asked from. */
	if (e->count > 0 && from < e->next_from)
		return -EPROTO;
	if (piece.first > e->last)
		return 1;
	if (piece.first < e->first)
		piece.first = e->first;
	if (piece.last > e->last)
		piece.last = e->last;
	ret = own_append(e, &piece);
	if (ret < 0)
		return ret;
	e->next_from = to;
	return piece.last == e->last;
}

bool own_next(const struct own *e, struct stretch *s)
{
	const struct piece *list = e->many ? e->many : e->few;
	const struct piece *p;

	if (s->begun && s->last == e->last)
		return false;
	s->first = s->begun ? s->last + 1 : e->first;
	s->begun = true;
	p = s->piece < e->count ? &list[s->piece] : NULL;
	if (p && p->first == s->first) {
		s->had = (int)p->mode;
		s->last = p->last;
		s->piece++;
	} else {
		s->had = EARLIER_NONE;
		s->last = p ? p->first - 1 : e->last;
	}
	return true;
}
