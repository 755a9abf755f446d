/*
 * See freeze.h.
 *
 * Each lock has its on_lost, by the rule of its file. For a process that holds several locks "kill" counts before
 * "freeze", and "freeze" before "warn": a process that was asked to end is not stopped, since it could not obey SIGTERM,
 * and gets SIGKILL when half of the margin is over, that is before the leases end; any other process with a lock under
 * "freeze" is stopped, whatever else it holds.
 *
 * All that are stopped for one store go on together, and only when no lease in it is unsure, lost or ending. The keeper loses leases one by one,
 * also while the holders of an earlier one are being killed: one that was lost since then is dealt with in the next look,
 * and its holders must not run until then.
 *
 * Several stores. Each has its own deadline, and a process goes on when none of the stores whose leases it relies on is due any more.
 * Which these are is noted with each thread while it is stopped, so what a holder had started stays with it also when that has
 * ended. While another store is due, processes go on only after a search that saw everything has found no lock of that store in their
 * hands: nothing that is stopped can get one.
 *
 * Lost leases. First all are stopped. If a process were killed while others run, the kernel would pass its lock on to a local
 * process that waits for it. That process has not been told that it holds the lock, but would be taken for a holder. A
 * process that has got SIGKILL runs no more, however long it takes to end.
 *
 * Of a lease that was lost, another host may be the holder by now. So a process that does not stop in time is killed
 * while it runs, without a line, and one that was not found in time is not looked for again. A lease that an operator takes
 * away goes to no other host before its slot is free. So there the look is repeated until it has found and stopped all
 * processes; and as long as that seems to come, none is killed.
 *
 * A process that is stopped relies on nothing, so its kill can wait until it has its line. The parent does not wait for
 * that: it has other holders to look after, and looks again.
 */

#include <signal.h>

#include "keeper/clock.h"
#include "keeper/guard/deeds.h"
#include "keeper/guard/farewell.h"
#include "keeper/guard/freeze.h"
#include "keeper/guard/slots.h"
#include "keeper/log.h"

#define FREEZER_LOOK_MS   20                /* between two looks while there is something to do */
#define FREEZER_LATE_MS   50                /* while an order (deeds.h) is carried out */
#define FREEZER_REST_MS   640               /* and at most, while all processes that were found are stopped */
#define FREEZER_SEIZE_NS  (10 * NS_PER_MS)  /* time for PTRACE_SEIZE to return */
#define FREEZER_STOP_NS   (100 * NS_PER_MS) /* time for stopping them; then they are killed, stopped or not */
#define FREEZER_REPRIEVES 10                /* looks in which holders are only stopped */
#define FREEZER_SEARCHES  4                 /* a look may search for this part of the time that the leases have left */

static int freezer_pause_ms(struct freeze *f, bool quiet, int max_ms)
{
	int ms = f->pause_ms * 2;

	f->pause_ms = !quiet || !ms ? FREEZER_LOOK_MS : ms > FREEZER_REST_MS ? FREEZER_REST_MS : ms;
	return f->pause_ms < max_ms ? f->pause_ms : max_ms;
}

/* Finds the processes that held locks when the leases ceased to be sure. Stops each as it is found, so that the next
 * search need not find it again; but not if some of them may have to end. */
static void freezer_find_first(struct freeze *f)
{
	const uint64_t due = f->relying.due;
	bool stop =
		due && !slots_any(f->table, SLOTS_SURE_UNTIL | due | SLOTS_AS(ON_LOST_KILL) | SLOTS_AS(ON_LOST_WARN));

	if (!relying_find_first(&f->relying, stop ? &f->found : NULL) || !stop)
		return;
	for (size_t i = 0; i < family_count(&f->relying.first); i++) {
		pid_t pid = family_at(&f->relying.first, i);

		if (family_marks(&f->relying.first, pid) & due)
			freeze_process(f, pid, family_marks(&f->relying.first, pid) & due);
	}
}

/* --- leases that are lost --- */

/* The processes stay stopped until the next look. False: they had enough of these. */
static bool freezer_put_off(struct freeze *f)
{
	if (f->reprieves >= FREEZER_REPRIEVES)
		return false;
	f->reprieves++;
	slots_set(f->table, SLOTS_IN(TABLE_ENDING), TABLE_LOST);
	return true;
}

static void freezer_kill_running(const struct family *family)
{
	struct family running = {0};

	for (size_t i = 0; i < family_count(family); i++)
		if (!family_is_held(family_at(family, i)) && family_add(&running, family_at(family, i)) < 0)
			break; /* it is killed with the others */
	freeze_signal(&running, SIGKILL);
	family_free(&running);
}

