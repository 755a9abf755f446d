/* dflock status: leases of this host and of all hosts, those that were lost, and locks that are held too long or were taken
 * past dflock. The rows are the keeper's (docs/state.md); fields that are derived from others are added to them here. */
#include "cli/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/field.h"
#include "cli/show.h"

#define RANGE       "{space} {mode}, {from:range}"
#define REST_MAX_MS INT64_C(2592000000) /* the longest at_least_ms */

static void add_notes(struct grid *grid, const json_t *rows, const char *template)
{
	const json_t *row;
	size_t i;

	json_array_foreach (rows, i, row)
		grid_row_note(grid, row, template);
}

/* The rows, sorted, with a line above and one below them; nothing if there are none. */
static void print_rows(const json_t *rows, const char *then, const char *head, const char *template, const char *advice,
		       FILE *f)
{
	size_t count;
	json_t **list = field_sorted(rows, "name", then, &count);

	if (count)
		fprintf(f, "\n%s\n", head);
	for (size_t i = 0; i < count; i++)
		show_row(f, list[i], template);
	if (count)
		fputs(advice, f);
	free(list);
}

/* --- this host's --- */

/* While the host asks for a lease, processes that hold the file's lock do so under another lease of the file. */
static const json_t *holders_of(const json_t *lease)
{
	return strcmp(field_text(lease, "state"), "asking") ? json_object_get(lease, "holders") : NULL;
}

static void add_processes(struct grid *grid, const json_t *lease)
{
	add_notes(grid, holders_of(lease),
		  "    held by "
		  "[{unseen!}pid {pid}, {mode}[{space=record} {from:range}]"
		  "[{since?}, locked [{since_is=granted}since][{since_is!=granted}after] {since:when}]"
		  ", running since {started:when}: {command}]"
		  "[{unseen?}[{pid?}pid {pid}, which the keeper may not look into]"
		  "[{pid!}a process that the keeper cannot find or may not look into], {mode}: "
		  "[{unstoppable?}it CANNOT BE STOPPED if the lease runs out (unstoppable in dflock.conf(5))]"
		  "[{unstoppable!}it is stopped by SIGSTOP if the lease runs out]]");
	add_notes(
		grid, json_object_get(lease, "calls"),
		"    kept by pid {pid} (thread {thread}, {command}): its lock call under the net has not been seen to end");
	add_notes(grid, json_object_get(lease, "waiting"),
		  "    pid {pid} [{nonblock?}asks][{nonblock!}waits] for it, {mode}, since {since:when}");
}

