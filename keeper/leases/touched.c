/* See touched.h. */
#include "keeper/leases/touched.h"

#include <stdint.h>
#include <stdlib.h>
#include <uthash.h>

#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"

struct touched_name {
	uint64_t hash;
	UT_hash_handle hh;
};

/* Two names with one hash: one lock is not judged that could be. */
static uint64_t touched_hash(const char *name, enum wire_space space)
{
	return leases_hash(name) ^ (uint64_t)space;
}

static void touched_clear(struct touched *t)
{
	struct touched_name *item, *next;

	HASH_ITER (hh, t->names, item, next) {
		HASH_DEL(t->names, item);
		free(item);
	}
	t->over = false;
}

void touched_begin(struct keeper *k)
{
	touched_clear(&k->touched);
	k->touched.on = true;
}

void touched_end(struct keeper *k)
{
	touched_clear(&k->touched);
	k->touched.on = false;
}

bool touched_has(const struct keeper *k, const char *name, enum wire_space space)
{
	uint64_t hash = touched_hash(name, space);
	const struct touched_name *item;

	HASH_FIND(hh, k->touched.names, &hash, sizeof(hash), item);
	return k->touched.over || item;
}

void touched_add(const struct lock *lock)
{
	struct touched *t = &lock->file->keeper->touched;
	struct touched_name *item;

	if (!t->on || touched_has(lock->file->keeper, lock->file->name, lock->space))
		return;
	item = HASH_COUNT(t->names) < TOUCHED_MAX ? calloc(1, sizeof(*item)) : NULL;
	if (!item) {
		t->over = true;
		return;
	}
	item->hash = touched_hash(lock->file->name, lock->space);
	HASH_ADD(hh, t->names, hash, sizeof(item->hash), item);
}
