/*
 * See freeze.h.
 *
 * Why no process slips through. The search is repeated until it finds nothing that is not stopped.
 *   - A process that forks while it is being stopped is traced with TRACEFORK, so its child begins stopped; a child that
 *     was forked before is found as a descendant.
 *   - A descriptor that was passed to a process which the search had seen without it is found in the next search: the
 *     process that passes it must run to do so, and every process that has it is stopped by then.
 *   - Holders that no descriptor shows are searched for after all others are stopped, since that search takes longer.
 */
#include "keeper/guard/freeze.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/guard/deeds.h"
#include "keeper/guard/farewell.h"
#include "keeper/guard/slots.h"

#define FREEZE_ASKED_SLOTS   (SLOTS_SURE_UNTIL | SLOTS_AS(ON_LOST_KILL))
#define FREEZE_ASKED_PARENTS 64 /* ancestors of one process that are looked at */
#define FREEZE_SLOTS         (SLOTS_SURE_UNTIL | SLOTS_AS(ON_LOST_FREEZE))
#define FREEZE_LATE_NS       (10 * NS_PER_MS) /* past the deadline: time for PTRACE_SEIZE to return */
#define FREEZE_AFTER_NS      (50 * NS_PER_MS) /* past the deadline: time in which a process that is found must be stopped */

/* --- on_lost = "kill" --- */

void freeze_signal(const struct family *family, int number)
{
	for (size_t i = 0; i < family_count(family); i++)
		if (family_at(family, i) != getpid() && !family_member_has_ended(family, family_at(family, i)))
			kill(family_at(family, i), number);
}

/* The processes with such locks in these stores get SIGTERM, or SIGKILL. */
static void freeze_end(struct freeze *f, uint64_t stores, bool ask)
{
	const uint64_t which = FREEZE_ASKED_SLOTS | stores;
	struct family family = {0};
	size_t count;
	bool again = (f->killed & stores) == stores; /* one that waits in the kernel is found again and again */

	/* What the holders had started ends with them, also if they have obeyed and the others have not. */
	if (!ask)
		(void)!family_add_living(&family, &f->targets, stores); /* mutant: freeze-asked */
	relying_find(&f->relying, &family, RELYING_UNSHOWN, which, NULL);
	count = family_count(&family);
	if (slots_past(f->table, stores, clock_now_ns()) !=
	    stores) /* the search took long, and the leases are sure again */
		goto out;
	if (count && !again)
		deeds_add(
			f->table, EVENT_HOLDERS_KILLED, which, &family, count,
			"the store has not answered: %zu processes that hold locks, or were started by one that does, get %s",
			count, ask ? "SIGTERM" : "SIGKILL");
	if (!again)
		deeds_count(f->table, ask ? DEEDS_EXPIRED_TERM : DEEDS_EXPIRED_KILL, count);
	farewell(f->table, &family, ask ? FAREWELL_ASK : FAREWELL_KILL, true);
	freeze_signal(&family, ask ? SIGTERM : SIGKILL);
	family_unmark(&f->targets, stores);
	(void)!family_add_living(&f->targets, &family, stores);
	f->asked |= stores;
	if (!ask)
		f->killed |= stores;
out:
	family_free(&family);
}

/* Of these stores, those for which half of the margin is over. */
static uint64_t freeze_late(struct freeze *f, uint64_t stores, int64_t now_ns)
{
	uint64_t late = 0;

	for (unsigned i = 0; i < TABLE_MEMBERS; i++) {
		struct slots_times times;

		if (stores & SLOTS_OF(i) && slots_first(f->table, SLOTS_OF(i), now_ns, &times) &&
		    now_ns >= times.freeze_at_ns + (times.deadline_ns - times.freeze_at_ns) / 2)
			late |= SLOTS_OF(i);
	}
	return late;
}

uint64_t freeze_asks(const struct freeze *f)
{
	return f->asked & ~f->killed;
}

