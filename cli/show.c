#include "cli/show.h"

#include <inttypes.h>
#include <libsmartcols.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utlist.h>
#include <wchar.h>
#include <wctype.h>

#include "cli/field.h"

/* Format characters that turn the direction of text or are invisible: a name must look like what it is. */
static bool is_hidden(wchar_t c)
{
	return c == 0xad || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
	       (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb) ||
	       (c >= 0xe0000 && c <= 0xe0fff);
}

/* The number of bytes of the next character of text; *columns: how wide it is, -1 if it must be escaped. */
static size_t next_char(const char *text, mbstate_t *state, int *columns)
{
	wchar_t c;
	size_t n = mbrtowc(&c, text, MB_CUR_MAX, state);

	if (n == (size_t)-1 || n == (size_t)-2 || n == 0) {
		memset(state, 0, sizeof(*state));
		*columns = -1;
		return 1;
	}
	*columns = iswprint((wint_t)c) && !is_hidden(c) ? wcwidth(c) : -1;
	return n;
}

size_t show_escape(const char *text, char *out, size_t size)
{
	mbstate_t state = {0};
	size_t used = 0, width = 0;

	while (*text) {
		int columns;
		size_t n = next_char(text, &state, &columns);
		size_t need = columns < 0 ? 4 * n : n;

		if (used + need + 1 > size)
			break;
		if (columns < 0) {
			for (size_t i = 0; i < n; i++)
				snprintf(out + used + 4 * i, 5, "\\x%02x", (unsigned char)text[i]);
			columns = (int)need;
		} else {
			memcpy(out + used, text, n);
		}
		used += need;
		width += (size_t)columns;
		text += n;
	}
	out[used] = '\0';
	return width;
}

void show_text(FILE *f, const char *text)
{
	mbstate_t state = {0};

	while (*text) {
		int columns;
		size_t n = next_char(text, &state, &columns);

		for (size_t i = 0; i < n; i++)
			fprintf(f, columns < 0 ? "\\x%02x" : "%c", (unsigned char)text[i]);
		text += n;
	}
}

const char *show_when(int64_t unix_s, char out[SHOW_TIME_BYTES])
{
	time_t t = (time_t)unix_s;
	struct tm tm;

	if (!unix_s || !localtime_r(&t, &tm) || !strftime(out, SHOW_TIME_BYTES, "%Y-%m-%d %H:%M:%S", &tm))
		strcpy(out, "-");
	return out;
}

const char *show_ms(int64_t ms, char out[SHOW_TIME_BYTES])
{
	int64_t s = ms / 1000;

	if (ms < 0)
		snprintf(out, SHOW_TIME_BYTES, "0 s");
	else if (ms < 1000)
		snprintf(out, SHOW_TIME_BYTES, "%" PRId64 " ms", ms);
	else if (s < 60)
		snprintf(out, SHOW_TIME_BYTES, "%" PRId64 " s", s);
	else if (s < 3600)
		snprintf(out, SHOW_TIME_BYTES, "%" PRId64 " min %" PRId64 " s", s / 60, s % 60);
	else if (s < 86400)
		snprintf(out, SHOW_TIME_BYTES, "%" PRId64 " h %" PRId64 " min", s / 3600, s / 60 % 60);
	else
		snprintf(out, SHOW_TIME_BYTES, "%" PRId64 " d %" PRId64 " h", s / 86400, s / 3600 % 24);
	return out;
}

const char *show_range(const json_t *row, char out[SHOW_RANGE_BYTES])
{
	int64_t to = field_number(row, "to"); /* null: to the end */

	if (!strcmp(field_text(row, "space"), "flock"))
		snprintf(out, SHOW_RANGE_BYTES, "whole file");
	else if (to > 0 && to != INT64_MAX)
		snprintf(out, SHOW_RANGE_BYTES, "%" PRId64 "-%" PRId64, field_number(row, "from"), to - 1);
	else
		snprintf(out, SHOW_RANGE_BYTES, "%" PRId64 "-end", field_number(row, "from"));
	return out;
}

/* --- templates --- */

#define FIELD_BYTES 64

/* What stands in braces: {PATH}, or {PATH}'s value, and what is to become of it. */
struct show_field {
	const json_t *of, *value; /* of: the object that has it */
	const char *text;         /* of the value; "": it has none */
	char number[24], what;    /* what: behind the path; '#' for "!=" */
	char word[FIELD_BYTES];   /* behind that */
};

