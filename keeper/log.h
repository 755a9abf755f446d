/*
 * The keeper's log. One line a message, no newline; each has a stable name (below), except those that are for debugging.
 * logline.h says where lines go, and that a line of one cause is written at most once a minute, and counted otherwise;
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

/*
 * The names of lines, and their levels (syslog.h). A name is stable: operators match it (DFLOCK_EVENT in the journal), and lines of
 * one name may change their words. dflockd(8) lists all; scripts/check-docs.sh compares that list with this one.
 */

/* Events: what operators want to be told of (keeper/leases/event.h). Their lines begin with "event=NAME: ". */
#define LOG_EVENTS(X)                                                                                                  \
	X(EVENT_LEASE_LOST, "lease-lost", LOG_ERR)                                                                     \
	X(EVENT_HOLDERS_FROZEN, "holders-frozen", LOG_ERR)                                                             \
	X(EVENT_HOLDERS_THAWED, "holders-thawed", LOG_INFO)                                                            \
	X(EVENT_HOLDERS_KILLED, "holders-killed", LOG_ERR)                                                             \
	X(EVENT_STORE_AWAY, "store-away", LOG_ERR)                                                                     \
	X(EVENT_STORE_BACK, "store-back", LOG_INFO)                                                                    \
	X(EVENT_TAKEN_PAST, "taken-past", LOG_WARNING)                                                                 \
	X(EVENT_HELD_TOO_LONG, "held-too-long", LOG_WARNING)                                                           \
	X(EVENT_WAITED_TOO_LONG, "waited-too-long", LOG_WARNING)

