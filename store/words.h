/*
 * Words and fields: what the messages between hosts and the answers of the scripts are made of. A row says of what kind
 * each word is and where in a struct its value goes; reading, checking and writing follow from the row. Pure. Whatever
 * the words are, what was read is bounded and checked, or refused.
 */
#ifndef DFLOCK_STORE_WORDS_H
#define DFLOCK_STORE_WORDS_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/store.h"

enum word_kind {
	WORD_END,         /* of a row; also what a row's unset fields are */
	WORD_TOKEN,       /* char[]: 32 lower-case hex digits */
	WORD_HOST,        /* char[STORE_HOST_BYTES]: printable, no blanks */
	WORD_FILE,        /* char[STORE_FILE_BYTES]: the same */
	WORD_CLIENT,      /* char[STORE_CLIENT_BYTES]: the same, or "" */
	WORD_INCARNATION, /* char[STORE_INC_BYTES] */
	WORD_NAME,        /* char[LOCK_NAME_BYTES]: of a lock, not empty; may have blanks */
	WORD_NUMBER,      /* uint64_t, decimal without sign; out of range is refused, here and below */
	WORD_FENCE,       /* uint64_t, not 0 */
	WORD_FENCE_ANY,   /* uint64_t; "": 0 */
	WORD_SIGNED,      /* int64_t */
	WORD_MS,          /* int64_t, not negative */
	WORD_PID,         /* int, not 0 */
	WORD_PID_ANY,     /* int; 0: none */
	WORD_COUNT,       /* unsigned */
	WORD_FLAG,        /* bool: "0", "1" */
	WORD_WAITS,       /* bool: "holds", "waits" */
	WORD_SPACE,       /* enum wire_space */
	WORD_MODE,        /* enum wire_mode */
	WORD_FROM,        /* int64_t: an offset */
	WORD_TO,          /* int64_t: an offset past that of the int64_t before it, which was read before */
	WORD_BROKEN,      /* enum store_broken */
	WORD_KEY_STATE,   /* enum store_key_state */
	WORD_JOB,         /* struct store_job: "PID SINCE COMMAND" */
};

struct word_field {
	enum word_kind kind;
	unsigned at; /* offset in the struct */
};

#define WORD_FIELD(kind, type, member)                                                                                 \
	{                                                                                                              \
		kind, offsetof(type, member)                                                                           \
	}

/* Reads one word into its field. False: it is none of this kind. */
bool word_take(const struct word_field *field, const char *text, void *out);
/* The way back: as snprintf(). */
int word_put(const struct word_field *field, const void *in, char *text, size_t size);

/* How spaces and modes are spelt. */
extern const char *const word_space[WIRE_SPACES];
extern const char *const word_mode[WIRE_MODES];
/* How offsets are written: always 19 digits, so that comparing the texts compares the numbers. */
#define WORD_OFFSET "%019" PRId64

bool word_is_token(const char *text);
bool word_is_host(const char *text);
bool word_is_file(const char *text);
/* "FORMAT KEY", of a format that is known? */
bool word_is_key(const char *text);
/* A decimal number without sign, and nothing else. False: it is no such number, or too large. */
bool word_number(const char *text, uint64_t *out);

/* "PID SINCE COMMAND"; "" for a job without pid. A job of any content: it is made printable. */
#define JOB_TEXT_BYTES 64
void job_format(char text[JOB_TEXT_BYTES], const struct store_job *job);
/* The way back; false, and *out empty: the text is no such text. */
bool job_parse(const char *text, struct store_job *out);

/* ---- messages: through the store, from scripts or hosts to one host. Text to struct store_message and back ---- */

/*
 * The message in the `len` bytes of `text`, of a keeper that knows this incarnation. 0; -EINVAL: it is malformed;
 * -ESTALE: it is a grant of another incarnation. `provisional` is false: the text does not say it.
 */
int message_parse(const char *text, size_t len, const char *incarnation, struct store_message *out);

/* The way back. 0, or -EINVAL: message_parse() would not take it. */
#define MESSAGE_BYTES (LOCK_NAME_BYTES + 512)
int message_format(char text[MESSAGE_BYTES], const struct store_message *message);

#endif
