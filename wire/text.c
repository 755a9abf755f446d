#include "wire/text.h"

#include <string.h>

void text_init(struct text *text, char *buf, size_t size)
{
	*text = (struct text){.buf = buf, .size = size};
	buf[0] = '\0';
}

void text_add_bytes(struct text *text, const char *s, size_t n)
{
	size_t room = text->size - text->len - 1;

	if (n > room) {
		n = room;
		text->cut = true;
	}
	memcpy(text->buf + text->len, s, n);
	text->len += n;
	text->buf[text->len] = '\0';
}

void text_add(struct text *text, const char *s)
{
	text_add_bytes(text, s, strlen(s));
}

void text_add_number(struct text *text, int64_t n)
{
	char digits[20]; /* of 2^63, and the sign */
	size_t at = sizeof(digits);
	/* Negated as unsigned: -INT64_MIN is no int64_t. */
	uint64_t rest = n < 0 ? -(uint64_t)n : (uint64_t)n;

	do {
		digits[--at] = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest);
	if (n < 0)
		digits[--at] = '-';
	text_add_bytes(text, digits + at, sizeof(digits) - at);
}

void text_add_errno(struct text *text, int err)
{
	/* strerror() translates and may allocate; this one (glibc 2.32) does neither. */
	const char *description = strerrordesc_np(err);

	if (description) {
		text_add(text, description);
	} else {
		text_add(text, "error ");
		text_add_number(text, err);
	}
}
