/*
 * Which record locks the caller had in a range before the call. Pure, except that the memory of a long list is mapped
 * (no heap: signal handlers).
 */
#ifndef DFLOCK_SHIM_EARLIER_H
#define DFLOCK_SHIM_EARLIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/msg.h"

#define EARLIER_FEW 8    /* kept in place */
#define EARLIER_MAX 4096 /* kept at all */

struct piece {
	int64_t first, last; /* both included */
	enum wire_mode mode;
};

struct earlier {
	int64_t first, last; /* the range */
	int64_t next_from;   /* of the next question: all locks that end up to here are known */
	bool exclusive;      /* one of the pieces is exclusive */
	size_t count;
	struct piece *many; /* the list, if it is long; else NULL */
	struct piece few[EARLIER_FEW];
};

/* An empty list for [first, last]. Releases nothing. */
void earlier_init(struct earlier *e, int64_t first, int64_t last);

/* Unmaps a long list, which is then empty. */
void earlier_release(struct earlier *e);

/*
 * Takes the answer to a WIRE_BEFORE that asked from e->next_from: a lock over [from, to), or from == to: there are no
 * more. 1: the list is complete. 0: ask for the next one. -EPROTO: such an answer is impossible. -E2BIG, -ENOMEM: the
 * list is too long.
 */
int earlier_add(struct earlier *e, unsigned int mode, int64_t from, int64_t to);

/* Goes through the range, cut where the mode changes: for (struct stretch s = {0}; earlier_next(e, &s);). */
#define EARLIER_NONE (-1)
struct stretch {
	int64_t first, last;
	int had;    /* enum wire_mode, or EARLIER_NONE */
	bool begun; /* this and the next: earlier_next()'s own */
	size_t piece;
};
bool earlier_next(const struct earlier *e, struct stretch *s);

#endif
