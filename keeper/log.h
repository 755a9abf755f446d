/*
 * The keeper's log. One line a message, no newline; each has a stable name (logname.h), except those that are for debugging.
 * logsink.h says where lines go, and logcause.h that a line of one cause is written at most once a minute, and counted otherwise;
 * at the level debug each is written. Nothing here waits.
 *
 * Event loop, start-up, and the parent; no other threads. Parent and keeper share memory (log_init()): the level, and what is
 * left to be told. So the level that an operator has set outlives a keeper that is killed, the parent tells what such a
 * keeper had counted, and a keeper that dies again and again fills no log.
 *
 * The level is that of log_set_level(LOG_BY_COMMAND); else that of DFLOCK_LOG when the parent was started; else log_level of the
 * configuration in force; else info.
 */
#ifndef DFLOCK_KEEPER_LOG_H
#define DFLOCK_KEEPER_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper/logname.h"

/* What a line is about: its fields in the journal, and what tells its cause from others of the same name. */
struct log_about {
	const char *lock;    /* lock name, any bytes; NULL: the line is about none */
	const char *subject; /* without a lock name: a path, another host; NULL: none */
	pid_t pid; /* a process that holds the lock, asks for it, or was ended; 0: none. Tells no causes apart */
};

/* What has set the level; each counts before those above it. */
enum log_by { LOG_BY_DEFAULT, LOG_BY_CONFIGURATION, LOG_BY_ENVIRONMENT, LOG_BY_COMMAND, LOG_BYS };

/* The first process, before the keeper is forked. environment: DFLOCK_LOG, or NULL. */
void log_init(bool foreground, const char *environment);
/* Locks what the parent's lines need into memory, if it may: after all that is needed more. */
void log_stay_resident(void);
/* In the keeper's process, when it begins. */
void log_begin_keeper(void);
/* In the parent: the keeper has ended, and tells nothing more. */
void log_keeper_ended(void);
/* Writes lines whose minute is over. Ten times a second is enough. */
void log_tick(void);
/* Writes all that is left to be told: before the process ends. */
void log_flush(void);

/* The id of this host in the store, for the journal. */
void log_set_host(const char *host);
/* LOG_BY_CONFIGURATION and LOG_BY_COMMAND. level: of syslog.h; -1: not this one's to say. */
void log_set_level(enum log_by by, int level);
/* The level that is in force. *by, which may be NULL: what has set it. */
int log_level(enum log_by *by);
/* What an operator wrote: "default", "log_level", "DFLOCK_LOG" or "dflock log-level". */
const char *log_by_name(enum log_by by);
/* Lines of this process and its parent or keeper that could not be written, and have not been told of so far. */
uint64_t log_unwritten(void);

void log_event(enum event_kind kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Copies what *about points to. In the loop, event_raise() (keeper/leases/event.h) does it for events. */
void log_about(enum event_kind kind, const struct log_about *about, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* About a process that was stopped or ended: a cause of its own. */
void log_process(enum event_kind kind, pid_t pid, const char *format, ...) __attribute__((format(printf, 3, 4)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "lease-lost" and so on. */
const char *log_event_name(enum event_kind kind);
/* Control characters become '?': any user can choose names and paths, and they must not be able to make a line that looks
 * like one of the keeper's. */
void log_make_one_line(char *text);

#endif