void freeze_ask(struct freeze *f, int64_t now_ns)
{
	uint64_t stores =
		slots_stores(f->table, FREEZE_ASKED_SLOTS | f->relying.due) | (freeze_asks(f) & f->relying.due);
	uint64_t late = freeze_late(f, stores, now_ns), ask = stores & ~late & ~f->asked;

	if (ask)
		freeze_end(f, ask, true);
	if (late)
		freeze_end(f, late, false);
}

/* Was this process, or one of its ancestors, which may have started it since, asked to end? It must not be stopped, since it could
 * not obey. */
static bool freeze_has_asked(const struct freeze *f, pid_t pid)
{
	struct procfs_stat stat;

	if (!family_count(&f->targets) || !freeze_asks(f))
		return false;
	for (int i = 0; i < FREEZE_ASKED_PARENTS && pid > 1; i++, pid = stat.parent)
		if (family_marks(&f->targets, pid) & ~f->killed)
			return true;
		else if (!family_stat(pid, &stat))
			return false;
	return false;
}

void freeze_forget_asked(struct freeze *f, uint64_t stores)
{
	family_unmark(&f->targets, stores & f->asked);
	f->asked &= ~stores;
	f->killed &= ~stores;
}

/* --- on_lost = "freeze" --- */

static void freeze_on_found(void *arg, pid_t pid, uint64_t stores)
{
	freeze_process(arg, pid, stores);
}

void freeze_init(struct freeze *f, struct table *table)
{
	memset(f, 0, sizeof(*f)); /* too large for the stack */
	f->table = f->relying.table = f->orders.table = table;
	f->found = (struct look_found){.cb = freeze_on_found, .arg = f};
	stopped_adopt(&f->stopped, table->head->signalled, TABLE_SIGNALLED);
}

struct freeze *freeze_new(struct table *table)
{
	struct freeze *f = malloc(sizeof(*f));

	if (f)
		freeze_init(f, table);
	return f;
}

void freeze_set_keeper(struct freeze *f, pid_t keeper)
{
	f->orders.keeper = keeper;
	f->relying.keeper = keeper;
	f->stopped.keeper = keeper;
}

void freeze_begin(struct freeze *f, int64_t now_ns)
{
	int64_t freeze_at = f->times.freeze_at_ns, deadline = f->times.deadline_ns;
	int64_t margin = deadline - freeze_at;
	int64_t tenth = now_ns < deadline && margin > 10 * FREEZE_LATE_NS ? margin / 10 : FREEZE_LATE_NS;

	if (f->limited_for == freeze_at && now_ns < deadline)
		return;
	if (f->limited_for != freeze_at)
		f->patient_until = now_ns + 2 * tenth;
	f->limited_for = freeze_at;
	stopped_limit(&f->stopped, tenth);
}

void freeze_process(struct freeze *f, pid_t pid, uint64_t stores)
{
	if (!freeze_has_asked(f, pid)) /* mutant: freeze */
		stopped_stop(&f->stopped, pid, stores);
}

static void freeze_family(struct freeze *f, const struct family *family)
{
	for (size_t i = 0; i < family_count(family); i++)
		freeze_process(f, family_at(family, i), family_marks(family, family_at(family, i)));
	stopped_collect(&f->stopped);
}

/* One round: stops every process that it finds. True: all are confirmed stopped, and none came or went meanwhile. Where
 * all that are known were stopped before, one search is enough. */
static bool freeze_round(struct freeze *f, struct family *family, uint64_t which)
{
	struct threads *threads = &f->stopped.threads;

	stopped_collect(&f->stopped);
	threads->changed = false;
	/* First the calls: one that takes its lock and is seen out between the two looks is a holder in the second. Most calls under
	 * way do not have the lock, also where holders are to end. */
	relying_find(&f->relying, family, RELYING_CALLS,
		     which & SLOTS_AS(ON_LOST_FREEZE) ? which | SLOTS_AS(ON_LOST_KILL) : which,
		     &f->found); /* mutant: freeze-calls */
	if (!threads_count(threads) || !threads_all_stopped(threads)) {
		relying_find(&f->relying, family, RELYING_SHOWN, which, &f->found);
		freeze_family(f, family);
	}
	if (!threads_all_stopped(threads) || threads->changed)
		return false;
	relying_find(&f->relying, family, RELYING_UNSHOWN, which, &f->found);
	freeze_family(f, family);
	return threads_all_stopped(threads) && !threads->changed;
}