/* What is in the log alone. */
#define LOG_LINES(X)                                                                                                   \
	/* Programs and locks: */                                                                                      \
	X(LINE_LOCK_REFUSED, "lock-refused", LOG_WARNING)                                                              \
	X(LINE_QUESTION_REFUSED, "question-refused", LOG_INFO)                                                         \
	X(LINE_MALFORMED_QUESTION, "malformed-question", LOG_WARNING)                                                  \
	X(LINE_DEADLOCK, "deadlock", LOG_INFO)                                                                         \
	X(LINE_TAKEN_BEFORE, "taken-before", LOG_INFO)                                                                 \
	X(LINE_TAKEN_PAST_OVER, "taken-past-over", LOG_INFO)                                                           \
	X(LINE_PROBE_FAILED, "probe-failed", LOG_WARNING)                                                              \
	X(LINE_CALL_UNDER_WAY, "call-under-way", LOG_WARNING)                                                          \
	X(LINE_SEARCH_FAILED, "search-failed", LOG_ERR)                                                                \
	/* Processes that are stopped or ended: */                                                                     \
	X(LINE_PROCESS_KILLED, "process-killed", LOG_ERR)                                                              \
	X(LINE_NOT_STOPPABLE, "not-stoppable", LOG_ERR)                                                                \
	X(LINE_NOT_ENDED, "not-ended", LOG_WARNING)                                                                    \
	/* The store and other hosts: */                                                                               \
	X(LINE_STORE_CONNECTED, "store-connected", LOG_INFO)                                                           \
	X(LINE_STORE_DISCONNECTED, "store-disconnected", LOG_WARNING)                                                  \
	X(LINE_STORE_NONSENSE, "store-nonsense", LOG_WARNING)                                                          \
	X(LINE_STORE_REFUSED, "store-refused", LOG_ERR)                                                                \
	X(LINE_STORE_MEMORY_LOST, "store-memory-lost", LOG_ERR)                                                        \
	X(LINE_STORE_OPENED, "store-opened", LOG_INFO)                                                                 \
	X(LINE_GRACE_OVER, "grace-over", LOG_INFO)                                                                     \
	X(LINE_LEASES_RUN_OUT, "leases-run-out", LOG_ERR)                                                              \
	X(LINE_LEASES_UNSURE, "leases-unsure", LOG_WARNING)                                                            \
	X(LINE_LEASE_KEPT, "lease-kept", LOG_WARNING)                                                                  \
	X(LINE_LEASE_NOT_KEPT, "lease-not-kept", LOG_INFO)                                                             \
	X(LINE_LEASE_TAKEN_UP, "lease-taken-up", LOG_INFO)                                                             \
	X(LINE_LEASE_BROKEN, "lease-broken", LOG_WARNING)                                                              \
	X(LINE_KEY_PUT_BACK, "key-put-back", LOG_WARNING)                                                              \
	X(LINE_BREAK_REFUSED, "break-refused", LOG_WARNING)                                                            \
	X(LINE_HOST_DEAD, "host-dead", LOG_WARNING)                                                                    \
	X(LINE_HOST_GIVEN_UP, "host-given-up", LOG_WARNING)                                                            \
	X(LINE_HOST_SWEPT, "host-swept", LOG_INFO)                                                                     \
	X(LINE_RULES_NOT_SHARED, "rules-not-shared", LOG_WARNING)                                                      \
	/* The configuration: */                                                                                       \
	X(LINE_CONFIG_TAKEN_OVER, "config-taken-over", LOG_INFO)                                                       \
	X(LINE_CONFIG_NOT_IN_FORCE, "config-not-in-force", LOG_WARNING)                                                \
	X(LINE_CONFIG_IN_FORCE_AGAIN, "config-in-force-again", LOG_INFO)                                               \
	X(LINE_CONFIG_COPY_FAILED, "config-copy-failed", LOG_WARNING)                                                  \
	X(LINE_RELOAD_REFUSED, "reload-refused", LOG_ERR)                                                              \
	X(LINE_COMMAND_FAILED, "command-failed", LOG_WARNING)                                                          \
	X(LINE_NAMES_UNUSABLE, "names-unusable", LOG_ERR)                                                              \
	X(LINE_GRANTS_NOT_KEPT, "grants-not-kept", LOG_WARNING)                                                        \
	X(LINE_LOG_LEVEL, "log-level", LOG_INFO)                                                                       \
	/* The keeper: */                                                                                              \
	X(LINE_KEEPER_SERVES, "keeper-serves", LOG_INFO)                                                               \
	X(LINE_KEEPER_CANNOT_START, "keeper-cannot-start", LOG_ERR)                                                    \
	X(LINE_KEEPER_ENDS, "keeper-ends", LOG_INFO)                                                                   \
	X(LINE_KEEPER_WAITS, "keeper-waits", LOG_WARNING)                                                              \
	X(LINE_KEEPER_DIED, "keeper-died", LOG_ERR)                                                                    \
	X(LINE_KEEPER_HANGS, "keeper-hangs", LOG_ERR)                                                                  \
	X(LINE_KEEPER_LEFT_BEHIND, "keeper-left-behind", LOG_ERR)                                                      \
	X(LINE_PARENT_KILLED, "parent-killed", LOG_ERR)                                                                \
	X(LINE_PARENT_SWAPPABLE, "parent-swappable", LOG_WARNING)                                                      \
	X(LINE_INHERITED_LIMIT, "inherited-limit", LOG_WARNING)                                                        \
	X(LINE_TABLE_DAMAGED, "table-damaged", LOG_ERR)                                                                \
	X(LINE_HOST_TWICE, "host-twice", LOG_ERR)                                                                      \
	X(LINE_FRONT_FAILED, "front-failed", LOG_ERR)                                                                  \
	X(LINE_LINES_LOST, "lines-lost", LOG_WARNING)                                                                  \
	X(LINE_DEBUG, "", LOG_DEBUG)

#define LOG_KIND(kind, name, level) kind,
enum event_kind {
	LOG_EVENTS(LOG_KIND) EVENT_KINDS,
	LOG_BEFORE_LINES = EVENT_KINDS - 1,
	LOG_LINES(LOG_KIND) LOGNAME_KINDS
};

/* What a line is about: its fields in the journal, and what tells its cause from others of the same name. */
struct log_about {
	const char *lock;    /* lock name, any bytes; NULL: the line is about none */
	const char *subject; /* without a lock name: a path, another host; NULL: none */
	unsigned store;      /* the number of the store that it is about; 0: the first one, or none */
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
/* Any user can choose names and paths. None may make a line that looks like one of the keeper's: each control character becomes '?', also
 * those that are white space. And none may make a line that journalctl shows as "[98B blob data]": the rest is what text_make_printable()
 * (wire/text.h) leaves. */
void log_make_one_line(char *text);

#endif
