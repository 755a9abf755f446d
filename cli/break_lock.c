/* See break.h. */
#include "cli/break.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/field.h"
#include "cli/files.h"
#include "cli/show.h"
#include "cli/status.h"
#include "cli/who.h"
#include "config/config.h"

struct break_lock {
	struct ask *ask;
	const struct place *place;
	char name[LOCK_NAME_BYTES];
	const json_t *lock; /* of this name; NULL: nothing is known of it */
	int64_t limit;      /* the largest fence number of the store when this was shown */
	unsigned failed;    /* leases that could not be taken away */
	unsigned gone;      /* ... that had ended meanwhile */
};

static const json_t *break_find(const json_t *status, const char *name)
{
	const json_t *lock;
	size_t i;

	json_array_foreach (json_object_get(json_object_get(status, "cluster"), "locks"), i, lock)
		if (!strcmp(field_text(lock, "name"), name))
			return lock;
	return NULL;
}

/* The lock name of what the operator wrote: a name that the store knows, or a file by the rules. */
static void break_name(const char *word, const struct place *place, const json_t *status, char name[LOCK_NAME_BYTES])
{
	char path[PATH_MAX], why[CLI_LINE_BYTES];
	struct config *config = NULL;

	snprintf(name, LOCK_NAME_BYTES, "%s", word);
	if (break_find(status, word) || files_resolve(word, path) != 0 || !place->config[0])
		return;
	if (config_load_rules(place->config, &config, why, sizeof(why)) == 0 &&
	    config_lock_name(config, path, name) != 0)
		snprintf(name, LOCK_NAME_BYTES, "%s", word);
	config_free(config);
}

/* --- what would be hit --- */

static void break_show_holders(const json_t *status, int64_t fence)
{
	const json_t *lease, *p;
	bool any = false;
	size_t i, n;

	json_array_foreach (json_object_get(status, "leases"), i, lease) {
		if (field_number(lease, "fence") != fence)
			continue;
		json_array_foreach (json_object_get(lease, "holders"), n, p) {
			char since[SHOW_TIME_BYTES];

			any = true;
			printf("        pid %" PRId64 ", running since %s: ", field_number(p, "pid"),
			       show_when(field_number(p, "started"), since));
			show_text(stdout, field_text(p, "command"));
			putchar('\n');
		}
	}
	if (!any)
		puts("        no process holds the lock now: the host gives the lease back by itself when it is wanted");
}

/* Those of another host, as its keeper tells them: for all leases that the host has of this name. */
static void break_show_elsewhere(const json_t *who, const char *name)
{
	const json_t *host, *found = NULL, *p;
	char since[SHOW_TIME_BYTES];
	int64_t count;
	size_t i;

	json_array_foreach (json_object_get(who, "hosts"), i, host)
		if (!strcmp(field_text(host, "host"), name))
			found = host;
	if (strcmp(field_text(found, "state"), "answered") != 0) {
		puts("        which processes hold the lock is not known: the host has not answered");
		return;
	}
	count = field_number(found, "count");
	json_array_foreach (json_object_get(found, "holders"), i, p) {
		printf("        pid %" PRId64 ", since %s: ", field_number(p, "pid"),
		       show_when(field_number(p, "since"), since));
		show_text(stdout, field_text(p, "command"));
		putchar('\n');
		count--;
	}
	if (count > 0)
		printf("        %" PRId64 " %sprocesses, of which it tells no more (show_jobs)\n", count,
		       i ? "more " : "");
	else if (!i)
		puts("        no process holds the lock now: the host gives the lease back by itself when it is wanted");
}

static void break_show(const struct break_lock *b, const json_t *status)
{
	const char *own = field_text(status, "host"), *space;
	char range[STATUS_RANGE_BYTES], left[SHOW_TIME_BYTES];
	char why[CLI_LINE_BYTES];
	json_t *rest, *who = who_ask(b->ask, b->place, b->name, why);
	const json_t *e;
	size_t i;

	show_text(stdout, b->name);
	puts(" is held by");
	json_array_foreach (json_object_get(b->lock, "leases"), i, e) {
		bool here = !strcmp(field_text(e, "host"), own);

		fputs("    host ", stdout);
		show_text(stdout, field_text(e, "host"));
		printf("%s, %s %s, %s, fence %" PRId64 "\n", here ? " (this host)" : "", field_text(e, "space"),
		       field_text(e, "mode"), status_leases_range(e, range), field_number(e, "fence"));
		if (here)
			break_show_holders(status, field_number(e, "fence"));
		else
			break_show_elsewhere(who, field_text(e, "host"));
	}
	json_object_foreach (json_object_get(b->lock, "resting"), space, rest)
		printf("    a rest, %s, for %s more (at_least_ms)\n", space, show_ms(json_integer_value(rest), left));
	fflush(stdout);
	json_decref(who);
}

