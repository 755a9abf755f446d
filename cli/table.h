/*
 * A table on standard output or in a text: columns as wide as their widest cell, two blanks between them. Cells are
 * added row by row from the left, the row of headings first. A note is a line of text below the last row; it may be
 * wider than the table.
 *
 * Cells and notes may hold text that somebody else chose (show.h): what could move the cursor is escaped here. Nothing
 * is cut off, whether the output is a terminal or not: a lock name that is cut off cannot be copied. A table that ran
 * out of memory (also a table of NULL) says so when it is printed.
 */
#ifndef DFLOCK_CLI_TABLE_H
#define DFLOCK_CLI_TABLE_H

#include <stddef.h>
#include <stdio.h>

#define TABLE_CELL_BYTES                                                                                               \
	8192 /* of a cell's or note's text before it is escaped; the rest of a longer one is left out */

struct table;

/* Ended with table_free(). NULL without memory. */
struct table *table_new(size_t columns);
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_note(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Cells that are missing in the last row are empty. */
void table_print(struct table *table, FILE *f);
void table_free(struct table *table);

#endif
