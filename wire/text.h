/*
 * Bounded text for places where stdio may not be used: no allocation, no locale, usable in signal handlers.
 *
 * A text is always NUL-terminated. What does not fit is cut off, and `cut` is set: code that builds a path must look at
 * it, code that builds a message need not.
 */
#ifndef DFLOCK_WIRE_TEXT_H
#define DFLOCK_WIRE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
	char *buf;
	size_t size, len;
	bool cut;
};

/* The empty text in buf, which is the caller's and has at least one byte. */
void text_init(struct text *text, char *buf, size_t size);

void text_add(struct text *text, const char *s);
void text_add_bytes(struct text *text, const char *s, size_t n);
void text_add_number(struct text *text, int64_t n); /* in decimal */
void text_add_errno(struct text *text, int err);    /* what strerror(err) says in the C locale; err is positive */

/* Makes n bytes of another process's choice harmless for logs, JSON and terminals, in place: afterwards they are UTF-8
 * without control characters and without what is invisible or turns the direction of text. White space becomes a blank,
 * every other byte that must go '?'. */
void text_make_printable(char *s, size_t n);

#endif
