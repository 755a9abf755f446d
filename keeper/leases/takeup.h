/*
 * Takes up the leases of a keeper that died, from the table. This happens before the loop runs, so it waits for no file
 * system: the keeper has to renew what it takes up, and one mount that hangs must not prevent that.
 */
#ifndef DFLOCK_KEEPER_TAKEUP_H
#define DFLOCK_KEEPER_TAKEUP_H

#include "keeper/guard/table.h"
#include <stdbool.h>

/* table_take_up()'s callback: makes a lease of one entry. The lease stays closed until the store confirms it, or goes
 * back. arg: the keeper. Opens the lease's file at once if that cannot block, else in the background (reopen.h). */
bool takeup_entry(void *arg, const struct table_entry *entry);

#endif
