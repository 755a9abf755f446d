/*
 * The parent's reading of the table of leases: which slots a step is about, and what they claim.
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

#include "keeper/guard/fence.h"
#include "keeper/kernel/claims.h"

#define SLOTS_IN(state)   (1u << (state))
#define SLOTS_AS(on_lost) (1u << (8 + (on_lost)))

/* Leases that end at the deadline. */
#define SLOTS_SURE_UNTIL (SLOTS_IN(FENCE_HELD) | SLOTS_IN(FENCE_UNSURE))

/* Is there such a slot? */
bool slots_any(const struct fence *fence, unsigned which);
/* Gives all such slots another state. */
void slots_set(struct fence *fence, unsigned which, enum fence_state to);
/*
 * Adds what such slots are for, each with its slot as tag, and builds the claims. claims: begin with {0}; claims_free()
 * also after an error. 0 or -ENOMEM.
 */
int slots_claims(const struct fence *fence, unsigned which, struct claims *claims);

/* From when on holders have to be stopped (0: there was no lease yet), and until when the leases are sure. In
 * CLOCK_BOOTTIME. */
int64_t slots_freeze_at_ns(const struct fence *fence);
int64_t slots_deadline_ns(const struct fence *fence);
/* How many processes the parent holds stopped: for the keeper's status. */
void slots_tell_frozen(struct fence *fence, unsigned count);

#endif
