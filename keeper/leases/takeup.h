/*
 * Takes up the leases of a keeper that died, from the table. Before the loop runs, and so without waiting for any file
 * system: the keeper has to renew what it takes up, and one mount that hangs must not keep it from that.
 */
#ifndef DFLOCK_KEEPER_TAKEUP_H
#define DFLOCK_KEEPER_TAKEUP_H

#include "keeper/guard/table_earlier.h"
#include <stdbool.h>

/* table_take_up()'s callback: one entry becomes a lease that is closed until the store confirms it, or goes back. arg: the
 * keeper. Its file is opened at once if that cannot block, else in the background (reopen.h). */
bool takeup_entry(void *arg, const struct table_entry *entry);

#endif
