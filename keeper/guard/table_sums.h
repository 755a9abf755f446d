/* Sums of what the table of leases says: whether it can be believed. Pure. */
#ifndef DFLOCK_KEEPER_TABLE_SUMS_H
#define DFLOCK_KEEPER_TABLE_SUMS_H

#include "keeper/guard/table.h"

uint64_t table_sum(const void *data, size_t bytes);
/* Of what is before head->sum. Promised for every version (table_rescue.h). */
uint64_t table_head_sum(const struct table_head *head);
/* boot: table->boot. So a sum that fits is that of a lease of this boot, whatever the rest of the table says. Never 0. */
uint64_t table_slot_sum(const struct table_slot *slot, uint64_t generation, uint64_t boot);

#endif
