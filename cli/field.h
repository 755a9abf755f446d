/* Reads JSON from a keeper that may be of another version: a field that is missing or of another type counts as
 * empty. */
#ifndef DFLOCK_CLI_FIELD_H
#define DFLOCK_CLI_FIELD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

const char *field_text(const json_t *object, const char *key);
int64_t field_number(const json_t *object, const char *key);
bool field_flag(const json_t *object, const char *key);
/* Is it this text, which may be any bytes? If it is no UTF-8, the keeper shows those above 0x7f as \xNN. */
bool field_is(const json_t *object, const char *key, const char *text);

/* Prints it for programs. */
void field_print(const json_t *object);

/* The objects of an array, sorted by their `key`, then by `then` (numbers or text). *count is 0 if there are none,
 * or no memory. The caller frees the list; the objects stay the array's. */
json_t **field_sorted(const json_t *array, const char *key, const char *then, size_t *count);

#endif
