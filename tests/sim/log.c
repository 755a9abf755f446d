/* keeper/log.h: into the trace. */
#include "keeper/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <syslog.h>

#include "tests/sim/sim.h"

__attribute__((format(printf, 1, 0))) static void say(const char *format, va_list args)
{
	char line[1024];

	if (!sim_tracing)
		return;
	vsnprintf(line, sizeof(line), format, args);
	sim_trace("h%d: %s", task_host(task_now) ? task_host(task_now)->id : -1, line);
}

#define SAY(format)                                                                                                    \
	do {                                                                                                           \
		va_list args;                                                                                          \
		va_start(args, format);                                                                                \
		say(format, args);                                                                                     \
		va_end(args);                                                                                          \
	} while (0)

void log_debug(const char *format, ...) { SAY(format); }
void log_event(enum event_kind kind, const char *format, ...) { SAY(format); }
void log_about(enum event_kind kind, const struct log_about *about, const char *format, ...) { SAY(format); }
void log_process(enum event_kind kind, pid_t pid, const char *format, ...) { SAY(format); }

const char *log_event_name(enum event_kind kind) { return ""; }
void log_make_one_line(char *text) { (void)text; /* no configuration has on_event */ }
void log_set_level(enum log_by by, int level) {}

int log_level(enum log_by *by)
{
	if (by)
		*by = LOG_BY_DEFAULT;
	return LOG_INFO;
}

const char *log_by_name(enum log_by by) { return ""; }
uint64_t log_unwritten(void) { return 0; }
void log_set_host(const char *host) {}
void log_init(bool foreground, const char *environment) {}
void log_stay_resident(void) {}
void log_begin_keeper(void) {}
void log_keeper_ended(void) {}
void log_tick(void) {}
void log_flush(void) {}
