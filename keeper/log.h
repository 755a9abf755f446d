/*
 * The keeper's log: syslog (daemon facility, "dflockd"), or standard error in the foreground. One line a message, no
 * newline. Event loop and start-up only.
 */
#ifndef DFLOCK_KEEPER_LOG_H
#define DFLOCK_KEEPER_LOG_H

#include <stdbool.h>

/* What operators want to be told of. The names are stable: dflockd(8). */
enum event_kind {
	EVENT_LEASE_LOST,
	EVENT_HOLDERS_FROZEN,
	EVENT_HOLDERS_THAWED,
	EVENT_HOLDERS_KILLED,
	EVENT_STORE_AWAY,
	EVENT_STORE_BACK,
	EVENT_TAKEN_PAST,
	EVENT_HELD_TOO_LONG,
	EVENT_WAITED_TOO_LONG,
	EVENT_KINDS
};

/* debug: log_debug() says something. */
void log_init(bool foreground, bool debug);
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* An error, or news (it is over); the line begins with "event=NAME: ". In the loop, event_raise() (keeper/leases/events.h) does it. */
void log_event(enum event_kind kind, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "lease-lost" and so on. */
const char *log_event_name(enum event_kind kind);
/* Control characters become '?': any user can choose names and paths, and they must not be able to make a line that looks
 * like one of the keeper's. */
void log_make_one_line(char *text);

#endif
