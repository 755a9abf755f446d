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

/* The messages that keepers send; the scripts send recall and granted. 0, or -ENAMETOOLONG. */
#define MESSAGE_BYTES (LOCK_NAME_BYTES + 512)
int message_format_in_use(char message[MESSAGE_BYTES], const char *host, const char *name, const char *asker_token,
			  const struct store_range *in_use);
int message_format_who(char message[MESSAGE_BYTES], const char *host, const char *name, const char *token);
int message_format_holder(char message[MESSAGE_BYTES], const char *host, const char *token,
			  const struct store_range *range, const struct store_job *job);
int message_format_holders(char message[MESSAGE_BYTES], const char *host, const char *token, uint64_t count);
int message_format_chase(char message[MESSAGE_BYTES], const struct store_chase *chase);
int message_format_break(char message[MESSAGE_BYTES], const char *asker, const struct store_break *what);
void message_format_broken(char message[MESSAGE_BYTES], const char *holder, uint64_t question, enum store_broken broken,
			   int pid);

#endif
