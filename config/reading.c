/* What a reading says when it fails: see internal.h. */
#include "config/internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

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
