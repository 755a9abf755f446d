#include "cli/show.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wchar.h>
#include <wctype.h>

#include "cli/field.h"
#include "wire/text.h"

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
	*columns = iswprint((wint_t)c) && !text_is_hidden((uint32_t)c) ? wcwidth(c) : -1;
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

bool show_unescape(const char *shown, char *out, size_t size)
{
	size_t used = 0;
	bool found = false;

	for (; *shown && used + 1 < size; used++) {
		char byte[3] = "";
		bool escaped = shown[0] == '\\' && shown[1] == 'x' && isxdigit((unsigned char)shown[2]) &&
			       isxdigit((unsigned char)shown[3]);

		if (escaped)
			memcpy(byte, shown + 2, 2);
		out[used] = escaped ? (char)strtoul(byte, NULL, 16) : *shown;
		found |= escaped;
		shown += escaped ? 4 : 1;
	}
	out[used] = '\0';
	return found && !*shown;
}

json_t *show_json(const char *text)
{
	char *shown = malloc(4 * strlen(text) + 1);
	json_t *json = json_string(text);

	if (!json && shown) {
		show_escape(text, shown, 4 * strlen(text) + 1);
		json = json_string(shown);
	}
	free(shown);
	return json ? json : json_string("(not UTF-8)");
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

/* --- a table --- */

/* Its text, of which widths are measured when it is printed: cells, each with TAB behind it, and notes, behind NOTE; each row and
 * note ends a line. Escaped text has none of these characters. */
struct grid {
	FILE *f;
	char *text;
	size_t size, columns, cells; /* cells: in the last row, if it is not ended */
	size_t width[];
};

#define NOTE '\v'

struct grid *grid_new(size_t columns)
{
	struct grid *grid = calloc(1, sizeof(*grid) + columns * sizeof(*grid->width));

	if (!grid)
		return NULL;
	grid->columns = columns;
	grid->f = open_memstream(&grid->text, &grid->size);
	if (grid->f)
		return grid;
	free(grid);
	return NULL;
}

static void end_row(struct grid *grid)
{
	if (grid->cells)
		fputc('\n', grid->f);
	grid->cells = 0;
}

static void begin_cell(struct grid *grid)
{
	if (grid->cells == grid->columns)
		end_row(grid);
	grid->cells++;
}

static void begin_note(struct grid *grid)
{
	end_row(grid);
	fputc(NOTE, grid->f);
}

void grid_cell(struct grid *grid, const char *format, ...)
{
	char raw[GRID_CELL_BYTES];
	va_list args;

	if (!grid)
		return;
	va_start(args, format);
	vsnprintf(raw, sizeof(raw), format, args);
	va_end(args);
	begin_cell(grid);
	show_text(grid->f, raw);
	fputc('\t', grid->f);
}

void grid_note(struct grid *grid, const char *format, ...)
{
	char raw[GRID_CELL_BYTES];
	va_list args;

	if (!grid)
		return;
	va_start(args, format);
	vsnprintf(raw, sizeof(raw), format, args);
	va_end(args);
	begin_note(grid);
	show_text(grid->f, raw);
	fputc('\n', grid->f);
}

void grid_row(struct grid *grid, const json_t *row, const char *template)
{
	for (const char *t = template; t && grid;) {
		begin_cell(grid);
		t = show_part(grid->f, row, t, true);
		fputc('\t', grid->f);
		t = *t ? t + 1 : NULL;
	}
}

void grid_row_note(struct grid *grid, const json_t *row, const char *template)
{
	if (!grid)
		return;
	begin_note(grid);
	show_row(grid->f, row, template);
	fputc('\n', grid->f);
}

static size_t columns_of(const char *text, size_t n)
{
	mbstate_t state = {0};
	size_t width = 0;

	for (const char *end = text + n; text < end;) {
		int columns;

		text += next_char(text, &state, &columns);
		width += columns > 0 ? (size_t)columns : 0;
	}
	return width;
}

/* Widens the columns for this line (f is NULL), or prints it. Returns the next line. */
static const char *grid_line(struct grid *grid, const char *t, FILE *f)
{
	size_t n, columns, pad = 0;

	for (size_t i = 0; *t != NOTE && *t != '\n'; i++, t += n + 1) {
		n = strcspn(t, "\t");
		columns = columns_of(t, n);
		if (!f && columns > grid->width[i])
			grid->width[i] = columns;
		if (f && n) {
			fprintf(f, "%*s%.*s", (int)pad, "", (int)n, t);
			pad = 0;
		}
		pad += grid->width[i] + 2 - columns;
	}
	n = strcspn(t, "\n");
	if (f)
		fprintf(f, "%.*s\n", n ? (int)n - 1 : 0, t + (n > 0));
	return t + n + 1;
}

void grid_print(struct grid *grid, FILE *f)
{
	if (grid)
		end_row(grid);
	if (!grid || fflush(grid->f) || ferror(grid->f)) {
		fputs("(not enough memory to show the rest)\n", f);
		return;
	}
	for (const char *t = grid->text; *t;)
		t = grid_line(grid, t, NULL);
	for (const char *t = grid->text; *t;)
		t = grid_line(grid, t, f);
}

void grid_free(struct grid *grid)
{
	if (!grid)
		return;
	fclose(grid->f);
	free(grid->text);
	free(grid);
}
