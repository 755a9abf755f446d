#include "shim/earlier.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "shim/intent.h"

#define MANY_BYTES (EARLIER_MAX * sizeof(struct piece))

void earlier_init(struct earlier *e, int64_t first, int64_t last)
{
	/* Not all of it: `few` is large, and this is part of each lock call. */
	e->first = first;
	e->last = last;
	e->next_from = first;
	e->count = 0;
	e->exclusive = false;
	e->many = NULL;
}

void earlier_release(struct earlier *e)
{
	if (e->many)
		munmap(e->many, MANY_BYTES);
	earlier_init(e, e->first, e->last);
}

static int append(struct earlier *e, const struct piece *piece)
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

int earlier_add(struct earlier *e, unsigned int mode, int64_t from, int64_t to)
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
	ret = append(e, &piece);
	if (ret < 0)
		return ret;
	e->next_from = to;
	return piece.last == e->last;
}

bool earlier_next(const struct earlier *e, struct stretch *s)
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
