/* See slots.h. */
#include "keeper/guard/slots.h"

#include "keeper/guard/table_words.h"

#define SLOTS_AS_SOME (SLOTS_AS(ON_LOST_FREEZE) | SLOTS_AS(ON_LOST_KILL) | SLOTS_AS(ON_LOST_WARN))

static bool slots_mean(unsigned which, enum table_state state, enum on_lost on_lost)
{
	return which & SLOTS_IN(state) && (!(which & SLOTS_AS_SOME) || which & SLOTS_AS(on_lost));
}

static bool slot_is_meant(const struct table *table, uint32_t slot, unsigned which)
{
	bool broken = table_get32(&table->slots[slot].why) == TABLE_WHY_BROKEN;

	if (which & (broken ? SLOTS_UNBROKEN : SLOTS_BROKEN))
		return false;
	return slots_mean(which, table_state(table, slot), table_on_lost(table, slot));
}

bool slots_any(struct table *table, unsigned which)
{
	uint32_t used = table_used(table);

	for (uint32_t i = 0; i < used; i++)
		if (slot_is_meant(table, i, which))
			return true;
	return false;
}

void slots_set(struct table *table, unsigned which, enum table_state to)
{
	uint32_t used = table_used(table);

	for (uint32_t i = 0; i < used; i++)
		if (slot_is_meant(table, i, which))
			table_move(table, i, table_state(table, i), to);
}

static int slot_claim(struct claims *claims, const struct table_view *view, uint64_t tag)
{
	int ret = claims_add(claims, &view->file, view->space, view->from, view->to, tag);

	if (ret == 0 && view->any_space) /* mutant: any-space */
		ret = claims_add(claims, &view->file, WIRE_RECORD, view->from, view->to, tag);
	return ret;
}

int slots_claims(struct table *table, unsigned which, struct claims *claims)
{
	uint32_t used = table_used(table);
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < used; i++) {
		struct table_view view;

		if (!slot_is_meant(table, i, which))
			continue;
		table_view(table, i, &view);
		if (slots_mean(which, view.state, view.on_lost))
			ret = slot_claim(claims, &view, slots_tag(i, view.generation));
	}
	return ret == 0 ? claims_build(claims) : ret;
}

int64_t slots_freeze_at_ns(const struct table *table)
{
	return table_get_ns(&table->head->freeze_at_ns);
}

int64_t slots_deadline_ns(const struct table *table)
{
	return table_get_ns(&table->head->deadline_ns);
}

void slots_tell_frozen(struct table *table, unsigned count)
{
	table_put32(&table->head->frozen_count, count);
}
