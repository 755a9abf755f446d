/*
 * libsmartcols lays out the columns. Notes are no cells: it would make a column as wide as its longest note. So the
 * table is printed into a text, in which each row is one line, since escaped cells have no line breaks; the notes go
 * between these lines.
 */
#include "cli/grid.h"

#include <libsmartcols.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "cli/show.h"

/* An escaped byte takes four. */
#define TEXT_BYTES (4 * GRID_CELL_BYTES)

struct note {
	struct note *prev, *next;
	size_t below; /* so many rows */
	char text[];
};

struct grid {
	struct libscols_table *columns;
	struct libscols_line *row; /* the last one */
	size_t width, rows, cells; /* cells: in the last row */
	struct note *notes;
	bool failed;
};

/* This file escapes (libsmartcols would escape the backslashes of that again), and sets the width: never a
 * terminal's. */
static bool grid_set_up(struct grid *grid)
{
	if (scols_table_enable_noencoding(grid->columns, 1) || scols_table_enable_noheadings(grid->columns, 1) ||
	    scols_table_enable_minout(grid->columns, 1) || scols_table_set_column_separator(grid->columns, "  ") ||
	    scols_table_set_termforce(grid->columns, SCOLS_TERMFORCE_NEVER))
		return false;
	for (size_t i = 0; i < grid->width; i++)
		if (!scols_table_new_column(grid->columns, NULL, 0, 0))
			return false;
	return true;
}

struct grid *grid_new(size_t columns)
{
	struct grid *grid = calloc(1, sizeof(*grid));

	if (!grid)
		return NULL;
	grid->width = grid->cells = columns;
	grid->columns = scols_new_table();
	grid->failed = !grid->columns || !grid_set_up(grid);
	return grid;
}

__attribute__((format(printf, 2, 0))) static void grid_format(char text[TEXT_BYTES], const char *format, va_list args)
{
	char raw[GRID_CELL_BYTES];

	vsnprintf(raw, sizeof(raw), format, args);
	show_escape(raw, text, TEXT_BYTES);
}

void grid_cell(struct grid *grid, const char *format, ...)
{
	char text[TEXT_BYTES];
	va_list args;

	if (!grid || grid->failed)
		return;
	va_start(args, format);
	grid_format(text, format, args);
	va_end(args);
	if (grid->cells == grid->width) {
		grid->row = scols_table_new_line(grid->columns, NULL);
		grid->failed = !grid->row;
		if (grid->failed)
			return;
		grid->rows++;
		grid->cells = 0;
	}
	grid->failed = scols_line_set_data(grid->row, grid->cells++, text) != 0;
}

void grid_note(struct grid *grid, const char *format, ...)
{
	char text[TEXT_BYTES];
	struct note *note;
	va_list args;

	if (!grid || grid->failed)
		return;
	va_start(args, format);
	grid_format(text, format, args);
	va_end(args);
	note = malloc(sizeof(*note) + strlen(text) + 1);
	grid->failed = !note;
	if (!note)
		return;
	note->below = grid->rows;
	strcpy(note->text, text);
	DL_APPEND(grid->notes, note);
}

void grid_print(struct grid *grid, FILE *f)
{
	struct note *note = grid ? grid->notes : NULL;
	char *text = NULL, *line;
	size_t below = 0;

	if (!grid || grid->failed || (grid->rows && (scols_print_table_to_string(grid->columns, &text) || !text))) {
		fputs("(not enough memory to show the rest)\n", f);
		return;
	}
	for (line = text;; below++) {
		size_t len;

		for (; note && note->below == below; note = note->next)
			fprintf(f, "%s\n", note->text);
		if (!line || !*line)
			break;
		len = strcspn(line, "\n");
		fprintf(f, "%.*s\n", (int)len, line);
		line += len + (line[len] == '\n');
	}
	free(text);
}

void grid_free(struct grid *grid)
{
	struct note *note, *next;

	if (!grid)
		return;
	DL_FOREACH_SAFE (grid->notes, note, next)
		free(note);
	scols_unref_table(grid->columns);
	free(grid);
}
