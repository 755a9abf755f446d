/*
 * Memory that the parent shares with all its keepers: what it did to processes, what it counts, and the keeper's orders (orders.c).
 *
 * Deeds: what the parent did to processes (froze them, let them go, killed them), for the keeper's events. The parent waits for nothing: if the notes are full, because no keeper has taken any
 * for long, it leaves further ones out; they are in the log. Beside the notes it counts, and leaves nothing out.
 */
#ifndef DFLOCK_KEEPER_DEEDS_H
#define DFLOCK_KEEPER_DEEDS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "config/config.h"
#include "keeper/array.h"
#include "keeper/guard/table.h"
#include "keeper/kernel/claims.h"
#include "keeper/kernel/family.h"
#include "keeper/log.h"

/* --- deeds --- */

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
void deeds_add(struct table *table, enum event_kind kind, uint64_t which, const struct family *family, size_t processes,
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

/*
 * --- orders ---
 *
 * Locks that are held too long: orders of the keeper to end their holders.
 *
 * The keeper alone knows how long a lock is held. It gives an order, and the parent ends the holders. An
 * order's word says whose turn it is: the keeper writes a FREE one and makes it GIVEN, and takes a GIVEN one back; the
 * parent makes a GIVEN one ASKED (SIGTERM is sent) or VAIN, and an ASKED one DONE or STUCK; the keeper makes these FREE.
 */

struct table;

#define ORDERS           16
#define ORDER_WHAT_BYTES 1800

enum order_state {
	ORDER_FREE,
	ORDER_GIVEN,
	ORDER_ASKED,
	ORDER_VAIN,  /* no process that may be signalled has the lock any more */
	ORDER_DONE,  /* all have ended */
	ORDER_STUCK, /* one did not end, or none may be signalled: nothing more is to be tried */
};

struct order {
	uint64_t word; /* number << 8 | enum order_state; each order has another number */
	struct holders_file file;
	enum wire_space space;
	pid_t locker;           /* the process that took the lock; 0: the kernel does not show which one */
	uid_t uid;              /* its user: only this user's processes are ended, unless it is root */
	int64_t at_ns, held_ms; /* the keeper's: of the grant */
	int64_t patience_ns;    /* from SIGTERM to SIGKILL */
	char name[LOCK_NAME_BYTES], path[PATH_MAX];
	char what[ORDER_WHAT_BYTES]; /* the lock, for people */
	char line[900];              /* for the standard errors of those that are ended */
};

static inline uint64_t order_word(const struct order *order)
{
	return __atomic_load_n(&order->word, __ATOMIC_ACQUIRE);
}
static inline enum order_state order_state(uint64_t word)
{
	return (enum order_state)(word & 0xff);
}
/* False: its word is another one by now, and stays. */
static inline bool order_move(struct order *order, uint64_t word, enum order_state to)
{
	return __atomic_compare_exchange_n(&order->word, &word, (word & ~(uint64_t)0xff) | to, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_ACQUIRE);
}

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

/* --- the parent's (orders.c) --- */

/* An order that the parent works on. */
struct order_work {
	struct order order; /* a copy; word 0: none */
	UT_array targets;   /* struct order_target */
	bool killed;        /* SIGKILL was sent, not only SIGTERM */
	int64_t left_ns;    /* until the next step, while no process is frozen */
};

/* Begin with {0}. */
struct orders {
	struct table *table; /* not owned */
	pid_t keeper;        /* no holder */
	int64_t looked_ns;
	int64_t freeze_at_ns; /* freezer.c: no search goes on when this moment has come; INT64_MAX: none is ahead */
	struct order_work works[ORDERS];
};

/*
 * Does what is due of the orders. paused: leases are not sure, or processes are frozen; then nothing is, and no time passes. True: to be
 * called again soon. Each step is a search of /proc, and at most LASTWORDS_MS for lines on standard errors.
 */
bool orders_obey(struct orders *orders, int64_t now_ns, bool paused);
#endif
