/*
 * Leases that are lost or taken away while processes may hold the lock: reports them, keeps the locks from other callers until
 * the holders are dead, and lets a lease that the store still has (rules/lease.h, BREAKING and ENDING) go back then. Loop only.
 */
#ifndef DFLOCK_KEEPER_LOST_H
#define DFLOCK_KEEPER_LOST_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include <uv.h>

#include "keeper/guard/table.h"
#include "keeper/kernel/claims.h"
#include "store/store.h"

struct keeper;
struct lease;
struct lock;
struct member;

/* A lease that was lost, for status; the newest LOST_MAX are kept. */
#define LOST_MAX 32
struct lost_lease {
	char *name, *path;
	struct holders_file file;
	struct store_range range;
	uint64_t fence;
	time_t when;
	bool broken; /* an operator took it away */
	char why[160];
	struct lost_lease *prev, *next;
};

/* Part of struct keeper. */
struct lost {
	struct lost_lease *all;
	unsigned count;
	uint64_t counts[TABLE_WHYS]; /* of all that were lost, by why; never go back */
	bool losing;      /* holders of lost leases must be killed: no other process may be taken for one meanwhile */
	uv_timer_t timer; /* runs while leases end */
};

void lost_start(struct keeper *k);
void lost_stop(struct keeper *k);

/* Reports a lease as lost: log, status, counts. text: `why` for people. */
void lost_report(struct lease *lease, enum table_why why, const char *text);

/*
 * There may be lost leases whose holders the parent has to kill: tells the parent. Until it has killed them, no other
 * caller gets these locks, since the parent recognises holders by their kernel locks.
 */
void lost_end_holders(struct keeper *k);
/* A lease is taken away because its key is lost: it is doomed when its last pin has ended. */
void lost_watch(struct keeper *k);
bool lost_has_holders(const struct lock *lock);
/*
 * The store has something for a token that no lease of this host has: it goes back. unused: as for store_release(). False: not now, since
 * holders of lost leases still have to end, and it may be the token of one of these, which could not be read from the table. If the
 * message is lost, too, the next recall or beat names the token again.
 */
bool lost_give_back(struct member *m, const char *name, const char *token, bool unused);

#endif
