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

void log_make_one_line(char *text)
{
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
}

__attribute__((format(printf, 2, 0))) static void log_line(int level, const char *format, va_list args)
{
	char line[2048];

	vsnprintf(line, sizeof(line), format, args);
	log_make_one_line(line);
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

const char *log_event_name(enum event_kind kind)
{
	static const char *const names[] = {
		[EVENT_LEASE_LOST] = "lease-lost",           [EVENT_HOLDERS_FROZEN] = "holders-frozen",
		[EVENT_HOLDERS_THAWED] = "holders-thawed",   [EVENT_HOLDERS_KILLED] = "holders-killed",
		[EVENT_STORE_AWAY] = "store-away",           [EVENT_STORE_BACK] = "store-back",
		[EVENT_TAKEN_PAST] = "taken-past",           [EVENT_HELD_TOO_LONG] = "held-too-long",
		[EVENT_WAITED_TOO_LONG] = "waited-too-long",
	};

	return names[kind];
}

void log_event(enum event_kind kind, const char *format, ...)
{
	char text[2048];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (kind == EVENT_STORE_BACK || kind == EVENT_HOLDERS_THAWED)
		log_info("event=%s: %s", log_event_name(kind), text);
	else
		log_error("event=%s: %s", log_event_name(kind), text);
}
