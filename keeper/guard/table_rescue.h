/*
 * The leases of a table that no keeper can take up, because its head is damaged or it is of another version: which files they
 * are for, so that their holders are ended. table_rescue.c has the argument. For table_file.c, which makes an unsure lease of each
 * that cannot be read.
 *
 * The format's promise, from version 1 on: the table of any version is the file TABLE_NAME, and in it
 *   - the first TABLE_HEAD_PROMISED bytes are those of struct table_head, and head->sum is table_head_sum() (table_sums.h);
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

#define TABLE_FENCE_NAME "fence" /* what keepers of dflock 0.1 and their parents shared, in place of the table */

/* What is found. */
struct rescue_to {
	int (*lease)(void *arg,
		     const struct table_slot *slot); /* which has no more than the promised part. 0 or -errno */
	void (*signalled)(void *arg, const struct table_signalled *signalled);
	void *arg;
};

/*
 * Tells what is in the file, which this user's keepers alone could write. head: the promised part of another version's head of
 * this boot; or, damaged, of a head of this version, for where things are. boot: table->boot.
 *
 * 0; -EUCLEAN: nothing says that this was a table of this boot; -errno, also of `to`.
 */
int table_rescue(int fd, const struct table_head *head, bool damaged, uint64_t boot, const struct rescue_to *to);

/*
 * The same of the file that a keeper of dflock 0.1 has left. *pins_until_ns: no pin that it gave ends later. 0, also if there is
 * no such file, or one of another boot; -EUCLEAN: it is not what 0.1.0 makes, or another user could have written it; -errno.
 */
int table_rescue_fence(int dir_fd, const char boot[CLOCK_BOOT_BYTES], const struct rescue_to *to, int64_t *pins_until_ns);

#endif
