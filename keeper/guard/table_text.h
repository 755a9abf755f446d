/*
 * The text area of the table of leases: token, name and path of each, in RUNTIME_DIR/leases.text. Only keepers map it, so
 * that the parent needs no memory for it. See table.h.
 *
 * Each slot has its own piece of the area, which stays with it when it is free, and is replaced by one twice as large or
 * more when a longer text comes: so pieces are found without a search, and what is left behind is never more than what is
 * in use. A table in which no slot is in use begins anew.
 *
 * A piece is written while its slot is free. It says which slot and generation it is of, and has a sum: what does not fit
 * is damage, and never the text of another lease.
 */
#ifndef DFLOCK_KEEPER_TABLE_TEXT_H
#define DFLOCK_KEEPER_TABLE_TEXT_H

#include <limits.h>
#include <stdint.h>

#include "keeper/guard/table.h"

#define TEXT_UNIT 128
#define TEXT_MAX  (1ull << 30) /* bytes of the area */

/* What a piece says. The pointers are good until the next table_text_put(). */
struct table_text {
	const char *token, *name, *path;
};

/*
 * The keeper's, once: maps the area. One that is not of this table is made anew; then the texts of its slots are damaged.
 * 0 or -errno. table->text.fd is -1 before, or that of a keeper that this one replaces in the same process (simulator).
 */
int table_text_open(struct table *table);
void table_text_close(struct table *table);
/* 0; -ENOSPC, -EDQUOT: no room; -EINVAL: an empty name or path, or one that is too long. The slot is free. */
int table_text_put(struct table *table, uint32_t slot, uint64_t generation, const char *token, const char *name,
		   const char *path);
/* False: damaged. */
bool table_text_get(const struct table *table, uint32_t slot, uint64_t generation, struct table_text *out);

#endif
