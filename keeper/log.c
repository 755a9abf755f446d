/* See log.h. */
#include "keeper/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <syslog.h>

static bool to_stderr = true, with_debug;

void log_init(bool foreground, bool debug)
{
	to_stderr = foreground;
	with_debug = debug;
	if (!foreground)
		openlog("dflockd", LOG_PID, LOG_DAEMON);
}

__attribute__((format(printf, 2, 0))) static void log_line(int level, const char *format, va_list args)
{
	char line[2048];

	vsnprintf(line, sizeof(line), format, args);
	/* Any user can choose names and paths: they must not be able to make a line that looks like one of the
	 * keeper's. */
	for (char *p = line; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	if (to_stderr)
		fprintf(stderr, "dflockd: %s\n", line);
	else
		syslog(level, "%s", line);
}

#define LOG_FUNCTION(name, level)                                                                                      \
	void name(const char *format, ...)                                                                             \
	{                                                                                                              \
		va_list args;                                                                                          \
                                                                                                                       \
		va_start(args, format);                                                                                \
		log_line(level, format, args);                                                                         \
		va_end(args);                                                                                          \
	}

LOG_FUNCTION(log_error, LOG_ERR)
LOG_FUNCTION(log_info, LOG_INFO)

void log_debug(const char *format, ...)
{
	va_list args;

	if (!with_debug)
		return;
	va_start(args, format);
	log_line(LOG_DEBUG, format, args);
	va_end(args);
}
