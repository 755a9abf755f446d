/* See internal.h. */
#include "store/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void *store_need(void *memory)
{
	if (memory)
		return memory;
	fputs("dflockd: out of memory\n", stderr);
	abort();
}

static void __attribute__((format(printf, 3, 0)))
store_tell_failed(struct store *s, bool rejected, const char *format, va_list args)
{
	char why[REPLY_LINE_BYTES];

	vsnprintf(why, sizeof(why), format, args);
	s->news->failed(s, why, rejected);
}

void store_fail(struct store *s, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	store_tell_failed(s, false, format, args);
	va_end(args);
}

void store_reject(struct store *s, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	store_tell_failed(s, true, format, args);
	va_end(args);
}
