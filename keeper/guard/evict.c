/* See evict.h. */
#include "keeper/guard/evict.h"

#include <signal.h>
#include <unistd.h>

#include "keeper/guard/deeds.h"
#include "keeper/guard/farewell.h"
#include "keeper/guard/slots.h"

#define EVICT_SLOTS   (SLOTS_SURE_UNTIL | SLOTS_AS(ON_LOST_KILL))
#define EVICT_PARENTS 64 /* ancestors of one process that are looked at */

void evict_signal(const struct family *family, int number)
{
	for (size_t i = 0; i < family_count(family); i++)
		if (family_at(family, i) != getpid())
			kill(family_at(family, i), number);
}

void evict_holders(struct evict *e, int64_t now_ns)
{
	struct table *table = e->relying->table;
	int64_t freeze_at = slots_freeze_at_ns(table), half = freeze_at + (slots_deadline_ns(table) - freeze_at) / 2;
	bool ask = now_ns < half;

	if (e->asked && ask)
		return;
	family_free(&e->targets);
	relying_find_unshown(e->relying, &e->targets, EVICT_SLOTS, NULL);
	if (family_count(&e->targets) && !e->killed) /* one that waits in the kernel is found again and again */
		deeds_add(
			table, EVENT_HOLDERS_KILLED, EVICT_SLOTS, &e->targets, family_count(&e->targets),
			"the store has not answered: %zu processes that hold locks, or were started by one that does, get %s",
			family_count(&e->targets), ask ? "SIGTERM" : "SIGKILL");
	if (!e->killed)
		deeds_count(table, ask ? DEEDS_EXPIRED_TERM : DEEDS_EXPIRED_KILL, family_count(&e->targets));
	farewell(table, EVICT_SLOTS, &e->targets, ask ? FAREWELL_ASK : FAREWELL_KILL, e->relying->keeper, true);
	evict_signal(&e->targets, ask ? SIGTERM : SIGKILL);
	e->asked = true;
	e->killed = e->killed || !ask;
}

bool evict_is_under_way(const struct evict *e)
{
	return e->asked && !e->killed;
}

/* One of them may have started the process since. */
bool evict_has_asked(const struct evict *e, pid_t pid)
{
	struct procfs_stat stat;

	if (!family_count(&e->targets) || e->killed)
		return false;
	for (int i = 0; i < EVICT_PARENTS && pid > 1; i++, pid = stat.parent)
		if (family_has(&e->targets, pid))
			return true;
		else if (!family_stat(pid, &stat))
			return false;
	return false;
}

void evict_let_stop(struct evict *e)
{
	family_free(&e->targets);
}

void evict_forget(struct evict *e)
{
	family_free(&e->targets);
	e->asked = e->killed = false;
}
