/* dflock status: this host's leases, those that were lost, and locks that are held too long or were taken past dflock. */
#include "cli/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/field.h"
#include "cli/show.h"

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

void status_leases_add_range(struct grid *grid, const json_t *row)
{
	char range[STATUS_RANGE_BYTES];

	grid_cell(grid, "%s %s, %s", field_text(row, "space"), field_text(row, "mode"),
		  status_leases_range(row, range));
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

/* For people: docs/state.md has the states as the keeper has them. */
static const char *leases_state(const json_t *lease)
{
	static const char *const words[][3] = {
		/* the keeper's; for people, if a process here has the lock; if none has */
		{"asking", "waiting", "waiting"},
		{"held", "held", "held"},
		{"draining", "held, wanted elsewhere", "going back"},
		{"probing", "held, wanted elsewhere", "going back"},
		{"waiting", "held, wanted elsewhere", "going back"},
		{"stopping", "held, wanted elsewhere", "going back"},
		{"shrinking", "held, becomes shared", "becomes shared"},
		{"releasing", "going back", "going back"},
	};
	const char *state = field_text(lease, "state");
	bool used = json_array_size(json_object_get(lease, "holders"));

	if (!strcmp(state, "held") && !strcmp(field_text(lease, "note"), "wanted by another host"))
		return "held, wanted elsewhere";
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(state, words[i][0]))
			return words[i][used ? 1 : 2];
	return state;
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
		grid_cell(grid, "%s", leases_state(list[i]));
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

/* --- held too long --- */

void status_toolong_print(const json_t *too_long, FILE *f)
{
	char since[SHOW_TIME_BYTES], held[SHOW_TIME_BYTES];
	size_t count;
	json_t **list = field_sorted(too_long, "name", "pid", &count);
	struct grid *grid = count ? grid_new(1) : NULL;

	if (count)
		fprintf(f, "\nHELD TOO LONG: longer than warn_after_ms or kill_after_ms of their rule\n");
	for (size_t i = 0; i < count; i++) {
		const char *doing = field_text(list[i], "doing");

		grid_note(grid, "%s (%s), for %s, since %s", field_text(list[i], "name"), field_text(list[i], "path"),
			  show_ms(field_number(list[i], "held_ms"), held),
			  show_when(field_number(list[i], "since"), since));
		grid_note(grid, "    by pid %" PRId64 "%s%s: %s", field_number(list[i], "pid"),
			  *doing ? ", which " : "", doing, field_text(list[i], "command"));
	}
	if (count)
		grid_print(grid, f);
	grid_free(grid);
	free(list);
}

/* --- taken past dflock --- */

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