static void freezer_say(struct freeze *f, const struct family *family, uint64_t ending)
{
	size_t count = family_count(family);

	for (size_t i = 0; i < count; i++)
		log_process(LINE_PROCESS_KILLED, family_at(family, i),
			    "pid %d held a lock whose lease was lost, or was started by one that did: it is killed",
			    (int)family_at(family, i));
	if (count)
		deeds_add(
			f->table, EVENT_HOLDERS_KILLED, ending, family, count,
			"%zu processes that held locks whose leases were lost, or were started by one that did, are killed",
			count);
	deeds_count(f->table, slots_any(f->table, ending | SLOTS_UNBROKEN) ? DEEDS_LOST_KILL : DEEDS_BROKEN_KILL,
		    count);
}

/* Of the processes of calls under way, those that are not stopped, but in the kernel. 0 or -ENOMEM. */
static int freezer_add_held(struct family *held, const struct family *calls)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < family_count(calls); i++)
		if (!family_is_stopped(family_at(calls, i))) /* mutant: bereft-held */
			ret = family_add(held, family_at(calls, i));
	return ret;
}

/*
 * All are stopped or held, also the processes of calls under way, most of which only wait for the lock. One that is stopped has left
 * the call: without the lock it goes on with the others, and makes its call anew. One that is only held may still take the lock in
 * the kernel. In this order: a process that was held in the first look may stop with its lock before the second.
 */
static void freezer_spare_waiting(struct freeze *f, struct family *family, uint64_t ending)
{
	struct family calls = {0}, doomed = {0};
	bool known;

	relying_find(&f->relying, &calls, RELYING_CALLS, ending, NULL);
	known = !f->relying.blind && freezer_add_held(&doomed, &calls) == 0;
	if (known && family_count(&calls))
		relying_find(&f->relying, &doomed, RELYING_UNSHOWN, ending, NULL);
	if (known && family_count(&calls) &&
	    !f->relying.blind) { /* else: what is not known to be without the lock has it */
		family_free(family);
		*family = doomed;
		doomed = (struct family){0};
	}
	family_free(&calls);
	family_free(&doomed);
}

void freezer_end_lost(struct freeze *f)
{
	const uint64_t ending = SLOTS_IN(TABLE_ENDING);
	int64_t now = clock_now_ns();
	struct family family = {0};
	bool stopped;

	family_unmark(&f->targets, slots_stores(f->table, SLOTS_IN(TABLE_LOST))); /* from now on they may be stopped */
	slots_set(f->table, SLOTS_IN(TABLE_LOST), TABLE_ENDING);
	stopped_limit(&f->stopped, FREEZER_SEIZE_NS);
	stopped = freeze_until(f, &family, ending, now, now + FREEZER_STOP_NS);
	if (!stopped && !slots_any(f->table, ending | SLOTS_UNBROKEN) && freezer_put_off(f))
		goto out;
	if (stopped)
		freezer_spare_waiting(f, &family, ending);
	else
		freezer_kill_running(&family);
	/* mutant: farewell-again */
	if (!farewell(f->table, &family, FAREWELL_LOST, !stopped || f->reprieves >= FREEZER_REPRIEVES) && stopped &&
	    freezer_put_off(f))
		goto out;
	freezer_say(f, &family, ending);
	freeze_signal(&family, SIGKILL);
	threads_note_killed(&f->stopped.threads, &family); /* the tracer is told of their end later */
	if (stopped)
		f->reprieves = 0;
	else /* one may have slipped through */
		/* mutant: break-again */
		slots_set(f->table, ending | SLOTS_BROKEN, TABLE_LOST);
	slots_set(f->table, ending, TABLE_FREE);
	stopped_collect(&f->stopped);
	freeze_publish(f);
out:
	family_free(&family);
}

/* --- when to look --- */

/* A margin has begun: returns when to look again. An outage may last for hours, and a look reads every process of the machine. A
 * process that gets a kernel lock past the deadline was granted nothing: if it is found later, it has done no harm. */
static int freezer_stop_holders(struct freeze *f, int64_t now_ns, int max_ms)
{
	size_t before = threads_count(&f->stopped.threads);

	freeze_ask(f, now_ns);
	if (slots_any(f->table, SLOTS_SURE_UNTIL | f->relying.due | SLOTS_AS(ON_LOST_FREEZE)) ||
	    underway_any(&f->table->underway))
		freeze_holders(f);
	return freezer_pause_ms(
		f, threads_count(&f->stopped.threads) == before && clock_now_ns() >= f->times.deadline_ns, max_ms);
}

