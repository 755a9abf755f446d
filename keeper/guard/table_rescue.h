/*
 * The leases of a table that no keeper can take up, because its head is damaged or it is of another version: which files they
 * are for, so that their holders are ended. table_rescue.c has the argument. For table_file.c.
 *
 * The format's promise, from version 1 on: in the table of any version
 *   - the first TABLE_HEAD_PROMISED bytes are those of struct table_head, and head->sum is table_head_sum();
 *   - slots begin at head_bytes and go on to the end of the file, each of slot_bytes bytes;
 *   - the first TABLE_SLOT_PROMISED bytes of a slot are those of struct table_slot. The lowest byte of its word is a state: on
 *     a slot that is TABLE_FREE, TABLE_ASKED or TABLE_RETURNED no process relies. Any other one is a lease;
 *   - on_lost has the values of enum on_lost in config.h, and any other means ON_LOST_FREEZE;
 *   - at signalled_at there are signalled_count of struct table_signalled.
 * What is behind these parts may change with any version. A keeper that knows more of another version may take more from it.
 */
#ifndef DFLOCK_KEEPER_TABLE_RESCUE_H
#define DFLOCK_KEEPER_TABLE_RESCUE_H

#include "keeper/guard/table.h"

uint64_t table_sum(const void *data, size_t bytes);
uint64_t table_head_sum(const struct table_head *head);

/*
 * Copies what is in the file `fd`, which this user's keepers alone could write, into a new table that has no lease so far and
 * that no process looks at. head: the promised part of another version's table of this boot; NULL: the head is damaged. Each
 * lease becomes one that is unsure and cannot be read (table_earlier.h): its holders are stopped, and ended when no pin is
 * left. *leases: how many.
 *
 * 0; -EUCLEAN: nothing says that this was a table of this boot; -EFBIG: more leases than a table of this version has room
 * for; else -errno.
 */
int table_rescue(struct table *table, int fd, const struct table_head *head, uint32_t *leases);

#endif