/* The earliest of them that is known; "-": no process has it. */
static void add_held_since(struct grid *grid, const json_t *lease)
{
	const json_t *p, *first = NULL;
	size_t i;

	json_array_foreach (holders_of(lease), i, p)
		if (!first || field_number(p, "since") < field_number(first, "since"))
			first = p;
	grid_row(grid, first, first ? "[{since!}not known][{since?}[{since_is!=granted}after ]{since:when}]" : "-");
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

static void print_leases(const json_t *leases, FILE *f)
{
	size_t count;
	json_t **list = field_sorted(leases, "name", "from", &count);
	struct grid *grid = grid_new(7);

	grid_row(grid, NULL, "NAME\tSPACE\tMODE\tRANGE\tSTATE\tFENCE\tHELD SINCE");
	for (size_t i = 0; i < count; i++) {
		grid_row(grid, list[i], "{name}\t{space}\t{mode}\t{from:range}");
		grid_cell(grid, "%s", leases_state(list[i]));
		grid_row(grid, list[i], "{fence|-}");
		add_held_since(grid, list[i]);
		if (strcmp(field_text(list[i], "path"), field_text(list[i], "name")))
			grid_row_note(grid, list[i], "    file {path}");
		if (*field_text(list[i], "note"))
			grid_row_note(grid, list[i], "    {note}");
		add_processes(grid, list[i]);
	}
	fputs(count ? "\n" : "\nthis host has no leases\n", f);
	if (count)
		grid_print(grid, f);
	grid_free(grid);
	free(list);
}

static void print_lost(const json_t *lost, FILE *f)
{
	size_t count;
	json_t **list = field_sorted(lost, "name", "when", &count);
	struct grid *grid = grid_new(1);

	for (size_t i = 0; i < count; i++) {
		grid_row_note(grid, list[i], "{name} ({path}), {mode}, fence {fence}, lost {when:when}: {why}");
		add_processes(grid, list[i]);
	}
	if (count) {
		fprintf(f, "\nLOST: what the holders did after these times was not protected\n");
		grid_print(grid, f);
	}
	grid_free(grid);
	free(list);
}

static void print_past(const json_t *status, FILE *f)
{
	static const char row[] = "{name} ({path}), {mode}[{space=record} {from:range}]\n"
				  "    locked by pid {pid}, seen since {since:when}: {command}\n";
	json_t *lists[] = {json_array(), json_array()}, *lock;
	size_t i;

	json_array_foreach (json_object_get(status, "taken_past"), i, lock)
		json_array_append(lists[field_flag(lock, "before")], lock);
	print_rows(
		lists[false], "pid", "PAST DFLOCK: no lease covers these locks, so another host may have them, too",
		row,
		"start these programs with `dflock run`; `dflock doctor PROGRAM` says why dflock does not reach one\n",
		f);
	print_rows(lists[true], "pid",
		   "locks that were there before the keeper or their rule came; no lease covers them", row,
		   "what was locked without dflock is not protected; start these programs again\n", f);
	show_row(
		f, status,
		"[{past_looks.left_out?}\nmore locks than the keeper watches: {past_looks.left_out} were not looked at\n]");
	json_decref(lists[false]);
	json_decref(lists[true]);
}

void status_leases_print(const json_t *status, FILE *f)
{
	print_rows(json_object_get(status, "too_long"), "pid",
		   "HELD TOO LONG: longer than warn_after_ms or kill_after_ms of their rule",
		   "{name} ({path}), for {held_ms:ms}, since {since:when}\n"
		   "    by pid {pid}[{doing?}, which {doing}]: {command}\n",
		   "", f);
	print_past(status, f);
	print_lost(json_object_get(status, "lost"), f);
	print_leases(json_object_get(status, "leases"), f);
}

/* --- all hosts' --- */

/* Silent for longer than a lease lasts: a host that wants its leases gets them after one ttl of watching. */
static bool is_silent(const json_t *status, const json_t *about)
{
	return !json_is_object(about) ||
	       field_number(about, "age_ms") > field_number(json_object_get(status, "cluster"), "ttl_ms");
}

/* Adds "own", "unheard" or "silent_ms" to what a host has or waits for. Is the host one that lives? */
static bool tell_host(const json_t *status, json_t *entry)
{
	const json_t *hosts = json_object_get(json_object_get(status, "cluster"), "hosts");
	const json_t *about = json_object_get(hosts, field_text(entry, "host"));
	bool silent = is_silent(status, about);

	if (!strcmp(field_text(entry, "host"), field_text(status, "host")))
		json_object_set_new(entry, "own", json_true());
	else if (!json_is_object(about))
		json_object_set_new(entry, "unheard", json_true());
	else if (silent)
		json_object_set_new(entry, "silent_ms", json_integer(field_number(about, "age_ms")));
	return !silent;
}

/* By this machine's clock: the store says how long it still rests. */
static void add_rests(struct grid *grid, const json_t *lock)
{
	const char *space;
	json_t *left;

	json_object_foreach (json_object_get(lock, "resting"), space, left) {
		int64_t ms = json_integer_value(left);
		json_t *rest;

		if (ms <= 0 || ms > REST_MAX_MS)
			continue;
		rest = json_pack("{s:s,s:I,s:I}", "space", space, "left_ms", (json_int_t)ms, "until",
				 (json_int_t)(time(NULL) + (ms + 999) / 1000));
		grid_row(grid, rest, "    resting\tuntil {until:when}\t{space}\t{left_ms:ms} more\t");
		json_decref(rest);
	}
}

/* The program whose question got a lease may have ended since, and others of its host may use the lease. */
#define HOST "{host}[{own?} (this host)][{unheard?} (never heard of)][{silent_ms?} (silent for {silent_ms:ms})]"
#define JOB  "[{job.pid?}asked for by pid {job.pid} ({job.command}), {job.since:when}]"

static void add_lock(struct grid *grid, const json_t *lock)
{
	const json_t *client = json_object_get(lock, "client");
	json_t *entry;
	size_t i;

	grid_row_note(grid, lock, "{name}[{store?} (in {store})]");
	json_array_foreach (json_object_get(lock, "leases"), i, entry)
		grid_row(grid, entry, "    held\t" HOST "\t" RANGE "\tfence {fence}\t" JOB);
	if (json_is_object(client)) /* a program that has the lock by its key (redis_key) */
		grid_row(grid, client,
			 "    held\ta Redis client ({token}...)\tkey {key}\t"
			 "[{left_ms=-1}without an expiry][{left_ms!=-1}for another {left_ms:ms}]\t");
	add_rests(grid, lock);
	json_array_foreach (json_object_get(lock, "waiters"), i, entry) {
		grid_cell(grid, "    waits (%zu.)", i + 1);
		grid_row(grid, entry, HOST "\t" RANGE "\t\t" JOB);
	}
}

static bool concerns_the_living(const json_t *status, const json_t *lock)
{
	static const char *const lists[] = {"leases", "waiters"};
	bool living = json_object_size(json_object_get(lock, "resting"));
	json_t *entry;
	size_t i;

	for (int l = 0; l < 2; l++)
		json_array_foreach (json_object_get(lock, lists[l]), i, entry)
			living = tell_host(status, entry) || living;
	return living;
}

static void print_hosts(const json_t *status, FILE *f)
{
	struct grid *grid = grid_new(2);
	const char *host;
	json_t *about;

	fprintf(f, "\nhosts, and how long ago they were heard of\n");
	json_object_foreach (json_object_get(json_object_get(status, "cluster"), "hosts"), host, about) {
		grid_cell(grid, "    %s%s", host, strcmp(host, field_text(status, "host")) ? "" : " (this host)");
		grid_row(grid, about, "{age_ms:ms}");
	}
	grid_print(grid, f);
	grid_free(grid);
}

void status_cluster_print(const json_t *status, bool all, FILE *f)
{
	const json_t *cluster = json_object_get(status, "cluster");
	size_t count, left_out = 0, living = 0;
	json_t **list = field_sorted(json_object_get(cluster, "locks"), "name", "", &count);
	struct grid *grid = grid_new(5);
	const char *host;
	json_t *about;

	json_object_foreach (json_object_get(cluster, "hosts"), host, about)
		living += !is_silent(status, about);
	fprintf(f, "\ncluster: %zu active host%s%s, %zu lock name%s\n", living, living == 1 ? "" : "s",
		field_flag(cluster, "open") ? "" : ", in grace", count, count == 1 ? "" : "s");
	for (size_t i = 0; i < count; i++) {
		if (concerns_the_living(status, list[i]) || all)
			add_lock(grid, list[i]);
		else
			left_out++;
	}
	grid_print(grid, f);
	if (left_out)
		fprintf(f, "(--all shows %zu more, which only silent hosts have: until another host wants them)\n",
			left_out);
	if (all)
		print_hosts(status, f);
	grid_free(grid);
	free(list);
}
