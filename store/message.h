/*
 * The messages that go through the store, from scripts or hosts to one host: text to struct store_message and back.
 * Pure. Whatever the bytes are, the result is bounded and checked, or refused.
 */
#ifndef DFLOCK_STORE_MESSAGE_H
#define DFLOCK_STORE_MESSAGE_H

#include <stddef.h>

#include "store/store.h"

/*
 * The message in the `len` bytes of `text`, of a keeper that knows this incarnation. 0; -EINVAL: it is malformed;
 * -ESTALE: it is a grant of another incarnation. `provisional` is false: the text does not say it.
 */
int message_parse(const char *text, size_t len, const char *incarnation, struct store_message *out);

/* The way back. 0, or -EINVAL: message_parse() would not take it. */
#define MESSAGE_BYTES (LOCK_NAME_BYTES + 512)
int message_format(char text[MESSAGE_BYTES], const struct store_message *message);

#endif
