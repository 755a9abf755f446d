/* What a reading says when it fails: see internal.h. */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/internal.h"

int reading_fail(const struct config_reading *r, int line, const char *format, ...)
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
	/* A value or a file name may have a newline in it. */
	for (char *c = r->why; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	return -EINVAL;
}

int reading_out_of_memory(const struct config_reading *r)
{
	reading_fail(r, 0, "out of memory");
	return -ENOMEM;
}

/* --- text that libconfig would misread --- */

struct scan {
	const struct config_reading *r;
	const char *start, *at, *end; /* *end is NUL */
	int line;
	int comma; /* the line of a comma, while only spaces and comments follow; else 0 */
	int last_comma;
};

/* No <ctype.h>: libconfig's syntax does not depend on the locale. */
static bool scan_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool scan_is_word(char c)
{
	return scan_is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '*' || c == '-';
}

static void scan_step(struct scan *s)
{
	s->line += *s->at == '\n';
	s->at++;
}

static int scan_comment(struct scan *s)
{
	int start = s->line;

	for (s->at += 2; s->at < s->end; scan_step(s)) {
		if (s->at[0] == '*' && s->at[1] == '/') {
			s->at += 2;
			return 0;
		}
	}
	return reading_fail(s->r, start, "this comment does not end; expected */");
}

static int scan_string(struct scan *s)
{
	int start = s->line;

	for (s->at++; s->at < s->end; scan_step(s)) {
		if (*s->at == '"') {
			s->at++;
			return 0;
		}
		if (*s->at != '\\')
			continue;
		/* libconfig would give a string that ends here. */
		if ((s->at[1] == 'x' || s->at[1] == 'X') && s->at[2] == '0' && s->at[3] == '0')
			return reading_fail(s->r, s->line, "\\x00 in a string; a string cannot contain a NUL byte");
		if (s->at[1] == '\\' || s->at[1] == '"')
			s->at++;
	}
	return reading_fail(s->r, start, "this string does not end; expected \"");
}

static int scan_number(struct scan *s)
{
	const char *number = s->at;
	bool hex = s->at[0] == '0' && (s->at[1] == 'x' || s->at[1] == 'X');
	unsigned long long value;
	char *stop;
	int shown;

	errno = 0;
	value = strtoull(number, &stop, hex ? 16 : 10);
	s->at = stop;
	if (*stop == 'L' || *stop == '.' || *stop == 'e' || *stop == 'E')
		return 0;
	if (!errno && value <= INT32_MAX)
		return 0;
	shown = (int)(stop - number < 40 ? stop - number : 40);
	return reading_fail(s->r, s->line, "%.*s needs more than 32 bits; expected an L behind the number: %.*sL",
			    shown, number, shown, number);
}

static bool scan_is_include(const struct scan *s)
{
	const char *before = s->at;

	if (strncmp(before, "@include", 8) != 0)
		return false;
	while (before > s->start && (before[-1] == ' ' || before[-1] == '\t'))
		before--;
	return before == s->start || before[-1] == '\n';
}

static int scan_token(struct scan *s)
{
	const char *at = s->at;

	if (at[0] == '/' && at[1] == '*')
		return scan_comment(s);
	if (at[0] == '#' || (at[0] == '/' && at[1] == '/')) {
		while (s->at < s->end && *s->at != '\n')
			s->at++;
		return 0;
	}
	if ((*at == ')' || *at == ']') && !s->last_comma)
		s->last_comma = s->comma;
	if (*at == ',')
		s->comma = s->line;
	else if (!strchr(" \t\r\n\f", *at))
		s->comma = 0;
	if (*at == '"')
		return scan_string(s);
	if (scan_is_digit(*at))
		return scan_number(s);
	if (scan_is_include(s))
		return reading_fail(s->r, s->line,
				    "@include is not supported, since programs could not see that the other file has "
				    "changed; expected its settings here");
	/* Skips a name as a whole: digits in it are no number. */
	if (scan_is_word(*at) && *at != '-') {
		while (scan_is_word(*s->at))
			s->at++;
		return 0;
	}
	scan_step(s);
	return 0;
}

int scan_text(const struct config_reading *r, const char *text, size_t len, int *comma)
{
	struct scan s = {.r = r, .start = text, .at = text, .end = text + len, .line = 1};
	const char *nul = memchr(text, '\0', len);

	if (nul) {
		int line = 1;

		for (const char *c = text; c < nul; c++)
			line += *c == '\n';
		return reading_fail(r, line, "a NUL byte; expected text");
	}
	while (s.at < s.end) {
		int ret = scan_token(&s);

		if (ret < 0)
			return ret;
	}
	*comma = s.last_comma;
	return 0;
}
