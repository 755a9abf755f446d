/*
 * What the keeper and its parent share: until when the leases are sure, and which files they are for. If the keeper
 * cannot renew them, the parent stops the processes that hold kernel locks on these files, before the store can give
 * the leases to anyone else (promise 3 of docs/design.md).
 *
 * The keeper writes, the parent reads, each word atomically: the parent acts on what it sees at that moment, and
 * everything errs to the safe side: a slot is taken before a caller is granted, and freed only after the lease was
 * tested free. It is a file in the runtime directory, which outlives both: the next keeper takes up the slots, and the
 * next parent goes on watching the deadline, kills the holders of leases that were lost and lets go of whom an earlier
 * one stopped. One of another boot is worth nothing.
 *
 * Keeper side: loop only. fence_* with a NULL fence (no parent) do nothing.
 */
#ifndef DFLOCK_KEEPER_FENCE_H
#define DFLOCK_KEEPER_FENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "config/config.h"
#include "keeper/kernel/claims.h"
#include "keeper/clock.h"
#include "store/store.h"

#define FENCE_NAME      "fence"
#define FENCE_MAGIC     0x3565636e65666c64ull /* another layout: another number */
#define FENCE_SLOTS     65536
#define FENCE_SIGNALLED 4096
#define FENCE_CALLERS   1024

enum fence_state {
	FENCE_FREE,
	FENCE_HELD,   /* a lease, sure until freeze_at */
	FENCE_UNSURE, /* a lease that the store has yet to confirm: who is frozen stays so */
	FENCE_LOST,   /* gone: holders are killed, then the parent frees the slot */
	FENCE_ENDING, /* set by the parent: it is about to */
};

struct fence_slot {
	uint32_t state;       /* enum fence_state */
	uint32_t space;       /* enum wire_space */
	uint32_t hidden;      /* the parent's: it is held, but there is nobody who could be stopped ... */
	uint32_t hidden_said; /* ... and the log says so */
	uint64_t dev, ino;
	uint64_t kernel_dev, kernel_ino; /* what lock lines show (procfs.h); kernel_ino 0: the same */
	int64_t from, to;
	uint32_t on_lost; /* enum on_lost: what the rule of its file says */
	uint32_t why;     /* enum fence_why, of a lost one */
};

enum fence_why {
	FENCE_WHY_UNKNOWN, /* what a dead keeper had is not known */
	FENCE_WHY_TAKEN,   /* it was not renewed, and the store gave it up */
	FENCE_WHY_FORGOTTEN,
};

enum fence_noted {
	FENCE_OURS,   /* the parent has stopped it by SIGSTOP, which outlives the parent */
	FENCE_KIN,    /* an ancestor of such a process, which may stop itself because of that (keeper/guard/signalled.h) */
	FENCE_BEFORE, /* in a process group with a FENCE_KIN, and was stopped before */
};

/* pid 0: none. */
struct fence_signalled {
	int32_t pid;
	uint32_t noted;   /* enum fence_noted */
	uint64_t started; /* family_started() */
};

/*
 * A process that is in a lock call and has no answer. One that gets the kernel lock after the leases have ceased to be
 * sure, and not by inheritance, is such a one: it relies on nothing yet. From then on nobody is told that he may, so
 * that an entry stays true until the leases are sure again. Those who held the lock before are not meant, though they
 * call again.
 */
struct fence_caller {
	int32_t pid;
	uint32_t space;
	uint64_t dev, ino;
};

struct fence {
	uint64_t magic;
	char boot[CLOCK_BOOT_BYTES];
	pid_t parent;
	uint32_t ending;      /* the parent's: how often it was told to end (2: at once) */
	int64_t alive;        /* counts up while the loop turns */
	int64_t freeze_at_ns; /* CLOCK_BOOTTIME: holders must be stopped from then on; 0: no lease yet */
	int64_t deadline_ns;
	uint32_t used;                   /* slots beyond this were never taken */
	uint32_t first;                  /* where to begin looking for a free one: most often there is none before it */
	uint64_t busy[FENCE_SLOTS / 64]; /* a bit for each slot that is not free, or was not a moment ago */
	uint32_t frozen_count;           /* written by the parent: how many processes it holds stopped */
	struct fence_signalled signalled[FENCE_SIGNALLED]; /* the parent's */
	int64_t callers_ns;                                /* freeze_at_ns when the first of them was added */
	uint32_t caller_count;
	struct fence_caller callers[FENCE_CALLERS];
	struct fence_slot slots[FENCE_SLOTS];
};

