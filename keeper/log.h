/*
 * The keeper's log: syslog (daemon facility, "dflockd"), or standard error in the foreground. One line a message, no
 * newline. Event loop and start-up only.
 */
#ifndef DFLOCK_KEEPER_LOG_H
#define DFLOCK_KEEPER_LOG_H

#include <stdbool.h>

/* debug: log_debug() says something. */
void log_init(bool foreground, bool debug);
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
