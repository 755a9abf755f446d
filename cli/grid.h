/*
 * A table for people. (It is called grid because "table" is the table of leases, keeper/guard/table.h.) Columns are
 * as wide as their widest cell, with two blanks between them. Cells are added row by row from the left, the row of
 * headings first. A note is a line of text below the last row, and may be wider than the grid. Cells and notes may
 * hold text that any user can choose (show.h): what could move the cursor is escaped here. Nothing is cut off, on a
 * terminal or elsewhere: a lock name that is cut off cannot be copied. A grid that ran out of memory says so when it
 * is printed, and so does NULL.
 */
#ifndef DFLOCK_CLI_GRID_H
#define DFLOCK_CLI_GRID_H

#include <stddef.h>
#include <stdio.h>

#define GRID_CELL_BYTES                                                                                                \
	8192 /* of a cell's or note's text before it is escaped; the rest of a longer one is left out  \
			      */

struct grid;

/* Ended with grid_free(). NULL without memory. */
struct grid *grid_new(size_t columns);
void grid_cell(struct grid *grid, const char *format, ...) __attribute__((format(printf, 2, 3)));
void grid_note(struct grid *grid, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Cells that are missing in the last row are empty. */
void grid_print(struct grid *grid, FILE *f);
void grid_free(struct grid *grid);

#endif
