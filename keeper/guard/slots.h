/*
 * The parent's side of the table of leases: which slots a step is about, and what they claim.
 *
 * A step names its slots by a mask: SLOTS_IN(STATE) for each state that counts, SLOTS_AS(ON_LOST) for each on_lost that
 * counts, and SLOTS_OF(member) for each of the host's stores whose leases count; without any SLOTS_AS() every on_lost does,
 * without any SLOTS_OF() every store. Each word is read atomically: the keeper may write it at
 * the same time, and the parent acts on what it sees at that moment.
 *
 * Parent only. None of these blocks.
 */
#ifndef DFLOCK_KEEPER_SLOTS_H
#define DFLOCK_KEEPER_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "keeper/guard/table.h"
#include "keeper/kernel/claims.h"

#define SLOTS_IN(state)   (UINT64_C(1) << (state))
#define SLOTS_AS(on_lost) (UINT64_C(1) << (8 + (on_lost)))
#define SLOTS_OF(member)  (UINT64_C(1) << (32 + (member)))
#define SLOTS_BROKEN      (UINT64_C(1) << 12) /* only leases that an operator takes away, which the store still has */
#define SLOTS_UNBROKEN    (UINT64_C(1) << 13) /* only others */

_Static_assert(32 + TABLE_MEMBERS <= 64, "a bit for each store");

/* Leases that end at the deadline. */
#define SLOTS_SURE_UNTIL (SLOTS_IN(TABLE_HELD) | SLOTS_IN(TABLE_UNSURE))

/* Leases that are not confirmed, or whose holders are still to be killed. */
#define SLOTS_DUE (SLOTS_IN(TABLE_UNSURE) | SLOTS_IN(TABLE_LOST) | SLOTS_IN(TABLE_ENDING))

/* A claim's tag: the slot, and the lease that it was for. When the search ends, the slot may be another lease's. */
static inline uint64_t slots_tag(uint32_t slot, uint64_t generation)
{
	return generation << 16 | slot;
}
static inline uint32_t slots_tag_slot(uint64_t tag)
{
	return tag & (TABLE_SLOTS - 1);
}
static inline uint64_t slots_tag_generation(uint64_t tag)
{
	return tag >> 16;
}

/* Is there such a slot? */
bool slots_any(struct table *table, uint64_t which);
/* Gives all such slots another state. */
void slots_set(struct table *table, uint64_t which, enum table_state to);
/*
 * Adds a claim for the range of each such slot, with slots_tag() as tag, and builds the claims. claims: begin with {0};
 * claims_free() also after an error. 0 or -ENOMEM.
 */
int slots_claims(struct table *table, uint64_t which, struct claims *claims);

/* In which stores there is such a slot: SLOTS_OF() of each. */
uint64_t slots_stores(struct table *table, uint64_t which);
/* Those of these stores whose holders have to be stopped now. */
uint64_t slots_past(const struct table *table, uint64_t stores, int64_t now_ns);
/*
 * Of these stores, the one whose leases end first, of those that are sure still; if none is, the one whose leases ended
 * last. False: none of them has ever had a lease.
 */
struct slots_times {
	int64_t freeze_at_ns, deadline_ns; /* CLOCK_BOOTTIME */
};
bool slots_first(const struct table *table, uint64_t stores, int64_t now_ns, struct slots_times *out);
int64_t slots_freeze_at_ns(const struct table *table, unsigned member); /* 0: there was no lease so far */
/* How many processes the parent holds stopped: for the keeper's status. */
void slots_tell_frozen(struct table *table, unsigned count);

#endif
