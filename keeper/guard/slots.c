/* See slots.h. */
#include "keeper/guard/slots.h"

#include "keeper/guard/table_words.h"

#define SLOTS_STORES  (~UINT64_C(0) << 32)
#define SLOTS_AS_SOME (SLOTS_AS(ON_LOST_FREEZE) | SLOTS_AS(ON_LOST_KILL) | SLOTS_AS(ON_LOST_WARN))

static bool slots_mean(uint64_t which, enum table_state state, enum on_lost on_lost)
{
	return which & SLOTS_IN(state) && (!(which & SLOTS_AS_SOME) || which & SLOTS_AS(on_lost));
}

static bool slot_is_meant(const struct table *table, uint32_t slot, uint64_t which)
{
	uint64_t store = SLOTS_OF(table_slot_member(&table->slots[slot]));
	bool broken = table_get32(&table->slots[slot].why) == TABLE_WHY_BROKEN;

	if (which & SLOTS_STORES && !(which & store)) /* mutant: slots-store */
		return false;
	if (which & (broken ? SLOTS_UNBROKEN : SLOTS_BROKEN))
		return false;
	return slots_mean(which, table_state(table, slot), table_on_lost(table, slot));
}

bool slots_any(struct table *table, uint64_t which)
{
	uint32_t used = table_used(table);

	for (uint32_t i = 0; i < used; i++)
		if (slot_is_meant(table, i, which))
			return true;
	return false;
}

void slots_set(struct table *table, uint64_t which, enum table_state to)
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

int slots_claims(struct table *table, uint64_t which, struct claims *claims)
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

uint64_t slots_stores(struct table *table, uint64_t which)
{
	uint32_t used = table_used(table);
	uint64_t stores = 0;

	for (uint32_t i = 0; i < used; i++)
		if (slot_is_meant(table, i, which))
			stores |= SLOTS_OF(table_slot_member(&table->slots[i]));
	return stores;
}

int64_t slots_freeze_at_ns(const struct table *table, unsigned member)
{
	return table_get_ns(TABLE_OF(table, member, freeze_at_ns));
}

uint64_t slots_past(const struct table *table, uint64_t stores, int64_t now_ns)
{
	uint64_t past = 0;

	for (unsigned i = 0; i < TABLE_MEMBERS && stores; i++) {
		int64_t freeze_at = stores & SLOTS_OF(i) ? slots_freeze_at_ns(table, i) : 0;

		if (freeze_at && now_ns >= freeze_at)
			past |= SLOTS_OF(i);
	}
	return past;
}

/* freeze_at is read first: table_notes.c. */
bool slots_first(const struct table *table, uint64_t stores, int64_t now_ns, struct slots_times *out)
{
	bool any = false;

	for (unsigned i = 0; i < TABLE_MEMBERS && stores; i++) {
		struct slots_times times = {.freeze_at_ns = stores & SLOTS_OF(i) ? slots_freeze_at_ns(table, i) : 0};

		if (!times.freeze_at_ns)
			continue;
		times.deadline_ns = table_get_ns(TABLE_OF(table, i, deadline_ns));
		if (!any || (times.deadline_ns > now_ns && out->deadline_ns <= now_ns) ||
		    ((times.deadline_ns > now_ns) == (out->deadline_ns > now_ns) &&
		     (times.deadline_ns < out->deadline_ns) == (times.deadline_ns > now_ns)))
			*out = times;
		any = true;
	}
	return any;
}

void slots_tell_frozen(struct table *table, unsigned count)
{
	table_put32(&table->head->frozen_count, count);
}
