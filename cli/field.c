#include "cli/field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *field_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

int64_t field_number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

bool field_flag(const json_t *object, const char *key)
{
	return json_is_true(json_object_get(object, key));
}

bool field_is(const json_t *object, const char *key, const char *text)
{
	const char *field = field_text(object, key);
	json_t *value = json_string(text);
	bool is_utf8 = value != NULL;
	char byte[8];

	json_decref(value);
	if (is_utf8)
		return !strcmp(field, text);
	for (; *text; text++, field += strlen(byte)) {
		snprintf(byte, sizeof(byte), (unsigned char)*text < 0x80 ? "%c" : "\\x%02x", (unsigned char)*text);
		if (strncmp(field, byte, strlen(byte)) != 0)
			return false;
	}
	return !*field;
}

void field_print(const json_t *object)
{
	json_dumpf(object, stdout, JSON_INDENT(1));
	putchar('\n');
}

struct keys {
	const char *key, *then;
};

static int compare(const void *a, const void *b, void *arg)
{
	const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
	const struct keys *keys = arg;
	int order = strcmp(field_text(x, keys->key), field_text(y, keys->key));
	int64_t p = field_number(x, keys->then), q = field_number(y, keys->then);

	if (!order)
		order = strcmp(field_text(x, keys->then), field_text(y, keys->then));
	return order ? order : (p > q) - (p < q);
}

json_t **field_sorted(const json_t *array, const char *key, const char *then, size_t *count)
{
	struct keys keys = {key, then};
	json_t **list = calloc(json_array_size(array) + 1, sizeof(*list)), *object;
	size_t i;

	*count = 0;
	if (!list)
		return NULL;
	json_array_foreach (array, i, object)
		if (json_is_object(object))
			list[(*count)++] = object;
	qsort_r(list, *count, sizeof(*list), compare, &keys);
	return list;
}
