#include "config/internal.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define SUGGEST_MAX 40 /* no setting is nearly as long, so a longer name is no typing error */

const char *const settings_on_lost[] = {
	[ON_LOST_FREEZE] = "freeze", [ON_LOST_KILL] = "kill", [ON_LOST_WARN] = "warn", NULL};
const char *const settings_on_refused[] = {
	[WIRE_ON_REFUSED_REFUSE] = "refuse", [WIRE_ON_REFUSED_BUSY] = "busy", [WIRE_ON_REFUSED_WAIT] = "wait", NULL};
_Static_assert(sizeof(enum on_lost) == sizeof(unsigned) && sizeof(enum wire_on_refused) == sizeof(unsigned),
	       "SETTING_WORD");

static const char *settings_type_name(config_setting_t *setting)
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

size_t config_distance(const char *a, const char *b)
{
	size_t row[SUGGEST_MAX + 1], len = strlen(b);

	if (len > SUGGEST_MAX)
		return SIZE_MAX;
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

/* The setting that was probably meant: with one or two typing errors, or without its unit. NULL: none. */
static const char *settings_suggestion(const struct setting_row *rows, const char *name)
{
	const char *best = NULL;
	size_t best_distance = 3, len = strlen(name);

	for (; rows->name; rows++) {
		size_t d = config_distance(name, rows->name);

		if (len >= 3 && strncmp(rows->name, name, len) == 0)
			d = 0;
		if (d < best_distance && d < strlen(rows->name)) {
			best = rows->name;
			best_distance = d;
		}
	}
	return best;
}

static int settings_unknown(const struct config_reading *r, config_setting_t *setting, const char *prefix,
			    const struct setting_row *rows)
{
	const char *name = config_setting_name(setting), *near = settings_suggestion(rows, name);
	int line = config_setting_source_line(setting);
	char known[256];
	size_t used = 0;

	if (near)
		return reading_fail(r, line, "unknown setting %s%.80s; did you mean %s?", prefix, name, near);
	for (; rows->name && used < sizeof(known); rows++)
		used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", used ? ", " : "", rows->name);
	return reading_fail(r, line, "unknown setting %s%.80s; expected one of %s", prefix, name, known);
}

static int settings_wrong_type(const struct config_reading *r, config_setting_t *setting, const char *prefix,
			       const char *expected)
{
	return reading_fail(r, config_setting_source_line(setting), "%s%s is %s; expected %s", prefix,
			    config_setting_name(setting), settings_type_name(setting), expected);
}

static int settings_read_number(const struct config_reading *r, config_setting_t *setting, const char *prefix,
				const struct setting_row *row, int64_t *value)
{
	int type = config_setting_type(setting);

	if (type == CONFIG_TYPE_INT)
		*value = config_setting_get_int(setting);
	else if (type == CONFIG_TYPE_INT64)
		*value = config_setting_get_int64(setting);
	else
		return settings_wrong_type(r, setting, prefix, "a whole number");
	if (*value < row->min || *value > row->max)
		return reading_fail(r, config_setting_source_line(setting), "%s%s is %lld; expected %lld to %lld",
				    prefix, row->name, (long long)*value, (long long)row->min, (long long)row->max);
	return 0;
}

static int settings_check_text(const struct config_reading *r, int line, const char *prefix, const char *name,
			       const char *text)
{
	if (!*text)
		return reading_fail(r, line, "%s%s is empty; expected text, or leave the setting out", prefix, name);
	for (const char *c = text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return reading_fail(r, line, "%s%s contains a control character (byte %zu is 0x%02x)", prefix,
					    name, (size_t)(c - text) + 1, (unsigned char)*c);
	return 0;
}

static int settings_read_string(const struct config_reading *r, config_setting_t *setting, const char *prefix,
				const char **value)
{
	if (config_setting_type(setting) != CONFIG_TYPE_STRING)
		return settings_wrong_type(r, setting, prefix, "a string");
	*value = config_setting_get_string(setting);
	return settings_check_text(r, config_setting_source_line(setting), prefix, config_setting_name(setting),
				   *value);
}

static int settings_check_texts(const struct config_reading *r, config_setting_t *setting, const char *prefix)
{
	const char *name = config_setting_name(setting);

	if ((!config_setting_is_list(setting) && !config_setting_is_array(setting)) ||
	    config_setting_length(setting) == 0)
		return settings_wrong_type(r, setting, prefix, "a list ( \"...\", \"...\" ) of strings, at least one");
	for (int i = 0; i < config_setting_length(setting); i++) {
		config_setting_t *text = config_setting_get_elem(setting, (unsigned)i);
		int line = config_setting_source_line(text);
		int ret;

		if (config_setting_type(text) != CONFIG_TYPE_STRING)
			return reading_fail(r, line, "%s%s contains %s; expected strings only", prefix, name,
					    settings_type_name(text));
		ret = settings_check_text(r, line, prefix, name, config_setting_get_string(text));
		if (ret < 0)
			return ret;
	}
	return 0;
}

static int settings_read_word(const struct config_reading *r, config_setting_t *setting, const char *prefix,
			      const struct setting_row *row, unsigned *value)
{
	char expected[80] = "";
	const char *text;
	size_t used = 0;
	int ret = settings_read_string(r, setting, prefix, &text);

	if (ret < 0)
		return ret;
	for (unsigned i = 0; row->words[i]; i++) {
		if (strcmp(text, row->words[i]) == 0) {
			*value = i;
			return 0;
		}
		used += (size_t)snprintf(expected + used, sizeof(expected) - used, "%s\"%s\"",
					 !i                  ? ""
					 : row->words[i + 1] ? ", "
							     : " or ",
					 row->words[i]);
	}
	return reading_fail(r, config_setting_source_line(setting), "%s%s is \"%.80s\"; expected %s", prefix, row->name,
			    text, expected);
}

static int settings_read_one(const struct config_reading *r, config_setting_t *setting, const char *prefix,
			     const struct setting_row *row, void *value)
{
	int ret;

	switch (row->type) {
	case SETTING_NUMBER:
		return settings_read_number(r, setting, prefix, row, value);
	case SETTING_FLAG:
		if (config_setting_type(setting) != CONFIG_TYPE_BOOL)
			return settings_wrong_type(r, setting, prefix, "true or false");
		*(bool *)value = config_setting_get_bool(setting);
		return 0;
	case SETTING_WORD:
		return settings_read_word(r, setting, prefix, row, value);
	case SETTING_STRING:
	case SETTING_PATH:
		ret = settings_read_string(r, setting, prefix, value);
		if (ret == 0 && row->type == SETTING_PATH && **(const char **)value != '/')
			return reading_fail(r, config_setting_source_line(setting),
					    "%s%s is \"%.100s\"; expected an absolute path", prefix, row->name,
					    *(const char **)value);
		return ret;
	case SETTING_GROUP:
		if (!config_setting_is_group(setting))
			return settings_wrong_type(r, setting, prefix, "a group { name = value; }");
		break;
	case SETTING_LIST:
		if (!config_setting_is_list(setting))
			return settings_wrong_type(r, setting, prefix, "a list ( { path = \"/...\"; }, ... )");
		break;
	case SETTING_TEXTS:
		ret = settings_check_texts(r, setting, prefix);
		if (ret < 0)
			return ret;
		break;
	}
	*(config_setting_t **)value = setting;
	return 0;
}

int settings_read(const struct config_reading *r, config_setting_t *group, const char *prefix,
		  const struct setting_row *rows, void *values)
{
	for (int i = 0; i < config_setting_length(group); i++) {
		config_setting_t *setting = config_setting_get_elem(group, (unsigned)i);
		const struct setting_row *row = rows;
		int ret;

		while (row->name && strcmp(row->name, config_setting_name(setting)) != 0)
			row++;
		if (!row->name)
			return settings_unknown(r, setting, prefix, rows);
		ret = settings_read_one(r, setting, prefix, row, (char *)values + row->offset);
		if (ret < 0)
			return ret;
	}
	for (const struct setting_row *row = rows; row->name; row++)
		if (row->with && config_setting_get_member(group, row->name) &&
		    !config_setting_get_member(group, row->with))
			return reading_fail(r, settings_line(group, row->name),
					    "%s%s is there without %s%s; expected both", prefix, row->name, prefix,
					    row->with);
	return 0;
}

int settings_line(config_setting_t *group, const char *name)
{
	config_setting_t *setting = group ? config_setting_get_member(group, name) : NULL;

	if (!group)
		return 0;
	return config_setting_source_line(setting ? setting : group);
}
