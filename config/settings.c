#include "config/internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SUGGEST_MAX 40 /* longer names are nobody's slip of the pen */

int reading_fail(const struct reading *r, int line, const char *format, ...)
{
	char what[PAGE_MESSAGE_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	if (line)
		snprintf(r->why, r->why_size, "%s:%d: %s", r->path, line, what);
	else
		snprintf(r->why, r->why_size, "%s: %s", r->path, what);
	/* One line, also where a value or a file name has a newline in it. */
	for (char *c = r->why; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	return -EINVAL;
}

int reading_out_of_memory(const struct reading *r)
{
	reading_fail(r, 0, "out of memory");
	return -ENOMEM;
}

static const char *type_name(config_setting_t *setting)
{
	switch (config_setting_type(setting)) {
	case CONFIG_TYPE_INT:
	case CONFIG_TYPE_INT64:
		return "a number";
	case CONFIG_TYPE_FLOAT:
		return "a number with a fraction";
	case CONFIG_TYPE_STRING:
		return "a string";
	case CONFIG_TYPE_BOOL:
		return "true or false";
	case CONFIG_TYPE_GROUP:
		return "a group { }";
	case CONFIG_TYPE_LIST:
		return "a list ( )";
	case CONFIG_TYPE_ARRAY:
		return "an array [ ]";
	default:
		return "of an unknown type";
	}
}

/* How many letters must change, come or go to make b of a. Both are at most SUGGEST_MAX long. */
static size_t distance(const char *a, const char *b)
{
	size_t row[SUGGEST_MAX + 1], len = strlen(b);

	for (size_t j = 0; j <= len; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= len; j++) {
			size_t change = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			row[j] = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
			if (change < row[j])
				row[j] = change;
		}
	}
	return row[len];
}

/* The name that was meant, if one is near: a slip or two, or the unit left out. */
static const char *suggestion(const struct setting_row *rows, const char *name)
{
	const char *best = NULL;
	size_t best_distance = 3, len = strlen(name);

	if (len > SUGGEST_MAX)
		return NULL;
	for (; rows->name; rows++) {
		size_t d = distance(name, rows->name);

		if (len >= 3 && strncmp(rows->name, name, len) == 0)
			d = 0;
		if (d < best_distance && d < strlen(rows->name)) {
			best = rows->name;
			best_distance = d;
		}
	}
	return best;
}

static int unknown(const struct reading *r, config_setting_t *setting, const char *prefix,
		   const struct setting_row *rows)
{
	const char *name = config_setting_name(setting), *near = suggestion(rows, name);
	int line = config_setting_source_line(setting);
	char known[256];
	size_t used = 0;

	if (near)
		return reading_fail(r, line, "unknown setting %s%.80s; did you mean %s?", prefix, name, near);
	for (; rows->name && used < sizeof(known); rows++)
		used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", used ? ", " : "", rows->name);
	return reading_fail(r, line, "unknown setting %s%.80s; expected one of %s", prefix, name, known);
}

static int wrong_type(const struct reading *r, config_setting_t *setting, const char *prefix, const char *expected)
{
	return reading_fail(r, config_setting_source_line(setting), "%s%s is %s; expected %s", prefix,
			    config_setting_name(setting), type_name(setting), expected);
}

static int read_number(const struct reading *r, config_setting_t *setting, const char *prefix,
		       const struct setting_row *row, int64_t *value)
{
	int type = config_setting_type(setting);

	if (type == CONFIG_TYPE_INT)
		*value = config_setting_get_int(setting);
	else if (type == CONFIG_TYPE_INT64)
		*value = config_setting_get_int64(setting);
	else
		return wrong_type(r, setting, prefix, "a whole number");
	if (*value < row->min || *value > row->max)
		return reading_fail(r, config_setting_source_line(setting), "%s%s is %lld; expected %lld to %lld",
				    prefix, row->name, (long long)*value, (long long)row->min, (long long)row->max);
	return 0;
}

static int check_text(const struct reading *r, int line, const char *prefix, const char *name, const char *text)
{
	if (!*text)
		return reading_fail(r, line, "%s%s is empty; expected text, or leave the setting out", prefix, name);
	for (const char *c = text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return reading_fail(r, line, "%s%s contains a control character (byte %zu is 0x%02x)", prefix,
					    name, (size_t)(c - text) + 1, (unsigned char)*c);
	return 0;
}

static int read_string(const struct reading *r, config_setting_t *setting, const char *prefix, const char **value)
{
	if (config_setting_type(setting) != CONFIG_TYPE_STRING)
		return wrong_type(r, setting, prefix, "a string");
	*value = config_setting_get_string(setting);
	return check_text(r, config_setting_source_line(setting), prefix, config_setting_name(setting), *value);
}

static int check_texts(const struct reading *r, config_setting_t *setting, const char *prefix)
{
	const char *name = config_setting_name(setting);

	if ((!config_setting_is_list(setting) && !config_setting_is_array(setting)) ||
	    config_setting_length(setting) == 0)
		return wrong_type(r, setting, prefix, "a list ( \"...\", \"...\" ) of strings, at least one");
	for (int i = 0; i < config_setting_length(setting); i++) {
		config_setting_t *text = config_setting_get_elem(setting, (unsigned)i);
		int line = config_setting_source_line(text);
		int rc;

		if (config_setting_type(text) != CONFIG_TYPE_STRING)
			return reading_fail(r, line, "%s%s contains %s; expected strings only", prefix, name,
					    type_name(text));
		rc = check_text(r, line, prefix, name, config_setting_get_string(text));
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int read_setting(const struct reading *r, config_setting_t *setting, const char *prefix,
			const struct setting_row *row, void *value)
{
	int rc;

	switch (row->type) {
	case SETTING_NUMBER:
		return read_number(r, setting, prefix, row, value);
	case SETTING_STRING:
		return read_string(r, setting, prefix, value);
	case SETTING_GROUP:
		if (!config_setting_is_group(setting))
			return wrong_type(r, setting, prefix, "a group { name = value; }");
		break;
	case SETTING_LIST:
		if (!config_setting_is_list(setting))
			return wrong_type(r, setting, prefix, "a list ( { path = \"/...\"; }, ... )");
		break;
	case SETTING_TEXTS:
		rc = check_texts(r, setting, prefix);
		if (rc < 0)
			return rc;
		break;
	}
	*(config_setting_t **)value = setting;
	return 0;
}

int settings_read(const struct reading *r, config_setting_t *group, const char *prefix, const struct setting_row *rows,
		  void *values)
{
	for (int i = 0; i < config_setting_length(group); i++) {
		config_setting_t *setting = config_setting_get_elem(group, (unsigned)i);
		const struct setting_row *row = rows;
		int rc;

		while (row->name && strcmp(row->name, config_setting_name(setting)) != 0)
			row++;
		if (!row->name)
			return unknown(r, setting, prefix, rows);
		rc = read_setting(r, setting, prefix, row, (char *)values + row->offset);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int settings_line(config_setting_t *group, const char *name)
{
	config_setting_t *setting = group ? config_setting_get_member(group, name) : NULL;

	if (!group)
		return 0;
	return config_setting_source_line(setting ? setting : group);
}
