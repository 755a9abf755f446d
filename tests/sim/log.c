/* keeper/log.h: into the trace. */
#include "keeper/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "tests/sim/sim.h"

void log_init(bool foreground, bool debug)
{
	(void)foreground, (void)debug;
}

__attribute__((format(printf, 1, 0))) static void say(const char *format, va_list args)
{
	char line[1024];

	if (!sim_tracing)
		return;
	vsnprintf(line, sizeof(line), format, args);
	sim_trace("h%d: %s", task_host(task_now) ? task_host(task_now)->id : -1, line);
}

#define LOG_FUNCTION(name)                                                                                             \
	void name(const char *format, ...)                                                                             \
	{                                                                                                              \
		va_list args;                                                                                          \
                                                                                                                       \
		va_start(args, format);                                                                                \
		say(format, args);                                                                                     \
		va_end(args);                                                                                          \
	}

LOG_FUNCTION(log_error)
LOG_FUNCTION(log_info)
LOG_FUNCTION(log_debug)

const char *log_event_name(enum event_kind kind)
{
	(void)kind;
	return "";
}

void log_make_one_line(char *text)
{
	(void)text; /* no configuration has on_event */
}

void log_event(enum event_kind kind, const char *format, ...)
{
	va_list args;

	(void)kind;
	va_start(args, format);
	say(format, args);
	va_end(args);
}
