#include "cli/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/field.h"
#include "cli/show.h"
#include "cli/grid.h"

#define LEASES_WHEN_BYTES (SHOW_TIME_BYTES + 8)

const char *status_leases_range(const json_t *lease, char out[STATUS_RANGE_BYTES])
{
	int64_t to = field_number(lease, "to"); /* null: to the end */

	if (!strcmp(field_text(lease, "space"), "flock"))
		snprintf(out, STATUS_RANGE_BYTES, "whole file");
	else if (to > 0 && to != INT64_MAX)
		snprintf(out, STATUS_RANGE_BYTES, "%" PRId64 "-%" PRId64, field_number(lease, "from"), to - 1);
	else
		snprintf(out, STATUS_RANGE_BYTES, "%" PRId64 "-end", field_number(lease, "from"));
	return out;
}

/* A holder that the keeper may not look into, or does not find. */
static void add_unseen(struct grid *grid, const json_t *p)
{
	char who[64] = "a process that the keeper cannot find or may not look into";

	if (field_number(p, "pid"))
		snprintf(who, sizeof(who), "pid %" PRId64 ", which the keeper may not look into",
			 field_number(p, "pid"));
	grid_note(grid, "    held by %s, %s: %s", who, field_text(p, "mode"),
		  field_flag(p, "unstoppable")
			  ? "it CANNOT BE STOPPED if the lease runs out (unstoppable in dflock.conf(5))"
			  : "it is stopped by SIGSTOP if the lease runs out");
}

/* Since when a process has the lock; "after" a time where programs take it without a question. */
static const char *leases_when(const json_t *holder, char out[LEASES_WHEN_BYTES])
{
	char when[SHOW_TIME_BYTES];

	if (!field_number(holder, "since"))
		return "not known";
	snprintf(out, LEASES_WHEN_BYTES, "%s%s", strcmp(field_text(holder, "since_is"), "granted") ? "after " : "",
		 show_when(field_number(holder, "since"), when));
	return out;
}

static const char *leases_since_word(const json_t *holder)
{
	return !field_number(holder, "since")                      ? ""
	       : strcmp(field_text(holder, "since_is"), "granted") ? ", locked "
								   : ", locked since ";
}

/* The earliest of them that is known; "-": no process has it. */
static const char *leases_held_since(const json_t *lease, char out[LEASES_WHEN_BYTES])
{
	const json_t *holders = json_object_get(lease, "holders"), *p, *first = NULL;
	size_t i;

	if (!strcmp(field_text(lease, "state"), "asking"))
		return "-";
	json_array_foreach (holders, i, p) {
		if (!field_number(p, "since"))
			return "not known";
		if (!first || field_number(p, "since") < field_number(first, "since"))
			first = p;
	}
	return first ? leases_when(first, out) : "-";
}

static void add_processes(struct grid *grid, const json_t *lease)
{
	bool record = !strcmp(field_text(lease, "space"), "record");
	char since[SHOW_TIME_BYTES], held[LEASES_WHEN_BYTES], range[STATUS_RANGE_BYTES];
	/* While the host asks for this lease, processes that hold the file's lock do so under another lease of the
	 * file. */
	const json_t *holders = strcmp(field_text(lease, "state"), "asking") ? json_object_get(lease, "holders") : NULL;
	const json_t *p;
	size_t i;

	json_array_foreach (holders, i, p) {
		if (field_flag(p, "unseen")) {
			add_unseen(grid, p);
			continue;
		}
		grid_note(grid, "    held by pid %" PRId64 ", %s%s%s%s%s, running since %s: %s", field_number(p, "pid"),
			  field_text(p, "mode"), record ? " " : "", record ? status_leases_range(p, range) : "",
			  leases_since_word(p), field_number(p, "since") ? leases_when(p, held) : "",
			  show_when(field_number(p, "started"), since), field_text(p, "command"));
	}
	json_array_foreach (json_object_get(lease, "calls"), i, p)
		grid_note(grid,
			  "    kept by pid %" PRId64 " (thread %" PRId64
			  ", %s): its lock call under the net has not been seen to end",
			  field_number(p, "pid"), field_number(p, "thread"), field_text(p, "command"));
	json_array_foreach (json_object_get(lease, "waiting"), i, p)
		grid_note(grid, "    pid %" PRId64 " %s for it, %s, since %s", field_number(p, "pid"),
			  field_flag(p, "nonblock") ? "asks" : "waits", field_text(p, "mode"),
			  show_when(field_number(p, "since"), since));
}

void status_leases_print_lost(const json_t *lost, FILE *f)
{
	char when[SHOW_TIME_BYTES];
	size_t count;
	json_t **list = field_sorted(lost, "name", "when", &count);

	if (count)
		fprintf(f, "\nLOST: what the holders did after these times was not protected\n");
	for (size_t i = 0; i < count; i++) {
		struct grid *grid = grid_new(1);

		grid_note(grid, "%s (%s), %s, fence %" PRId64 ", lost %s: %s", field_text(list[i], "name"),
			  field_text(list[i], "path"), field_text(list[i], "mode"), field_number(list[i], "fence"),
			  show_when(field_number(list[i], "when"), when), field_text(list[i], "why"));
		add_processes(grid, list[i]);
		grid_print(grid, f);
		grid_free(grid);
	}
	free(list);
}

void status_leases_print(const json_t *leases, FILE *f)
{
	static const char *const heads[] = {"NAME", "SPACE", "MODE", "RANGE", "STATE", "FENCE", "HELD SINCE"};
	size_t count, columns = sizeof(heads) / sizeof(heads[0]);
	json_t **list = field_sorted(leases, "name", "from", &count);
	struct grid *grid = count ? grid_new(columns) : NULL;

	if (!count) {
		fprintf(f, "\nthis host has no leases\n");
		goto out;
	}
	fputc('\n', f);
	for (size_t i = 0; i < columns; i++)
		grid_cell(grid, "%s", heads[i]);
	for (size_t i = 0; i < count; i++) {
		char range[STATUS_RANGE_BYTES], since[LEASES_WHEN_BYTES];

		grid_cell(grid, "%s", field_text(list[i], "name"));
		grid_cell(grid, "%s", field_text(list[i], "space"));
		grid_cell(grid, "%s", field_text(list[i], "mode"));
		grid_cell(grid, "%s", status_leases_range(list[i], range));
		grid_cell(grid, "%s", field_text(list[i], "state"));
		if (field_number(list[i], "fence"))
			grid_cell(grid, "%" PRId64, field_number(list[i], "fence"));
		else
			grid_cell(grid, "-");
		grid_cell(grid, "%s", leases_held_since(list[i], since));
		if (strcmp(field_text(list[i], "path"), field_text(list[i], "name")))
			grid_note(grid, "    file %s", field_text(list[i], "path"));
		if (*field_text(list[i], "note"))
			grid_note(grid, "    %s", field_text(list[i], "note"));
		add_processes(grid, list[i]);
	}
	grid_print(grid, f);
out:
	grid_free(grid);
	free(list);
}
