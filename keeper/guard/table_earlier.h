/* Reads what an earlier keeper left in the table of leases (table.h). For the keeper, before its loop runs. */
#ifndef DFLOCK_KEEPER_TABLE_EARLIER_H
#define DFLOCK_KEEPER_TABLE_EARLIER_H

#include "keeper/guard/table.h"

struct table_entry {
	uint32_t slot;
	bool unsure;    /* a lease that the store has to confirm; else it goes back: no process relies on it */
	bool forgotten; /* unsure: the store has lost its memory since it last confirmed the lease */
	const char *token, *name, *path; /* good during the call */
	struct store_range range;
	uint64_t fence;
	uint64_t dev, ino;
	uid_t uid;
};
/* False: there is no memory for the lease. It is then lost like a damaged one. */
typedef bool table_entry_cb(void *arg, const struct table_entry *entry);

/*
 * Opens the text area and calls back for each lease of the table. Leases that go back are TABLE_RETURNED already. 0 or
 * -errno; *damaged: how many leases cannot be read. They stay unsure until table_lose_damaged(); call that when all
 * pins have ended.
 */
int table_take_up(struct table *table, table_entry_cb *cb, void *arg, unsigned *damaged);
void table_lose_damaged(struct table *table);

/* The host whose leases the table has: copies its name to `host`; if the table has no name, takes that of `host`. */
void table_host(struct table *table, char host[STORE_HOST_BYTES]);
/*
 * Another keeper uses the host's id: nothing of the table may be renewed or given back under it. The leases become damaged ones, unsure
 * from now on, and the table has no host any more; head->twin says which it was. The next keeper loses them, as another host.
 */
void table_disown(struct table *table);
/* It was told often enough. */
void table_forget_twin(struct table *table);
/* The incarnation of the store that the keepers of this table have seen last; "": none. */
const char *table_incarnation(const struct table *table);
void table_set_incarnation(struct table *table, const char *incarnation);

#endif