/* t: behind the brace. Returns what is behind the other one. */
static const char *read_field(const json_t *row, const char *t, struct show_field *field)
{
	char key[FIELD_BYTES];

	for (field->value = row;; t++) {
		size_t n = strcspn(t, ".:|?!=}");

		snprintf(key, sizeof(key), "%.*s", (int)n, t);
		field->of = field->value;
		field->value = json_object_get(field->of, key);
		t += n;
		if (*t != '.')
			break;
	}
	field->what = t[0] == '!' && t[1] == '=' ? '#' : *t;
	t += *t == '}' ? 0 : field->what == '#' ? 2 : 1;
	snprintf(field->word, sizeof(field->word), "%.*s", (int)strcspn(t, "}"), t);
	snprintf(field->number, sizeof(field->number), "%" PRId64, (int64_t)json_integer_value(field->value));
	field->text = json_is_integer(field->value) ? field->number : json_string_value(field->value);
	if (!field->text)
		field->text = "";
	return t + strcspn(t, "}") + 1;
}

static bool is_empty(const json_t *value)
{
	return !json_is_true(value) && !json_integer_value(value) && !json_array_size(value) &&
	       !json_object_size(value) && !(json_is_string(value) && *json_string_value(value));
}

static bool is_true(const struct show_field *field)
{
	switch (field->what) {
	case '?':
		return !is_empty(field->value);
	case '!':
		return is_empty(field->value);
	case '=':
		return !strcmp(field->text, field->word);
	case '#':
		return strcmp(field->text, field->word) != 0;
	default:
		return true;
	}
}

static void show_field(FILE *f, const struct show_field *field)
{
	char made[SHOW_TIME_BYTES];

	if (field->what == '}')
		show_text(f, field->text);
	else if (field->what == '|')
		show_text(f, is_empty(field->value) ? field->word : field->text);
	else if (field->what == ':')
		fputs(!strcmp(field->word, "when") ? show_when(json_integer_value(field->value), made)
		      : !strcmp(field->word, "ms") ? show_ms(json_integer_value(field->value), made)
						   : show_range(field->of, made),
		      f);
}

/* t: behind its bracket. */
static bool part_is_true(const json_t *row, const char *t)
{
	struct show_field field;

	for (int depth = 0; *t && depth >= 0;) {
		char c = *t++;

		depth += (c == '[') - (c == ']');
		if (c != '{')
			continue;
		t = read_field(row, t, &field);
		if (depth == 0 && !is_true(&field))
			return false;
	}
	return true;
}

/* Returns where it ends: at "]", "\t" or the end. */
static const char *show_part(FILE *f, const json_t *row, const char *t, bool shown)
{
	struct show_field field;

	while (*t && *t != ']' && *t != '\t') {
		if (*t == '[') {
			t = show_part(f, row, t + 1, shown && part_is_true(row, t + 1)) + 1;
		} else if (*t == '{') {
			t = read_field(row, t + 1, &field);
			if (shown)
				show_field(f, &field);
		} else {
			if (shown)
				fputc(*t, f);
			t++;
		}
	}
	return t;
}

void show_row(FILE *f, const json_t *row, const char *template)
{
	show_part(f, row, template, true);
}

/*
 * --- a table ---
 *
 * libsmartcols lays out the columns. Notes are no cells: it would make a column as wide as its longest note. So the
 * table is printed into a text, in which each row is one line, since escaped cells have no line breaks; the notes go
 * between these lines.
 */

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

static void add_cell(struct grid *grid, const char *text)
{
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

static void add_note(struct grid *grid, const char *text)
{
	struct note *note = malloc(sizeof(*note) + strlen(text) + 1);

	grid->failed = !note;
	if (!note)
		return;
	note->below = grid->rows;
	strcpy(note->text, text);
	DL_APPEND(grid->notes, note);
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
	add_cell(grid, text);
}

void grid_note(struct grid *grid, const char *format, ...)
{
	char text[TEXT_BYTES];
	va_list args;

	if (!grid || grid->failed)
		return;
	va_start(args, format);
	grid_format(text, format, args);
	va_end(args);
	add_note(grid, text);
}

static void add_row(struct grid *grid, const json_t *row, const char *template,
		    void (*add)(struct grid *grid, const char *text))
{
	char *text;
	size_t size;
	FILE *f;

	for (const char *t = template; t && grid && !grid->failed;) {
		f = open_memstream(&text, &size);
		grid->failed = !f;
		if (!f)
			return;
		t = show_part(f, row, t, true);
		t = *t == '\t' ? t + 1 : NULL;
		grid->failed = fclose(f) != 0;
		if (!grid->failed)
			add(grid, text);
		free(text);
	}
}

void grid_row(struct grid *grid, const json_t *row, const char *template)
{
	add_row(grid, row, template, add_cell);
}

void grid_row_note(struct grid *grid, const json_t *row, const char *template)
{
	add_row(grid, row, template, add_note);
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
