/* Takes up the leases of a keeper that died, from the journal. Before the loop runs. */
#ifndef DFLOCK_KEEPER_TAKEUP_H
#define DFLOCK_KEEPER_TAKEUP_H

#include "keeper/journal.h"
#include "keeper/keeper.h"

/* journal_open()'s callback: one entry becomes a lease that is closed until the store confirms it. arg: the keeper. */
void takeup_entry(void *arg, const struct journal_entry *entry);

#endif
