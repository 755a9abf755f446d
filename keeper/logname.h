/*
 * The names of log lines. A name is stable: operators match it (DFLOCK_EVENT in the journal), and lines of one name may change
 * their words. dflockd(8) lists all; scripts/check-docs.sh compares that list with the table in logname.c. Pure.
 */
#ifndef DFLOCK_KEEPER_LOGNAME_H
#define DFLOCK_KEEPER_LOGNAME_H

#include <stdbool.h>

/* Events: what operators want to be told of (keeper/leases/event.h). Their lines begin with "event=NAME: ". */
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
	EVENT_KINDS,
	/* What follows is in the log alone. Programs and locks: */
	LINE_LOCK_REFUSED = EVENT_KINDS,
	LINE_QUESTION_REFUSED,
	LINE_MALFORMED_QUESTION,
	LINE_DEADLOCK,
	LINE_TAKEN_BEFORE,
	LINE_TAKEN_PAST_OVER,
	LINE_PROBE_FAILED,
	LINE_CALL_UNDER_WAY,
	LINE_SEARCH_FAILED,
	/* Processes that are stopped or ended: */
	LINE_PROCESS_KILLED,
	LINE_NOT_STOPPABLE,
	LINE_NOT_ENDED,
	/* The store and other hosts: */
	LINE_STORE_CONNECTED,
	LINE_STORE_DISCONNECTED,
	LINE_STORE_NONSENSE,
	LINE_STORE_REFUSED,
	LINE_STORE_MEMORY_LOST,
	LINE_STORE_OPENED,
	LINE_GRACE_OVER,
	LINE_LEASES_RUN_OUT,
	LINE_LEASES_UNSURE,
	LINE_LEASE_KEPT,
	LINE_LEASE_NOT_KEPT,
	LINE_LEASE_TAKEN_UP,
	LINE_LEASE_BROKEN,
	LINE_KEY_PUT_BACK,
	LINE_BREAK_REFUSED,
	LINE_HOST_DEAD,
	LINE_HOST_GIVEN_UP,
	LINE_HOST_SWEPT,
	LINE_RULES_NOT_SHARED,
	/* The configuration: */
	LINE_CONFIG_TAKEN_OVER,
	LINE_CONFIG_NOT_IN_FORCE,
	LINE_CONFIG_IN_FORCE_AGAIN,
	LINE_CONFIG_COPY_FAILED,
	LINE_RELOAD_REFUSED,
	LINE_COMMAND_FAILED,
	LINE_NAMES_UNUSABLE,
	LINE_GRANTS_NOT_KEPT,
	LINE_LOG_LEVEL,
	/* The keeper: */
	LINE_KEEPER_SERVES,
	LINE_KEEPER_CANNOT_START,
	LINE_KEEPER_ENDS,
	LINE_KEEPER_WAITS,
	LINE_KEEPER_DIED,
	LINE_KEEPER_HANGS,
	LINE_KEEPER_LEFT_BEHIND,
	LINE_PARENT_KILLED,
	LINE_PARENT_SWAPPABLE,
	LINE_INHERITED_LIMIT,
	LINE_TABLE_DAMAGED,
	LINE_HOST_TWICE,
	LINE_FRONT_FAILED,
	LINE_LINES_LOST,
	LINE_DEBUG,
	LOGNAME_KINDS
};

/* "lease-lost" and so on. LINE_DEBUG has none: "". */
const char *logname_of(enum event_kind kind);

/* LOG_ERR, LOG_WARNING, LOG_INFO or LOG_DEBUG (syslog.h). */
int logname_level(enum event_kind kind);

/* Lines with the same number say states of one thing, of which the latest holds (the store is away; it is back); with *each, of one
 * thing for each lock name. 0: the line says no state. */
unsigned logname_state(enum event_kind kind, bool *each);

#endif
