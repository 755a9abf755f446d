/* See lost.h. */
#include "keeper/leases/lost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "keeper/leases/keeper.h"
#include "keeper/guard/table_notes.h"
#include "keeper/leases/event.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/waiters.h"

#define LOSING_MS 5

static void on_losing(uv_timer_t *timer)
{
	struct keeper *k = timer->data;

	k->lost.losing = table_has_lost(k->table);
	if (k->lost.losing)
		uv_timer_start(timer, on_losing, LOSING_MS, 0);
	else
		waiters_serve_all(k);
	queue_settle(k);
}

void lost_end_holders(struct keeper *k)
{
	k->lost.losing = true;
	table_notify(k->table);
	uv_timer_start(&k->lost.timer, on_losing, LOSING_MS, 0);
}

bool lost_has_holders(const struct lock *lock)
{
	const struct file *file = lock->file;

	return file->keeper->lost.losing &&
	       table_has_lost_on(file->keeper->table, file->key.dev, file->key.ino, lock->space);
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
