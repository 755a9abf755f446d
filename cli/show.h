/* Text for terminals. Any user can choose names of files, hosts and programs: what could move the cursor or hide
 * something is shown as \xNN. */
#ifndef DFLOCK_CLI_SHOW_H
#define DFLOCK_CLI_SHOW_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Writes text. Control characters, and bytes that are no text in this locale, become \xNN; a backslash stays as it
 * is. */
void show_text(FILE *f, const char *text);

/* The same into `out` (cut off if it is longer). Returns how many columns of a terminal it takes. */
size_t show_escape(const char *text, char *out, size_t size);

/* The text that show_text(), or the keeper, shows as `shown`. False: nothing in it is escaped, or it is too long. */
bool show_unescape(const char *shown, char *out, size_t size);

/* As JSON has it: bytes that are no UTF-8 are escaped as above. A new reference. */
json_t *show_json(const char *text);

#define SHOW_TIME_BYTES 64
/* "2024-05-01 12:34:56", local time; "-" for 0. */
const char *show_when(int64_t unix_s, char out[SHOW_TIME_BYTES]);
/* "250 ms", "26 s", "3 min 20 s", "5 h 12 min", "3 d 4 h". */
const char *show_ms(int64_t ms, char out[SHOW_TIME_BYTES]);

/* "10-14" for the half-open range "from" to "to" of a row, "10-end"; "whole file" for flock. */
#define SHOW_RANGE_BYTES 48
const char *show_range(const json_t *row, char out[SHOW_RANGE_BYTES]);

/*
 * The fields of an object that a keeper has sent, as the template says:
 *
 *   {a.b}                        the text or number; {a.b|else}: "else" if it is empty
 *   {a:when} {a:ms} {a:range}    show_when(), show_ms(); show_range() of the object that has the field
 *   [ ... ]                      a part that is left out unless all conditions in it are true (parts in it have their own):
 *   {a?} {a!} {a=word} {a!=word} a is not empty; is empty; is this word or number; is not
 *
 * Empty is "", 0, false, null, [], {}, and what is missing. Fields are escaped as by show_text().
 */
void show_row(FILE *f, const json_t *row, const char *template);

/*
 * A table for people. (It is called grid because "table" is the table of leases, keeper/guard/table.h.) Columns are
 * as wide as their widest cell, with two blanks between them. Cells are added row by row from the left, the row of
 * headings first. A note is a line of text below the last row, and may be wider than the grid. Cells and notes may
 * hold text that any user can choose: what could move the cursor is escaped here. Nothing is cut off, on a
 * terminal or elsewhere: a lock name that is cut off cannot be copied. A grid that ran out of memory says so when it
 * is printed, and so does NULL.
 */

#define GRID_CELL_BYTES 8192 /* of a text before it is escaped; the rest of a longer one is left out */

struct grid;

/* Ended with grid_free(). NULL without memory. */
struct grid *grid_new(size_t columns);
void grid_cell(struct grid *grid, const char *format, ...) __attribute__((format(printf, 2, 3)));
void grid_note(struct grid *grid, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* show_row() of one object: the next cells, with "\t" between them in the template; a note. */
void grid_row(struct grid *grid, const json_t *row, const char *template);
void grid_row_note(struct grid *grid, const json_t *row, const char *template);
/* Cells that are missing in the last row are empty. */
void grid_print(struct grid *grid, FILE *f);
void grid_free(struct grid *grid);

#endif