#define FENCE_NO_SLOT UINT32_MAX

/*
 * The parent's: opens or makes RUNTIME_DIR/fence, whoever has keeper.lock. What an earlier keeper had is unsure, and
 * its holders are stopped at the old deadline if the next one does not come to renew it. NULL with errno set.
 */
struct fence *fence_open(int dir_fd);
/* A dead keeper's leases are for the next one to confirm. Parent. */
void fence_unsure(struct fence *fence);
/* Is there a lease, or one whose holders are to be killed? */
bool fence_in_use(const struct fence *fence);

/* A slot for a lease on this file. FENCE_NO_SLOT: none is left; then the lease must not be given to anybody. */
uint32_t fence_take(struct fence *fence, const struct holders_file *file, const struct store_range *range,
		    enum fence_state state, enum on_lost on_lost);
void fence_on_lost(struct fence *fence, uint32_t slot, enum on_lost on_lost);
/* Lost: FENCE_LOST, or free where nobody is to be killed for it (ON_LOST_WARN). */
void fence_lose(struct fence *fence, uint32_t slot, enum fence_why why);
/* The kernel's number of a slot's file. False, with 0: it is not known. */
bool fence_learnt(const struct fence *fence, uint32_t slot, uint64_t *kernel_dev, uint64_t *kernel_ino);
void fence_learn(struct fence *fence, uint32_t slot, uint64_t kernel_dev, uint64_t kernel_ino);
void fence_set(struct fence *fence, uint32_t slot, enum fence_state state);
/*
 * For the time in which a keeper takes up what a dead one had: the slots that no lease was found for yet, by what they
 * are for. NULL: no memory.
 */
struct fence_old;
struct fence_old *fence_old_new(const struct fence *fence);
void fence_old_free(struct fence_old *old);
/* The slot that a dead keeper had for such a lease, or a new one; it is in `old` no more. */
uint32_t fence_take_up(struct fence *fence, uint64_t dev, uint64_t ino, const struct store_range *range,
		       struct fence_old *old);
/* The leases are sure until this. */
void fence_renewed(struct fence *fence, int64_t freeze_at_ns, int64_t deadline_ns);
/* Someone is in a lock call without an answer; only when the leases have ceased to be sure. */
void fence_add_caller(struct fence *fence, const struct fence_caller *caller);
/* Is he? Parent. */
bool fence_has_caller(const struct fence *fence, const struct fence_caller *caller);
/* Tells the parent to look now. */
void fence_notify(const struct fence *fence);
/*
 * After a restart: what becomes of slots of the dead keeper that no lease was taken up for. FENCE_FREE: it had given
 * them back. FENCE_LOST: what it had is not known, and nobody renews it.
 */
void fence_sweep(struct fence *fence, const struct fence_old *old, enum fence_state to);

/* Has a lease been lost whose holders the parent has yet to kill? False if the parent has died: nobody will. */
bool fence_has_lost(const struct fence *fence);
/* One on this file. */
bool fence_has_lost_on(const struct fence *fence, uint64_t dev, uint64_t ino, enum wire_space space);

/* Is the lock of this lease held by nobody who could be stopped? Known only while the leases are unsure. */
bool fence_is_hidden(const struct fence *fence, uint32_t slot);
/*
 * For how long the keeper's loop may stand still until it counts as hanging: shorter where the leases run out soon.
 * since_ns: when it turned last. Pure but for the fence's words. Parent.
 */
int64_t fence_patience_ns(const struct fence *fence, int64_t since_ns);
/* How many processes the parent holds stopped. */
unsigned fence_frozen(const struct fence *fence);

#endif
