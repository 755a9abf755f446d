/*
 * libsmartcols lays out the columns. Notes are no cells: it would make a column as wide as its longest note. So the
 * table is printed into a text, in which each row is one line, since escaped cells have no line breaks; the notes go
 * between these lines.
 */
#include "cli/table.h"

#include <libsmartcols.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "cli/show.h"

/* An escaped byte takes four. */
#define TEXT_BYTES (4 * TABLE_CELL_BYTES)

struct note {
	struct note *prev, *next;
	size_t below; /* so many rows */
	char text[];
};

struct table {
	struct libscols_table *columns;
	struct libscols_line *row; /* the last one */
	size_t width, rows, cells; /* cells: in the last row */
	struct note *notes;
	bool failed;
};

/* Escaping is ours (libsmartcols would escape the backslashes of ours), and so is the width: never a terminal's. */
static bool table_set_up(struct table *table)
{
	if (scols_table_enable_noencoding(table->columns, 1) || scols_table_enable_noheadings(table->columns, 1) ||
	    scols_table_enable_minout(table->columns, 1) || scols_table_set_column_separator(table->columns, "  ") ||
	    scols_table_set_termforce(table->columns, SCOLS_TERMFORCE_NEVER))
		return false;
	for (size_t i = 0; i < table->width; i++)
		if (!scols_table_new_column(table->columns, NULL, 0, 0))
			return false;
	return true;
}

struct table *table_new(size_t columns)
{
	struct table *table = calloc(1, sizeof(*table));

	if (!table)
		return NULL;
	table->width = table->cells = columns;
	table->columns = scols_new_table();
	table->failed = !table->columns || !table_set_up(table);
	return table;
}

void table_cell(struct table *table, const char *format, ...)
{
	char raw[TABLE_CELL_BYTES], text[TEXT_BYTES];
	va_list args;

	if (!table || table->failed)
		return;
	va_start(args, format);
	vsnprintf(raw, sizeof(raw), format, args);
	va_end(args);
	show_escape(raw, text, sizeof(text));
	if (table->cells == table->width) {
		table->row = scols_table_new_line(table->columns, NULL);
		table->failed = !table->row;
		if (table->failed)
			return;
		table->rows++;
		table->cells = 0;
	}
	table->failed = scols_line_set_data(table->row, table->cells++, text) != 0;
}

void table_note(struct table *table, const char *format, ...)
{
	char raw[TABLE_CELL_BYTES], text[TEXT_BYTES];
	struct note *note;
	va_list args;

	if (!table || table->failed)
		return;
	va_start(args, format);
	vsnprintf(raw, sizeof(raw), format, args);
	va_end(args);
	show_escape(raw, text, sizeof(text));
	note = malloc(sizeof(*note) + strlen(text) + 1);
	table->failed = !note;
	if (!note)
		return;
	note->below = table->rows;
	strcpy(note->text, text);
	DL_APPEND(table->notes, note);
}

void table_print(struct table *table, FILE *f)
{
	struct note *note = table ? table->notes : NULL;
	char *text = NULL, *line;
	size_t below = 0;

	if (!table || table->failed || (table->rows && (scols_print_table_to_string(table->columns, &text) || !text))) {
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

void table_free(struct table *table)
{
	struct note *note, *next;

	if (!table)
		return;
	DL_FOREACH_SAFE (table->notes, note, next)
		free(note);
	scols_unref_table(table->columns);
	free(table);
}
