/*
 * See bereft.h.
 *
 * First all are stopped. If a process were killed while others run, the kernel would pass its lock on to a local
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
#include "keeper/guard/bereft.h"

#include <signal.h>

#include "keeper/clock.h"
#include "keeper/guard/deeds.h"
#include "keeper/guard/farewell.h"
#include "keeper/guard/slots.h"
#include "keeper/log.h"

#define BEREFT_SEIZE_NS  (10 * NS_PER_MS)  /* time for PTRACE_SEIZE to return */
#define BEREFT_STOP_NS   (100 * NS_PER_MS) /* time for stopping them; then they are killed, stopped or not */
#define BEREFT_REPRIEVES 10                /* looks in which holders are only stopped */

/* The processes stay stopped until the next look. False: they had enough of these. */
static bool bereft_put_off(struct freeze *f)
{
	if (f->reprieves >= BEREFT_REPRIEVES)
		return false;
	f->reprieves++;
	slots_set(f->table, SLOTS_IN(TABLE_ENDING), TABLE_LOST);
	return true;
}

static void bereft_kill_running(const struct family *family)
{
	struct family running = {0};

	for (size_t i = 0; i < family_count(family); i++)
		if (!family_is_held(family_at(family, i)) && family_add(&running, family_at(family, i)) < 0)
			break; /* it is killed with the others */
	evict_signal(&running, SIGKILL);
	family_free(&running);
}

static void bereft_say(struct freeze *f, const struct family *family, unsigned ending)
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
static int bereft_add_held(struct family *held, const struct family *calls)
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
static void bereft_spare_waiting(struct freeze *f, struct family *family, unsigned ending)
{
	struct family calls = {0}, doomed = {0};
	bool known;

	relying_find_calls(&f->relying, &calls, ending, NULL);
	known = !f->relying.blind && bereft_add_held(&doomed, &calls) == 0;
	if (known && family_count(&calls))
		relying_find_unshown(&f->relying, &doomed, ending, NULL);
	if (known && family_count(&calls) &&
	    !f->relying.blind) { /* else: what is not known to be without the lock has it */
		family_free(family);
		*family = doomed;
		doomed = (struct family){0};
	}
	family_free(&calls);
	family_free(&doomed);
}

void bereft_kill(struct freeze *f)
{
	const unsigned ending = SLOTS_IN(TABLE_ENDING);
	int64_t now = clock_now_ns();
	struct family family = {0};
	bool stopped;

	evict_let_stop(&f->evict);
	slots_set(f->table, SLOTS_IN(TABLE_LOST), TABLE_ENDING);
	stopped_limit(&f->stopped, BEREFT_SEIZE_NS);
	stopped = freeze_until(f, &family, ending, now, now + BEREFT_STOP_NS);
	if (!stopped && !slots_any(f->table, ending | SLOTS_UNBROKEN) && bereft_put_off(f))
		goto out;
	if (stopped)
		bereft_spare_waiting(f, &family, ending);
	else
		bereft_kill_running(&family);
	/* mutant: farewell-again */
	if (!farewell(f->table, ending, &family, FAREWELL_LOST, f->relying.keeper,
		      !stopped || f->reprieves >= BEREFT_REPRIEVES) &&
	    stopped && bereft_put_off(f))
		goto out;
	bereft_say(f, &family, ending);
	evict_signal(&family, SIGKILL);
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
