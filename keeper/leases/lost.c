/* See lost.h. */
#include "keeper/leases/lost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "keeper/guard/table.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/event.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/waiters.h"
#include "keeper/log.h"

#define LOST_LOOK_MS 5

/* Is its lease taken away still (rules/lease.h, BREAKING and ENDING)? Of one that an operator breaks, breaking.c has to say that it is doomed. */
static bool lost_look_at(struct keeper *k, struct lease *lease)
{
	bool doomed = lease->state == LEASE_BREAKING && lease->key_lost;

	/* mutant: key-pins */
	if (doomed && !waiters_are_pinned(lease->lock, &lease->range))
		queue_raise(lease, LEASE_CUE_DOOMED);
	/* mutant: break-order */
	if (lease->state == LEASE_ENDING && !table_is_ending(k->table, lease->ending.slot, lease->ending.generation))
		queue_raise(lease, LEASE_CUE_BEREFT);
	return doomed || lease->state == LEASE_ENDING;
}

/* One timer looks, so nothing depends on who hears of a change of state. */
static void lost_on_timer(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	struct lease *lease, *next;
	bool was = k->lost.losing, more = false;

	k->lost.losing = table_has_lost(k->table);
	if (was && !k->lost.losing)
		waiters_serve_all(k);
	queue_settle(k);
	HASH_ITER (hh, k->leases, lease, next)
		more |= lost_look_at(k, lease);
	queue_settle(k);
	if (k->lost.losing || (more && !k->leaving))
		lost_watch(k);
}

void lost_watch(struct keeper *k)
{
	uv_timer_start(&k->lost.timer, lost_on_timer, LOST_LOOK_MS, 0);
}

void lost_end_holders(struct keeper *k)
{
	k->lost.losing = true;
	table_notify(k->table);
	lost_watch(k);
}

bool lost_has_holders(const struct lock *lock)
{
	const struct file *file = lock->file;

	return file->keeper->lost.losing &&
	       table_has_lost_on(file->keeper->table, file->key.dev, file->key.ino, lock->space);
}

static void lost_given_back(void *arg, const struct store_reply *reply)
{
	(void)arg, (void)reply;
}

bool lost_give_back(struct member *m, const char *name, const char *token, bool unused)
{
	if (m->keeper->lost.losing)
		return false;
	log_debug("%s %.8s: unknown, given back", name, token);
	store_release(m->store, name, token, unused, lost_given_back, m); /* mutant: unknown-token */
	return true;
}

static void lost_lease_free(struct keeper *k, struct lost_lease *lost)
{
	DL_DELETE(k->lost.all, lost);
	k->lost.count--;
	free(lost->name);
	free(lost->path);
	free(lost);
}

void lost_report(struct lease *lease, enum table_why why, const char *text)
{
	struct file *file = lease->lock->file;
	struct keeper *k = file->keeper;
	struct lost_lease *lost = calloc(1, sizeof(*lost));

	k->lost.counts[why]++;
	event_raise(k,
		    &(struct event){.kind = EVENT_LEASE_LOST,
				    .name = file->name,
				    .path = file->path,
				    .range = &lease->range,
				    .fence = lease->fence,
				    .reason = text},
		    "LOST: the %s lease on %s (%s, fence %llu): %s; %s, see `dflock status`",
		    lease->range.mode == WIRE_SHARED ? "shared" : "exclusive", file->name, file->path,
		    (unsigned long long)lease->fence, text,
		    lease->state == LEASE_ENDING ? "processes that hold the lock are killed"
						 : "processes that hold the lock are no longer alone");
	if (!lost)
		return;
	lost->name = strdup(file->name);
	lost->path = strdup(file->path);
	lost->file = file_searched(file);
	lost->range = lease->range;
	lost->fence = lease->fence;
	lost->when = time(NULL);
	lost->broken = why == TABLE_WHY_BROKEN;
	snprintf(lost->why, sizeof(lost->why), "%s", text);
	DL_APPEND(k->lost.all, lost);
	if (++k->lost.count > LOST_MAX)
		lost_lease_free(k, k->lost.all);
}

void lost_start(struct keeper *k)
{
	uv_timer_init(k->loop, &k->lost.timer);
	k->lost.timer.data = k;
	if (table_has_lost(k->table))
		lost_end_holders(k);
}

void lost_stop(struct keeper *k)
{
	uv_close((uv_handle_t *)&k->lost.timer, NULL);
	while (k->lost.all)
		lost_lease_free(k, k->lost.all);
}
