/*
 * Events: what an operator wants to be told of. Each has a stable name (keeper/log.h), is a line in the log, and is given to
 * the command of the configuration (on_event) as JSON on its standard input; dflockd(8) lists names and fields.
 *
 * The command runs once at a time (kernel/hook.h), in the order of the events. While it runs, or within EVENT_GATHER_MS,
 * events of one kind become one, which counts them and names the first EVENT_OTHERS + 1. So there is never more than one
 * event of each kind waiting, however many happen. Of two opposites (the store is away, and back;
 * holders are frozen, and thawed) the later one is always told last.
 *
 * What the parent does (freezing, killing) it says in the log itself, and leaves a note in shared memory (guard/deeds.h),
 * which the loop takes from there: the parent waits for nothing.
 *
 * Loop only.
 */
#ifndef DFLOCK_KEEPER_EVENT_H
#define DFLOCK_KEEPER_EVENT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper/log.h"
#include "store/store.h"

struct keeper;
struct lock;

#define EVENT_GATHER_MS 100
#define EVENT_OTHERS    7

/* All but `kind` may be left out (NULL, 0): what is not known is not in the JSON. Nothing of it is kept. */
struct event {
	enum event_kind kind;
	const char *name, *path;         /* of the file; any bytes */
	const struct store_range *range; /* of the lock */
	uint64_t fence;
	const pid_t *pids; /* the processes that it concerns: holders, callers, those that were frozen or killed */
	size_t pid_count;
	unsigned store;      /* as in struct log_about */
	size_t processes;    /* how many these are, if pids does not have all; 0: pid_count */
	const char *command; /* of the first of them */
	const char *holder;  /* who has the lock, as far as known */
	const char *reason;  /* one line: why */
	int64_t for_ms;      /* how long this has gone on: the wait, the lock, the store's absence */
};

/* Logs the line (with "event=NAME: " before it), and gives the event to the command with the line as "message". k->config
 * is there. */
void event_raise(struct keeper *k, const struct event *event, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Sets k->events, before any event. 0 or -ENOMEM. */
int event_start(struct keeper *k);
/* Takes the parent's notes: ten times a second. */
void event_take_deeds(struct keeper *k);
/* At the keeper's end: starts the command for the first event that waits, if it does not run, and gives up on the others
 * with a line in the log. Closes the handles; event_free() when the loop has run. */
void event_stop(struct keeper *k);
void event_free(struct keeper *k);

#endif
