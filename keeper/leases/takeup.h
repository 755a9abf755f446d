/*
 * Takes up the leases of a keeper that died, from the journal. Before the loop runs, and so without waiting for any file
 * system: the keeper has to renew what it takes up, and one mount that hangs must not keep it from that.
 */
#ifndef DFLOCK_KEEPER_TAKEUP_H
#define DFLOCK_KEEPER_TAKEUP_H

#include "keeper/guard/journal.h"
#include "keeper/keeper.h"

/* journal_open()'s callback: one entry becomes a lease that is closed until the store confirms it. arg: the keeper. Its file
 * is opened at once if that cannot block, else in the background (reopen.h). */
void takeup_entry(void *arg, const struct journal_entry *entry);

#endif
