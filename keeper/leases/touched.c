/* See touched.h. */
#include "keeper/leases/touched.h"

#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"

static unsigned touched_bit(const char *name, enum wire_space space)
{
	return (unsigned)((leases_hash(name) ^ (uint64_t)space) % TOUCHED_BITS);
}

void touched_set(struct keeper *k, bool on)
{
	k->touched = (struct touched){.on = on};
}

bool touched_has(const struct keeper *k, const char *name, enum wire_space space)
{
	unsigned bit = touched_bit(name, space);

	return k->touched.bits[bit / 8] & 1 << bit % 8;
}

void touched_add(const struct lock *lock)
{
	struct touched *t = &lock->file->keeper->touched;
	unsigned bit;

	if (!t->on)
		return;
	bit = touched_bit(lock->file->name, lock->space);
	t->bits[bit / 8] |= (uint8_t)(1 << bit % 8);
}
