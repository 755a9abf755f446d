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

void store_fail(struct store *s, const char *format, ...)
{
	char why[REPLY_LINE_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	s->news->failed(s, why, false);
}

void store_reject(struct store *s, const char *format, ...)
{
	char why[REPLY_LINE_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	s->news->failed(s, why, true);
}
