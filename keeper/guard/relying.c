/* See relying.h. */
#include "keeper/guard/relying.h"

#include <string.h>

#include "keeper/guard/slots.h"
#include "keeper/log.h"

static void relying_run(struct relying *r, struct family *family, unsigned which, const struct look_found *found,
			int (*search)(struct look *look))
{
	struct look look = {.table = r->table,
			    .keeper = r->keeper,
			    .first = r->first_known ? &r->first : NULL,
			    .found = found,
			    .family = family};
	int ret = look_begin(&look, which);

	if (ret == 0)
		ret = search(&look);
	look_end(&look);
	if (ret == 0)
		ret = family_add_descendants(family, r->keeper);
	if (ret < 0 && !r->blind)
		log_event(LINE_SEARCH_FAILED, "the processes that hold locks cannot be searched for: %s; tried again",
			  strerror(-ret));
	r->blind = ret < 0;
}

/* Under which of the slots' claims is this call? */
static bool relying_is_meant(const struct look *look, const struct underway_call *call)
{
	for (size_t i = 0; i < claims_count(&look->claims); i++) {
		const struct claim *c = claims_at(&look->claims, i);

		if (underway_is_on(call, c->file.dev, c->file.ino, c->space, c->from, c->to) &&
		    !look_spares(look, c, call->pid))
			return true;
	}
	return false;
}

/* A thread that has the number of one that has ended is of another process, which made no such call. */
static int relying_search_calls(struct look *look)
{
	struct underway_call call;
	int ret = 0;

	for (size_t next = 0; ret == 0 && underway_next(&look->table->underway, &next, &call);)
		if (call.pid != look->keeper && !family_has_ended(call.thread, call.started) &&
		    relying_is_meant(look, &call))
			ret = look_add(look, call.pid);
	return ret;
}

void relying_find_calls(struct relying *r, struct family *family, unsigned which, const struct look_found *found)
{
	relying_run(r, family, which, found, relying_search_calls);
}

void relying_find(struct relying *r, struct family *family, unsigned which, const struct look_found *found)
{
	relying_run(r, family, which, found, look_search);
}

void relying_find_unshown(struct relying *r, struct family *family, unsigned which, const struct look_found *found)
{
	relying_run(r, family, which, found, look_search_all);
}

bool relying_find_first(struct relying *r, bool due, int64_t freeze_at_ns, const struct look_found *found)
{
	if (r->first_known &&
	    ((due && r->first_freeze_at != freeze_at_ns) || !(due || slots_any(r->table, SLOTS_DUE)))) {
		family_free(&r->first);
		r->first_known = false;
		look_forget(r->table);
	}
	if (r->first_known || !(due || slots_any(r->table, SLOTS_IN(TABLE_LOST))))
		return false;
	relying_find_calls(r, &r->first, SLOTS_IN(TABLE_HELD) | SLOTS_DUE, found); /* mutant: first-calls */
	relying_find(r, &r->first, SLOTS_IN(TABLE_HELD) | SLOTS_DUE, found);
	r->first_known = !r->blind;
	r->first_freeze_at = freeze_at_ns;
	return r->first_known;
}