/* A held process stays so for as long as its mount does not answer. */
bool freeze_until(struct freeze *f, struct family *family, uint64_t which, int64_t patient_ns, int64_t until_ns)
{
	const struct timespec pause = {.tv_nsec = NS_PER_MS};

	while (!freeze_round(f, family, which)) {
		int64_t now = clock_now_ns();

		if (now > patient_ns && !f->stopped.threads.changed && threads_all_inert(&f->stopped.threads))
			return true;
		if (now > until_ns)
			return false;
		family_free(family);
		if (freeze_asks(f))
			freeze_ask(f, now);
		nanosleep(&pause, NULL);
	}
	return true;
}

void freeze_publish(struct freeze *f)
{
	slots_tell_frozen(f->table, threads_processes(&f->stopped.threads));
}

static void freeze_list_stopped(const struct freeze *f, struct family *family)
{
	/* For people. There may be thousands, and the parent has other work. */
	for (const struct thread *t = f->stopped.threads.all; t && family_count(family) < DEEDS_PIDS; t = t->hh.next)
		if (!t->killed && family_add(family, t->pid) < 0)
			return;
}

static void freeze_say(struct freeze *f)
{
	struct family family = {0};
	unsigned count = threads_processes(&f->stopped.threads);
	uint64_t stores = f->relying.due & ~f->said;

	if (!count || !stores)
		return;
	freeze_list_stopped(f, &family);
	deeds_add(
		f->table, EVENT_HOLDERS_FROZEN, FREEZE_SLOTS | stores, &family, count,
		"the store has not answered: %u processes that hold locks, or were started by one that does, are frozen "
		"until it does",
		count);
	family_free(&family);
	deeds_count(f->table, DEEDS_FREEZES, 1);
	f->said |= stores;
}

static void freeze_kill_rest(struct freeze *f)
{
	struct family killed = {0};

	threads_kill_others(&f->stopped.threads, &killed);
	deeds_count(f->table, DEEDS_STUCK_KILL, family_count(&killed));
	if (family_count(&killed))
		deeds_add(
			f->table, EVENT_HOLDERS_KILLED, FREEZE_SLOTS, &killed, family_count(&killed),
			"%zu processes could not be stopped in time, or were started by one that could not: they are killed",
			family_count(&killed));
	family_free(&killed);
}

/* The next looks wait for a killed process that does not end: a process that hangs in the kernel must not keep the
 * parent from the others. */
void freeze_holders(struct freeze *f)
{
	const uint64_t which = FREEZE_SLOTS | f->relying.due;
	int64_t now = clock_now_ns(), left = f->times.deadline_ns - now;
	int64_t fourth = left > 0 ? left / 4 : FREEZE_AFTER_NS / 3;
	struct family family = {0};

	if (!freeze_until(f, &family, which, f->patient_until, now + 2 * fourth)) {
		threads_watch(&f->stopped.threads);
		family_free(&family);
		if (!freeze_until(f, &family, which, f->patient_until, now + 3 * fourth))
			freeze_kill_rest(f);
	}
	family_free(&family);
	freeze_publish(f);
	freeze_say(f);
}

void freeze_thaw(struct freeze *f, uint64_t still)
{
	struct family family = {0};
	unsigned count;

	if (f->said && !still)
		freeze_list_stopped(f, &family);
	count = stopped_let_go(&f->stopped, still);
	freeze_publish(f);
	if (count && f->said)
		deeds_add(f->table, EVENT_HOLDERS_THAWED, SLOTS_SURE_UNTIL, &family, count,
			  "the leases stand: %u frozen processes go on", count);
	family_free(&family);
	f->said &= still;
}
