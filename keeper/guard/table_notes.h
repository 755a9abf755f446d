/*
 * What keeper and parent tell each other through the table, besides the leases themselves: until when leases are sure,
 * which callers rely on nothing, that the parent should look now, and the holders of which leases it still has to kill.
 * See table.h.
 */
#ifndef DFLOCK_KEEPER_TABLE_NOTES_H
#define DFLOCK_KEEPER_TABLE_NOTES_H

#include "keeper/guard/table.h"

/* --- the keeper's --- */

/* The leases are sure until this deadline. */
void table_renewed(struct table *table, int64_t freeze_at_ns, int64_t deadline_ns);
/* To be called before a caller is told of its pin: the next keeper gives nothing back before the last pin has ended. */
void table_pinned(struct table *table, int64_t until_ns);
/* Until when the pins of an earlier keeper may last, as far as the table knows; not later than `most_ns`. */
int64_t table_pins_until(const struct table *table, int64_t most_ns);
/* A process is in a lock call without an answer; only when the leases have ceased to be sure. */
void table_add_caller(struct table *table, const struct table_caller *caller);
/* Tells the parent to look now. */
void table_notify(const struct table *table);
/* The loop turned: the parent counts on it. */
void table_alive(struct table *table);
/* Was a lease lost whose holders the parent has yet to kill? False if the parent has died: then no process will kill
 * them. */
bool table_has_lost(struct table *table);
/* The same for leases of this file and space. */
bool table_has_lost_on(struct table *table, uint64_t dev, uint64_t ino, enum wire_space space);

/* --- the parent's --- */

bool table_has_caller(const struct table *table, const struct table_caller *caller);
/*
 * For how long the keeper's loop may stand still until it counts as hanging: shorter where the leases run out soon.
 * since_ns: when it turned last.
 */
int64_t table_patience_ns(struct table *table, int64_t since_ns);

#endif
