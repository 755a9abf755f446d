/*
 * The text area of the table of leases: token, name and path of each, in RUNTIME_DIR/leases.text. Only keepers map it, so
 * that the parent needs no memory for it. See table.h.
 *
 * Each slot has its own piece of the area, and keeps it when it is free. A longer text replaces it by a piece at least
 * twice as large. So a slot finds its piece without a search, and abandoned pieces never take more room than used ones.
 * A table in which no slot is in use begins anew.
 *
 * A piece is written while its slot is free. It names its slot and generation, and has a checksum: a text that does not
 * fit is damaged, and is never taken for another lease's.
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
 * For the keeper, once: maps the area. An area that is not of this table is made anew; then the texts of its slots
 * count as damaged. 0 or -errno. Before the call, table->text.fd is -1, or that of a keeper that this one replaces in
 * the same process (simulator).
 */
int table_text_open(struct table *table);
void table_text_close(struct table *table);
/* 0; -ENOSPC, -EDQUOT: no room; -EINVAL: an empty name or path, or one that is too long. The slot is free. */
int table_text_put(struct table *table, uint32_t slot, uint64_t generation, const char *token, const char *name,
		   const char *path);
/* False: damaged. */
bool table_text_get(const struct table *table, uint32_t slot, uint64_t generation, struct table_text *out);

#endif