/* Is it known of each process that is stopped whether it relies on leases in these stores? */
static bool freezer_knows(struct freeze *f, uint64_t stores)
{
	const uint64_t which = SLOTS_IN(TABLE_HELD) | SLOTS_DUE | stores;
	struct family family = {0};
	bool known;

	relying_find(&f->relying, &family, RELYING_CALLS, which, &f->found);
	known = !f->relying.blind;
	relying_find(&f->relying, &family, RELYING_UNSHOWN, which, &f->found);
	known = known && !f->relying.blind;
	family_free(&family);
	return known;
}

/* Lets the processes go that rely on no lease in a store that is due, or whose leases are not settled. */
static void freezer_thaw(struct freeze *f)
{
	uint64_t still = f->relying.due | slots_stores(f->table, SLOTS_DUE); /* mutant: thaw */

	if (!stopped_may_go(&f->stopped, still))
		return;
	if (!still || !(stopped_stores(&f->stopped) & ~still) || freezer_knows(f, still))
		freeze_thaw(f, still);
}

static int freezer_until_ms(const struct slots_times *next, int64_t now_ns, int max_ms)
{
	int64_t left_ms = (next->freeze_at_ns - now_ns) / NS_PER_MS + 1;

	return left_ms < max_ms ? (int)left_ms : max_ms;
}

/* No freeze is due. Returns when to look again. */
static int freezer_others(struct freeze *f, int64_t now_ns, const struct slots_times *next, int max_ms)
{
	struct threads *threads = &f->stopped.threads;

	/* The remaining processes are held, and wait for their file system: SIGCHLD tells when they have stopped. */
	if (threads_count(threads) || signalled_continue_kin(&f->stopped.signalled))
		return freezer_pause_ms(f, threads_count(threads) && !threads_processes(threads), max_ms);
	f->pause_ms = FREEZER_LOOK_MS;
	return next ? freezer_until_ms(next, now_ns, max_ms) : max_ms;
}

void freezer_leave(struct freeze *f)
{
	if (!slots_any(f->table, SLOTS_DUE))
		freeze_thaw(f, 0);
	stopped_collect(&f->stopped);
	for (const struct thread *t = f->stopped.threads.all; t; t = t->hh.next)
		if (t->how == THREAD_TRACED && t->pid == t->tid)
			log_process(LINE_PROCESS_KILLED, t->pid,
				    t->stopped
					    ? "pid %d is stopped, since leases are not sure: it is killed, since the "
					      "keeper's parent ends"
					    : "pid %d was to be stopped, and waits in the kernel since then: it is "
					      "killed, since the keeper's parent ends",
				    (int)t->pid);
}

int freezer_look(struct freeze *f, int max_ms)
{
	struct table *table = f->table;
	int64_t now = clock_now_ns();
	uint64_t sure = slots_stores(table, SLOTS_SURE_UNTIL) | freeze_asks(f), due = slots_past(table, sure, now);
	struct slots_times next;
	bool ahead = slots_first(table, sure & ~due, now, &next), late;

	freeze_forget_asked(f, ~due); /* mutant: look-asked */
	f->relying.due = due;
	f->orders.freeze_at_ns = ahead ? next.freeze_at_ns : INT64_MAX;
	if (due && slots_first(table, due, now, &f->times))
		freeze_begin(f, now);
	f->relying.until_ns =
		due && f->times.deadline_ns > now ? now + (f->times.deadline_ns - now) / FREEZER_SEARCHES : 0;
	/* However long the search for holders in a store that is away for long takes: another one may be due before its end. */
	if (due && ahead && (!f->relying.until_ns || next.freeze_at_ns < f->relying.until_ns)) /* mutant: search-end */
		f->relying.until_ns = next.freeze_at_ns;
	freezer_find_first(f);
	slots_set(table, SLOTS_IN(TABLE_LOST) | SLOTS_AS(ON_LOST_WARN), TABLE_FREE);
	if (slots_any(table, SLOTS_IN(TABLE_LOST)))
		freezer_end_lost(f);
	if (slots_any(table, SLOTS_IN(TABLE_LOST)) && max_ms > FREEZER_LOOK_MS)
		max_ms = FREEZER_LOOK_MS;
	if (due && ahead) /* another store may be due soon */
		max_ms = freezer_until_ms(&next, now, max_ms);
	freezer_thaw(f);
	max_ms = due ? freezer_stop_holders(f, now, max_ms) : freezer_others(f, now, ahead ? &next : NULL, max_ms);
	late = orders_obey(&f->orders, now, due || threads_count(&f->stopped.threads));
	return late && max_ms > FREEZER_LATE_MS ? FREEZER_LATE_MS : max_ms;
}
