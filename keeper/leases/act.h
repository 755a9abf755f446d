/*
 * Runs the actions of the lease table. Loop only.
 */
#ifndef DFLOCK_KEEPER_ACT_H
#define DFLOCK_KEEPER_ACT_H

#include "keeper/keeper.h"

/*
 * Around everything that walks lists of leases, files or callers: what ends meanwhile is freed at the outermost
 * keeper_leave(), not under the walker's feet.
 */
void keeper_enter(struct keeper *k);
void keeper_leave(struct keeper *k);

/* Something happened to the lease. It may end and, outside keeper_enter(), be freed: do not use it afterwards.
 * LEASE_EVENTS as the event: nothing, but what has ended is freed. */
void lease_raise(struct lease *lease, enum lease_event event);
/* The same for every lease of the keeper. */
void keeper_raise_all(struct keeper *k, enum lease_event event);

/* The store has lost it, and it is to be put back; or it was. */
void lease_set_forgotten(struct lease *lease, bool forgotten);

/* A caller was granted under it: it is given back linger_ms after the last of them at the earliest. */
void lease_used(struct lease *lease);

/* A pin of the lock has ended: leases that wait for that go on. */
void lock_unpinned(struct lock *lock);

/* Answers those who asked for the lease: it is in use, and what is in their way. */
void lease_tell_in_use(struct lease *lease);

/* If it is open, and another host wants it: closes it. */
void lease_obey_recall(struct lease *lease);

/* Another host wants the lease (store message). */
void lease_recall(struct lease *lease, const struct store_message *message);
/* ... and only asks; the kernel has been asked for a lock in the way, and had none (inquiry.h). */
void lease_recalled(struct lease *lease, const struct asker *asker);

static inline struct keeper *lease_keeper(const struct lease *lease)
{
	return lease->lock->file->keeper;
}

/* The lease's one timer; what it means depends on the state, and a change of state stops it. */
void lease_start_timer(struct lease *lease, int64_t ms);

/* How often what waits in the store asks again, ms. */
int64_t keeper_reask_ms(const struct keeper *k);

#endif
