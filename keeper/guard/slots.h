/*
 * The parent's side of the table of leases: which slots a step is about, and what they claim.
 *
 * A step names its slots by a mask: SLOTS_IN(STATE) for each state that counts, and SLOTS_AS(ON_LOST) for each on_lost
 * that counts; without any SLOTS_AS() every on_lost counts. Each word is read atomically: the keeper may write it at
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

#define SLOTS_IN(state)   (1u << (state))
#define SLOTS_AS(on_lost) (1u << (8 + (on_lost)))
#define SLOTS_BROKEN      (1u << 12) /* only leases that an operator takes away, which the store still has */
#define SLOTS_UNBROKEN    (1u << 13) /* only others */

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
bool slots_any(struct table *table, unsigned which);
/* Gives all such slots another state. */
void slots_set(struct table *table, unsigned which, enum table_state to);
/*
 * Adds a claim for the range of each such slot, with slots_tag() as tag, and builds the claims. claims: begin with {0};
 * claims_free() also after an error. 0 or -ENOMEM.
 */
int slots_claims(struct table *table, unsigned which, struct claims *claims);

/* The moment at which holders have to be stopped (0: there was no lease so far), and until when the leases are sure. Both in
 * CLOCK_BOOTTIME. */
int64_t slots_freeze_at_ns(const struct table *table);
int64_t slots_deadline_ns(const struct table *table);
/* How many processes the parent holds stopped: for the keeper's status. */
void slots_tell_frozen(struct table *table, unsigned count);

#endif
