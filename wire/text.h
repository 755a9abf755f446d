/*
 * Bounded text for places where stdio may not be used: no allocation, no locale, usable in signal handlers.
 *
 * A text is always NUL-terminated. What does not fit is cut off, and `cut` is set: code that builds a path must look at
 * it, code that builds a message need not.
 */
#ifndef DFLOCK_WIRE_TEXT_H
#define DFLOCK_WIRE_TEXT_H

#include <stdarg.h>
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

/* As printf(), with these conversions alone: %s; %d, %u, %ld, %lu, %lld and %llu, without a width; %m: what strerror(errno) says in the C
 * locale. */
void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_add_bytes(struct text *text, const char *s, size_t n);

/* The same into buf. False: it was cut off. errno stays. */
bool text_print(char *buf, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool text_vprint(char *buf, size_t size, const char *format, va_list ap) __attribute__((format(printf, 3, 0)));

/* Is the character a control, or one that is invisible or turns the direction of text? A name must look like what it is. */
bool text_is_hidden(uint32_t c);

/* Makes n bytes of another process's choice harmless for logs, JSON and terminals, in place: afterwards they are UTF-8
 * without control characters and without what is invisible or turns the direction of text. White space becomes a blank,
 * every other byte that must go '?'. */
void text_make_printable(char *s, size_t n);

#endif