/* --- doing it --- */

static void break_lease(struct break_lock *b, const json_t *e)
{
	char why[CLI_LINE_BYTES];
	int64_t fence = field_number(e, "fence");
	int ret;

	b->ask->from = fence;
	b->ask->to = b->limit;
	ret = break_ask(b->ask, WIRE_BREAK, b->name, b->place, why);
	if (!ret) {
		printf("taken away: fence %" PRId64 " of host ", fence);
		show_text(stdout, field_text(e, "host"));
		putchar('\n');
		return;
	}
	b->gone += ret == -EAGAIN;
	b->failed += ret != -EAGAIN;
	cli_error("fence %" PRId64 " of host %s %s: %s", fence, field_text(e, "host"),
		  ret == -EAGAIN ? "was not there any more" : "was not taken away", why);
}

static void break_rest(struct break_lock *b, const char *space)
{
	char why[CLI_LINE_BYTES];
	int ret;

	b->ask->space = strcmp(space, "flock") ? WIRE_RECORD : WIRE_FLOCK;
	b->ask->to = b->limit;
	ret = break_ask(b->ask, WIRE_END_REST, b->name, b->place, why);
	b->ask->space = 0;
	if (!ret || ret == -EAGAIN) { /* it ended with its lease, or by itself */
		printf("the rest (%s) is over\n", space);
		return;
	}
	b->failed++;
	cli_error("the rest was not ended: %s", why);
}

/* Leases that are younger than what was shown, where one that was shown had gone before it could be taken away. */
static int break_report_younger(const struct break_lock *b)
{
	char why[CLI_LINE_BYTES];
	json_t *status = ask_status_json(b->ask, b->place, why);
	const json_t *e;
	int exit = CLI_OK;
	size_t i;

	json_array_foreach (json_object_get(status ? break_find(status, b->name) : NULL, "leases"), i, e) {
		if (field_number(e, "fence") <= b->limit)
			continue;
		cli_error("meanwhile host %s has got the lock (fence %" PRId64
			  "), and keeps it: run `dflock break' again "
			  "to take it away from there",
			  field_text(e, "host"), field_number(e, "fence"));
		exit = CLI_FAILED;
	}
	if (!status)
		cli_error("%s", why);
	json_decref(status);
	return status ? exit : CLI_FAILED;
}

static int break_all(struct break_lock *b)
{
	const char *space;
	const json_t *e;
	json_t *rest;
	size_t i;

	ask_patience(b->ask, BREAK_PATIENCE_S);
	json_array_foreach (json_object_get(b->lock, "leases"), i, e)
		break_lease(b, e);
	json_object_foreach (json_object_get(b->lock, "resting"), space, rest)
		break_rest(b, space);
	if (b->gone && break_report_younger(b) != CLI_OK)
		return CLI_FAILED;
	return b->failed ? CLI_FAILED : CLI_OK;
}

static int64_t break_limit(const struct break_lock *b, const json_t *status)
{
	int64_t limit = field_number(json_object_get(status, "cluster"), "fence");
	const json_t *e;
	size_t i;

	json_array_foreach (json_object_get(b->lock, "leases"), i, e)
		if (field_number(e, "fence") > limit)
			limit = field_number(e, "fence");
	return limit;
}

int break_lock(struct ask *ask, const struct break_options *options, const struct place *place, const json_t *status)
{
	struct break_lock b = {.ask = ask, .place = place};

	break_name(options->lock, place, status, b.name);
	b.lock = break_find(status, b.name);
	if (!json_array_size(json_object_get(b.lock, "leases")) &&
	    !json_object_size(json_object_get(b.lock, "resting"))) {
		cli_error("%s: no host holds a lock of this name; `dflock status' shows those that are held (%s is "
			  "called lock:%s if `dflock lock' took it)",
			  b.name, options->lock, options->lock);
		return CLI_BREAK_NOBODY;
	}
	b.limit = break_limit(&b, status);
	break_show(&b, status);
	if (!break_agreed(options,
			  "Take it away? These processes, those of the other hosts, and all that they started, are "
			  "killed."))
		return CLI_FAILED;
	return break_all(&b);
}
