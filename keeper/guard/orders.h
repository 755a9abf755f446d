/*
 * Locks that are held too long: orders of the keeper to end their holders, in memory that the parent shares with all its keepers
 * (deeds.h).
 *
 * The keeper alone knows how long a lock is held. It gives an order, and the parent ends the holders. An
 * order's word says whose turn it is: the keeper writes a FREE one and makes it GIVEN, and takes a GIVEN one back; the
 * parent makes a GIVEN one ASKED (SIGTERM is sent) or VAIN, and an ASKED one DONE or STUCK; the keeper makes these FREE.
 */
#ifndef DFLOCK_KEEPER_ORDERS_H
#define DFLOCK_KEEPER_ORDERS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "config/config.h"
#include "keeper/array.h"
#include "keeper/kernel/claims.h"

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

/* --- the parent's --- */

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
	struct order_work works[ORDERS];
};

/*
 * Does what is due of the orders. paused: leases are not sure, or processes are frozen; then nothing is, and no time passes. True: to be
 * called again soon. Each step is a search of /proc, and at most LASTWORDS_MS for lines on standard errors.
 */
bool orders_obey(struct orders *orders, int64_t now_ns, bool paused);

#endif
