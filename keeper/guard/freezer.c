/*
 * See freezer.h.
 *
 * Each lock has its on_lost, by the rule of its file. For a process that holds several locks "kill" counts before
 * "freeze", and "freeze" before "warn": a process that was asked to end is not stopped, since it could not obey SIGTERM,
 * and gets SIGKILL when half of the margin is over, that is before the leases end; any other process with a lock under
 * "freeze" is stopped, whatever else it holds.
 *
 * All that are stopped go on together, and only when no lease is unsure, lost or ending. The keeper loses leases one by one,
 * also while the holders of an earlier one are being killed: one that was lost since then is dealt with in the next look,
 * and its holders must not run until then.
 */
#include "keeper/guard/freezer.h"

#include <stdlib.h>

#include "keeper/clock.h"
#include "keeper/guard/bereft.h"
#include "keeper/guard/evict.h"
#include "keeper/guard/freeze.h"
#include "keeper/guard/slots.h"

#define FREEZER_LOOK_MS 20  /* between two looks while there is something to do */
#define FREEZER_REST_MS 640 /* and at most, while all processes that were found are stopped */

struct freezer {
	struct freeze freeze;
	int pause_ms; /* until the next look: grows while no new process is found */
};

struct freezer *freezer_new(struct table *table)
{
	struct freezer *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	freeze_init(&f->freeze, table);
	f->pause_ms = FREEZER_LOOK_MS;
	return f;
}

void freezer_keeper(struct freezer *f, pid_t keeper)
{
	freeze_set_keeper(&f->freeze, keeper);
}

/* An outage may last for hours, and a look reads every process of the machine. A process that gets a kernel lock past
 * the deadline was granted nothing: if it is found later, it has done no harm. */
static bool freezer_is_past(const struct table *table)
{
	return clock_now_ns() >= slots_deadline_ns(table);
}

static int freezer_pause_ms(struct freezer *f, bool quiet, int max_ms)
{
	int ms = f->pause_ms * 2;

	f->pause_ms = !quiet ? FREEZER_LOOK_MS : ms > FREEZER_REST_MS ? FREEZER_REST_MS : ms;
	return f->pause_ms < max_ms ? f->pause_ms : max_ms;
}

/* Finds the processes that held locks when the leases ceased to be sure. Stops each as it is found, so that the next
 * search need not find it again; but not if some of them may have to end. */
static void freezer_find_first(struct freeze *f, bool due, int64_t freeze_at_ns)
{
	bool stop = due && !slots_any(f->table, SLOTS_SURE_UNTIL | SLOTS_AS(ON_LOST_KILL) | SLOTS_AS(ON_LOST_WARN));

	if (!relying_find_first(&f->relying, due, freeze_at_ns, stop ? &f->found : NULL) || !stop)
		return;
	for (size_t i = 0; i < family_count(&f->relying.first); i++)
		freeze_process(f, family_at(&f->relying.first, i));
}

/* The margin has begun: returns when to look again. */
static int freezer_stop_holders(struct freezer *f, int64_t now_ns, int max_ms)
{
	struct freeze *freeze = &f->freeze;
	size_t before = threads_count(&freeze->stopped.threads);

	if (slots_any(freeze->table, SLOTS_SURE_UNTIL | SLOTS_AS(ON_LOST_KILL)))
		evict_holders(&freeze->evict, now_ns);
	if (slots_any(freeze->table, SLOTS_SURE_UNTIL | SLOTS_AS(ON_LOST_FREEZE)) ||
	    underway_any(&freeze->table->underway))
		freeze_holders(freeze);
	return freezer_pause_ms(f, threads_count(&freeze->stopped.threads) == before && freezer_is_past(freeze->table),
				max_ms);
}

/* No freeze is due: lets all processes go if the leases are sure. Returns when to look again. leases: there are
 * some. */
static int freezer_rest(struct freezer *f, int64_t now_ns, int64_t freeze_at_ns, bool leases, int max_ms)
{
	struct freeze *freeze = &f->freeze;
	struct threads *threads = &freeze->stopped.threads;
	int64_t left_ms;

	if (threads_count(threads) && !slots_any(freeze->table, SLOTS_DUE) &&
	    (now_ns < freeze_at_ns || !leases)) /* mutant: thaw */
		freeze_thaw(freeze);
	/* The remaining processes are held, and wait for their file system: SIGCHLD tells when they have stopped. */
	if (threads_count(threads) || signalled_continue_kin(&freeze->stopped.signalled))
		return freezer_pause_ms(f, threads_count(threads) && !threads_processes(threads), max_ms);
	f->pause_ms = FREEZER_LOOK_MS;
	evict_forget(&freeze->evict);
	left_ms = leases && freeze_at_ns ? (freeze_at_ns - now_ns) / NS_PER_MS + 1 : max_ms;
	return left_ms < max_ms ? (int)left_ms : max_ms;
}

int freezer_look(struct freezer *f, int max_ms)
{
	struct freeze *freeze = &f->freeze;
	struct table *table = freeze->table;
	int64_t now = clock_now_ns(), freeze_at = slots_freeze_at_ns(table);
	bool leases = slots_any(table, SLOTS_SURE_UNTIL);
	bool due = freeze_at && now >= freeze_at && leases;

	if (due)
		freeze_begin(freeze, now);
	freezer_find_first(freeze, due, freeze_at);
	slots_set(table, SLOTS_IN(TABLE_LOST) | SLOTS_AS(ON_LOST_WARN), TABLE_FREE);
	if (slots_any(table, SLOTS_IN(TABLE_LOST)))
		bereft_kill(freeze);
	if (slots_any(table, SLOTS_IN(TABLE_LOST)) && max_ms > FREEZER_LOOK_MS)
		max_ms = FREEZER_LOOK_MS;
	return due ? freezer_stop_holders(f, now, max_ms) : freezer_rest(f, now, freeze_at, leases, max_ms);
}
