/*
 * Which record locks the caller had in a range before the call, and what follows from that. Pure, but for the memory of
 * a long list, which is mapped (no heap: signal handlers).
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
	int64_t next_from;   /* of the next question: every lock that ends before it is known */
	bool exclusive;      /* one of the pieces is */
	size_t count;
	struct piece *many; /* the list, if it is long; else NULL */
	struct piece few[EARLIER_FEW];
};

/* An empty list for [first, last]. Releases nothing. */
void earlier_init(struct earlier *e, int64_t first, int64_t last);

/* Unmaps; the list is then empty. */
void earlier_release(struct earlier *e);

/*
 * Takes the answer to a WIRE_BEFORE with e->next_from: a lock over [from, to), or from == to: no more. 1: the list is
 * complete; 0: ask on; -EPROTO: no such answer is possible; -E2BIG, -ENOMEM: the list is too long.
 */
int earlier_add(struct earlier *e, unsigned int mode, int64_t from, int64_t to);

/* The range, cut where the mode changes: for (struct stretch s = {0}; earlier_next(e, &s);). */
#define EARLIER_NONE (-1)
struct stretch {
	int64_t first, last;
	int had; /* enum wire_mode, or EARLIER_NONE */
	bool begun;
	size_t piece;
};
bool earlier_next(const struct earlier *e, struct stretch *s);

#endif
