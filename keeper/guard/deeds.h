/*
 * Memory that the parent shares with all its keepers: what it did to processes, what it counts, and the keeper's orders (orders.h).
 *
 * Deeds: what the parent did to processes (froze them, let them go, killed them), for the keeper's events. The parent waits for nothing: if the notes are full, because no keeper has taken any
 * for long, it leaves further ones out; they are in the log. Beside the notes it counts, and leaves nothing out.
 */
#ifndef DFLOCK_KEEPER_DEEDS_H
#define DFLOCK_KEEPER_DEEDS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper/guard/orders.h"
#include "keeper/guard/table.h"
#include "keeper/kernel/family.h"
#include "keeper/log.h"

#define DEEDS_MAX        32
#define DEEDS_PIDS       64
#define DEEDS_TEXT_BYTES 2048

struct deed {
	enum event_kind kind;
	uint32_t processes, pid_count; /* pids: at most the first DEEDS_PIDS of them */
	pid_t pids[DEEDS_PIDS];
	uint64_t dev, ino; /* of the locks' file, if all are on one; ino 0: not so */
	uint32_t order;    /* 1 + number of the order that was carried out, not yet FREE again; 0: it was none */
	char text[DEEDS_TEXT_BYTES];
};

/* The parent's, before the first keeper. NULL: no memory; then table->deeds stays so, and all below do nothing. */
struct deeds *deeds_new(void);

/* Logs the line, and notes the deed. which: the slots (slots.h) whose locks it is about. family: some of the processes,
 * DEEDS_PIDS of them are enough. Parent only. */
void deeds_add(struct table *table, enum event_kind kind, unsigned which, const struct family *family, size_t processes,
	       const char *format, ...) __attribute__((format(printf, 6, 7)));

/* The same, with what there is to say already in `deed`, but for the text. */
void deeds_put(struct table *table, struct deed *deed, const struct log_about *about, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* What the parent counts, over all its keepers: a keeper that dies loses none of it. */
enum deeds_count {
	DEEDS_FREEZES, /* how often holders were frozen */
	/* Processes that got the signal: */
	DEEDS_LOST_KILL,    /* the lease was lost */
	DEEDS_BROKEN_KILL,  /* an operator took it away */
	DEEDS_STUCK_KILL,   /* it could not be stopped in time */
	DEEDS_EXPIRED_TERM, /* on_lost = "kill", and the lease runs out */
	DEEDS_EXPIRED_KILL,
	DEEDS_TOO_LONG_TERM, /* the lock was held too long */
	DEEDS_TOO_LONG_KILL,
	DEEDS_RESTARTS, /* keepers that were started after the first */
	DEEDS_HANGS,    /* keepers that were killed because they did nothing */
	DEEDS_COUNTS
};

/* Parent only. */
void deeds_count(struct table *table, enum deeds_count which, uint64_t n);
/* Both sides. */
uint64_t deeds_counted(const struct table *table, enum deeds_count which);

/* The oldest note, which is then gone. False: there is none. Loop only. */
bool deeds_take(struct table *table, struct deed *out);

/* The shared memory. */
struct deeds {
	uint32_t written, taken;
	uint64_t counts[DEEDS_COUNTS];
	struct deed all[DEEDS_MAX];
	struct order orders[ORDERS];
};

/* NULL: there is none with this number, or no memory was shared. Both sides. Here, since orders.c is the parent's. */
static inline struct order *order_at(const struct table *table, size_t i)
{
	return table->deeds && i < ORDERS ? &table->deeds->orders[i] : NULL;
}

#endif
