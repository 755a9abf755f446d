#include "cli/doctor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/field.h"
#include "cli/show.h"

#define SHOWN_MAX 10 /* `dflock status` shows all */

static void find_one(struct doctor *d, const json_t *lock)
{
	char since[SHOW_TIME_BYTES];

	show_when(field_number(lock, "since"), since);
	if (field_flag(lock, "before"))
		doctor_find(d, FINDING_WARNING,
			    "%s was locked by pid %" PRId64
			    " (%s) before the keeper or the rule came, and no lease covers the "
			    "lock; start the program again, with `dflock run`",
			    field_text(lock, "path"), field_number(lock, "pid"), field_text(lock, "command"));
	else
		doctor_find(d, FINDING_PROBLEM,
			    "%s is locked past dflock by pid %" PRId64
			    " (%s), seen since %s: another host may have the lock, "
			    "too; start the program with `dflock run`, and see `dflock doctor PROGRAM`",
			    field_text(lock, "path"), field_number(lock, "pid"), field_text(lock, "command"), since);
}

/* A keeper of root's may look into all processes. */
static void find_none(struct doctor *d, const json_t *status)
{
	const json_t *looks = json_object_get(status, "past_looks");
	int64_t hidden = field_number(status, "uid") ? field_number(looks, "not_found") : 0;
	char note[128] = "";

	if (!looks)
		return; /* an older keeper */
	if (!field_number(looks, "every_ms")) {
		doctor_find(d, FINDING_WARNING,
			    "the keeper does not look for locks that are taken past dflock: past_look_ms is 0");
		return;
	}
	if (hidden)
		snprintf(note, sizeof(note), "; %" PRId64 " locks belong to processes that it may not look into",
			 hidden);
	doctor_find(d, FINDING_OK, "the keeper has found no lock that was taken past dflock%s", note);
}

/* Those that are past dflock, or those from before. How many there are. */
static size_t find_those(struct doctor *d, json_t *const *list, size_t count, bool before)
{
	size_t found = 0;

	for (size_t i = 0; i < count; i++)
		if (field_flag(list[i], "before") == before && found++ < SHOWN_MAX)
			find_one(d, list[i]);
	if (found > SHOWN_MAX)
		doctor_find(d, before ? FINDING_WARNING : FINDING_PROBLEM,
			    "%zu more locks like these: `dflock status` shows them", found - SHOWN_MAX);
	return found;
}

void doctor_past(struct doctor *d, const json_t *status)
{
	const json_t *looks = json_object_get(status, "past_looks");
	size_t count;
	json_t **list = field_sorted(json_object_get(status, "taken_past"), "name", "pid", &count);

	if (!find_those(d, list, count, false))
		find_none(d, status);
	find_those(d, list, count, true);
	if (field_number(looks, "left_out"))
		doctor_find(d, FINDING_WARNING, "%" PRId64 " locks were not looked at: more than the keeper watches",
			    field_number(looks, "left_out"));
	free(list);
}
