/* See holdings.h. */
#include "keeper/leases/holdings.h"

#include <stdlib.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/leasepage.h"

/* --- the running clock --- */

int64_t holdings_now_ns(const struct keeper *k)
{
	const struct holdings *h = &k->holdings;
	int64_t passed = clock_now_ns() - h->last_ns;

	if (h->paused || passed < 0)
		return h->ran_ns;
	return h->ran_ns + (passed < HOLDINGS_TICK_MAX_MS * NS_PER_MS ? passed : HOLDINGS_TICK_MAX_MS * NS_PER_MS);
}

void holdings_tick(struct keeper *k, bool paused)
{
	k->holdings.ran_ns = holdings_now_ns(k);
	k->holdings.last_ns = clock_now_ns();
	k->holdings.paused = paused;
}

int64_t holding_age_ms(const struct keeper *k, const struct holding *holding)
{
	return (holdings_now_ns(k) - holding->at_ns) / NS_PER_MS;
}

/* --- holdings --- */

struct holding *holdings_find(struct lock *lock, pid_t locker)
{
	struct holding *holding;
	pid_t pid = locker > 0 ? locker : 0;

	HASH_FIND(hh, lock->holdings, &pid, sizeof(pid), holding);
	return holding;
}

static struct holding *holdings_add(struct lock *lock, pid_t pid, uid_t uid)
{
	struct holding *holding = HASH_COUNT(lock->holdings) < HOLDINGS_MAX ? calloc(1, sizeof(*holding)) : NULL;

	if (!holding)
		return NULL;
	if (!lock->holdings)
		DL_APPEND2(lock->file->keeper->holdings.locks, lock, held_prev, held_next);
	holding->pid = pid;
	holding->uid = uid;
	HASH_ADD(hh, lock->holdings, pid, sizeof(holding->pid), holding);
	return holding;
}

void holding_begin(struct holding *holding)
{
	holding->state = HOLDING_QUIET;
	holding->said = false;
	holding->tries = 0;
}

static void holdings_note(struct lock *lock, pid_t pid, uid_t uid, int64_t pin_ns)
{
	struct holding *holding = holdings_find(lock, pid);

	if (!holding)
		holding = holdings_add(lock, pid, uid);
	if (!holding)
		return;
	if (!pid && holding->uid != uid)
		holding->uid = LEASE_OF_NOBODY;
	if (pid)
		holding->uid = uid;
	holding->at_ns = holdings_now_ns(lock->file->keeper) + pin_ns; /* mutant: holding-anew */
	holding->granted_ns = clock_now_ns();
	holding->since = time(NULL);
	holding->missed = 0;
	if (holding->state == HOLDING_ENDING)
		return; /* toolong_end.c sees that it is a younger one */
	holding_begin(holding);
}

void holdings_granted(struct lock *lock, pid_t pid, uid_t uid, int64_t until_ns)
{
	int64_t pin_ns = until_ns - clock_now_ns();

	if (pin_ns < 0)
		pin_ns = 0;
	/* The file may be known under a path whose rule has no limit, too. */
	leasepage_close_lock(lock);
	holdings_note(lock, 0, uid, pin_ns);
	if (pid > 0)
		holdings_note(lock, pid, uid, pin_ns);
}

void holdings_drop(struct lock *lock, struct holding *holding)
{
	HASH_DEL(lock->holdings, holding);
	if (!lock->holdings)
		DL_DELETE2(lock->file->keeper->holdings.locks, lock, held_prev, held_next);
	free(holding->command);
	free(holding);
}

void holdings_drop_all(struct lock *lock)
{
	struct holding *holding, *next;

	HASH_ITER (hh, lock->holdings, holding, next)
		holdings_drop(lock, holding);
}
