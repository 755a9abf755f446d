/*
 * What other hosts want of a lease: it is noted when the store says so (lease->recall and the fields below it), and obeyed
 * when the lease is open and old enough, as a whole or in parts (split.h). Loop only.
 */
#ifndef DFLOCK_KEEPER_RECALL_H
#define DFLOCK_KEEPER_RECALL_H

#include "keeper/rules/lease.h"

struct asker;
struct lease;
struct store_message;

/* Another host wants the lease, or asks whether it is in use (store message). */
void lease_recall(struct lease *lease, const struct store_message *message);
/* Another host asks, and the kernel shows no lock in its way: queue_work.asked(). */
void recall_asked(struct lease *lease, const struct asker *asker);
/* If the lease is open, and another host wants it: closes it, or begins to split it. queue_work.obey(). */
void recall_obey(struct lease *lease);
/* This event has opened the lease: was it what other hosts wanted? */
void recall_opened(struct lease *lease, enum lease_event event);

#endif
