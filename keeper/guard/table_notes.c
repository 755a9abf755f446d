/*
 * See table.h. The deadline is written before freeze_at: if the keeper dies in between, the freeze begins early,
 * which is safe. A process that reads freeze_at first then reads a deadline that is not older.
 */
#include "keeper/guard/table.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "keeper/guard/table_file.h"
#include "keeper/guard/table_words.h"

void table_renewed(struct table *t, unsigned member, int64_t freeze_at_ns, int64_t deadline_ns)
{
	table_put_ns(TABLE_OF(t, member, deadline_ns), deadline_ns);
	table_put_ns(TABLE_OF(t, member, freeze_at_ns), freeze_at_ns);
	if (table_frozen(t))
		table_notify(t);
}

void table_pinned(struct table *t, int64_t until_ns)
{
	if (until_ns > t->head->pins_until_ns)
		table_put_ns(&t->head->pins_until_ns, until_ns);
}

int64_t table_pins_until(const struct table *t, int64_t most_ns)
{
	int64_t until_ns = t->head->pins_until_ns;

	return until_ns < most_ns ? until_ns : most_ns;
}

bool table_has_caller(const struct table *t, const struct table_caller *caller)
{
	uint32_t count = table_get32(&t->head->caller_count);

	for (uint32_t i = 0; i < count && i < TABLE_CALLERS; i++)
		if (memcmp(&t->head->callers[i], caller, sizeof(*caller)) == 0)
			return true;
	return false;
}

void table_add_caller(struct table *t, const struct table_caller *caller)
{
	struct table_head *h = t->head;
	struct table_caller entry = *caller;
	uint32_t at = 0;

	table_forget_callers(t, caller->member);
	while (at < h->caller_count && at < TABLE_CALLERS && h->callers[at].pid)
		at++;
	if (at >= TABLE_CALLERS || table_has_caller(t, caller))
		return; /* further callers count as holders */
	entry.pid = 0;  /* last: until then it is nobody's */
	table_put_bytes(&h->callers[at], &entry, sizeof(entry));
	table_put32((uint32_t *)&h->callers[at].pid, (uint32_t)caller->pid);
	if (at == h->caller_count)
		table_put32(&h->caller_count, at + 1);
}

void table_notify(const struct table *t)
{
	if (getppid() == t->head->parent) /* else it has died, and another process is our parent now */
		kill(t->head->parent, SIGUSR1);
}

void table_alive(struct table *t)
{
	table_put_ns(&t->head->alive, t->head->alive + 1);
}

static bool is_lost(const struct table *t, uint32_t slot)
{
	enum table_state state = table_state(t, slot);

	return state == TABLE_LOST || state == TABLE_ENDING;
}

bool table_has_lost(struct table *t)
{
	uint32_t used = table_used(t);
	bool found = false;

	for (uint32_t i = 0; !found && i < used; i++)
		found = is_lost(t, i);
	return found && getppid() == t->head->parent;
}

bool table_has_lost_on(struct table *t, uint64_t dev, uint64_t ino, enum wire_space space)
{
	uint32_t used = table_used(t);
	bool found = false;

	for (uint32_t i = 0; !found && i < used; i++) {
		const struct table_slot *s = &t->slots[i];

		found = is_lost(t, i) && s->dev == dev && s->ino == ino &&
			(table_slot_space(s) == space || table_slot_space(s) >= WIRE_SPACES);
	}
	return found && getppid() == t->head->parent;
}

#define PATIENCE_NS (5000 * NS_PER_MS)
#define LEAST_NS    (200 * NS_PER_MS) /* twice the period of `alive` */
#define RESTART_NS  (500 * NS_PER_MS) /* time for the next keeper to start, take up the leases and renew */

int64_t table_patience_ns(struct table *t, int64_t since_ns)
{
	uint32_t used = table_used(t);
	int64_t left = 0;

	for (uint32_t i = 0; i < used; i++) {
		int64_t own = *TABLE_OF(t, table_slot_member(&t->slots[i]), freeze_at_ns) - since_ns;

		if (table_is_leased(table_state(t, i)) && own > 0 && (!left || own < left))
			left = own;
	}
	if (!left) /* nothing to save */
		return PATIENCE_NS;
	left -= left < 2 * RESTART_NS ? left / 2 : RESTART_NS;
	return left < LEAST_NS ? LEAST_NS : left > PATIENCE_NS ? PATIENCE_NS : left;
}
