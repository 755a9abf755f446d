#include "cli/doctor.h"

#include <stdarg.h>
#include <stdio.h>

#include "cli/show.h"

void doctor_find(struct doctor *d, enum finding level, const char *format, ...)
{
	static const char *const names[] = {"ok:      ", "warning: ", "problem: "};
	char line[CLI_LINE_BYTES + 2 * PATH_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	fputs(names[level], stdout);
	show_text(stdout, line);
	putchar('\n');
	fflush(stdout); /* the next one may take seconds */
	d->counts[level]++;
}
