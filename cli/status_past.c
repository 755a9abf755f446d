#include "cli/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/field.h"
#include "cli/grid.h"
#include "cli/show.h"

static void print_one(const json_t *lock, FILE *f)
{
	bool record = !strcmp(field_text(lock, "space"), "record");
	char since[SHOW_TIME_BYTES], range[STATUS_RANGE_BYTES];
	struct grid *grid = grid_new(1);

	grid_note(grid, "%s (%s), %s%s%s", field_text(lock, "name"), field_text(lock, "path"), field_text(lock, "mode"),
		  record ? " " : "", record ? status_leases_range(lock, range) : "");
	grid_note(grid, "    locked by pid %" PRId64 ", seen since %s: %s", field_number(lock, "pid"),
		  show_when(field_number(lock, "since"), since), field_text(lock, "command"));
	grid_print(grid, f);
	grid_free(grid);
}

static void print_those(json_t *const *list, size_t count, bool before, const char *head, const char *advice, FILE *f)
{
	bool any = false;

	for (size_t i = 0; i < count; i++) {
		if (field_flag(list[i], "before") != before)
			continue;
		if (!any)
			fprintf(f, "\n%s\n", head);
		any = true;
		print_one(list[i], f);
	}
	if (any)
		fprintf(f, "%s\n", advice);
}

void status_past_print(const json_t *status, FILE *f)
{
	const json_t *looks = json_object_get(status, "past_looks");
	size_t count;
	json_t **list = field_sorted(json_object_get(status, "taken_past"), "name", "pid", &count);

	print_those(
		list, count, false, "PAST DFLOCK: no lease covers these locks, so another host may have them, too",
		"start these programs with `dflock run`; `dflock doctor PROGRAM` says why dflock does not reach one",
		f);
	print_those(list, count, true,
		    "locks that were there before the keeper or their rule came; no lease covers them",
		    "what was locked without dflock is not protected; start these programs again", f);
	if (field_number(looks, "left_out"))
		fprintf(f, "\nmore locks than the keeper watches: %" PRId64 " were not looked at\n",
			field_number(looks, "left_out"));
	free(list);
}
