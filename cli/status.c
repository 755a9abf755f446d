/* dflock status: what the keeper says of itself, its leases and the cluster. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/ask.h"
#include "cli/field.h"
#include "cli/show.h"
#include "cli/status.h"
#include "wire/rundir.h"

/* Which rules are in force, if not those that the file had when the keeper started. */
static void print_rules(const json_t *status, FILE *f)
{
	const json_t *rules = json_object_get(status, "rules");
	int64_t in_force = field_number(rules, "in_force_since"), count = field_number(rules, "count");
	char since[SHOW_TIME_BYTES];

	if (in_force > field_number(status, "started") + 1)
		fprintf(f, "        its configuration was taken over %s: %" PRId64 " rule%s\n",
			show_when(in_force, since), count, count == 1 ? "" : "s");
	if (!*field_text(rules, "why"))
		return;
	fprintf(f, "        OLDER RULES ARE IN FORCE, since %s: ", show_when(field_number(rules, "since"), since));
	show_text(f, field_text(rules, "why"));
	fputc('\n', f);
}

static void print_keeper(const json_t *status, FILE *f)
{
	char since[SHOW_TIME_BYTES];

	fprintf(f, "keeper  pid %" PRId64 ", uid %" PRId64 ", host ", field_number(status, "pid"),
		field_number(status, "uid"));
	show_text(f, field_text(status, "host"));
	fprintf(f, ", since %s, configuration ", show_when(field_number(status, "started"), since));
	show_text(f, *field_text(status, "config") ? field_text(status, "config") : "none");
	fprintf(f, "\n        in ");
	show_text(f, field_text(status, "runtime_dir"));
	if (strcmp(field_text(status, "version"), DFLOCK_VERSION)) {
		fprintf(f, ", version ");
		show_text(f, field_text(status, "version"));
		fprintf(f, " (this dflock is %s)", DFLOCK_VERSION);
	}
	fputc('\n', f);
}

/* Nothing if all is as usual. */
static void print_log(const json_t *status, FILE *f)
{
	const json_t *log = json_object_get(status, "log");

	if (*field_text(log, "level") && strcmp(field_text(log, "level"), "info")) {
		fprintf(f, "        log level ");
		show_text(f, field_text(log, "level"));
		fprintf(f, ", set by ");
		show_text(f, field_text(log, "by"));
		fputc('\n', f);
	}
	if (field_number(log, "unwritten"))
		fprintf(f,
			"        %" PRId64
			" LINES of its log could not be written: is there a journal or syslog (/dev/log)?\n",
			field_number(log, "unwritten"));
}

/* How long this host may count on its leases, and what happens then. */
static void print_deadline(const json_t *status, FILE *f)
{
	const json_t *store = json_object_get(status, "store");
	const char *on_lost = field_text(store, "on_lost");
	int64_t left = field_number(store, "deadline_left_ms"), frozen = field_number(status, "frozen");
	bool leases = json_array_size(json_object_get(status, "leases")), up = field_flag(store, "up");
	char time[SHOW_TIME_BYTES], ttl[SHOW_TIME_BYTES];

	show_ms(left, time);
	if (frozen)
		fprintf(f,
			"        FROZEN until it answers: %" PRId64
			" processes (holders of locks, and what they started); ",
			frozen);
	if (frozen && left > 0)
		fprintf(f, "no other host can have the locks for another %s\n", time);
	else if (frozen)
		fprintf(f,
			"they are killed if another host has had the locks, or if it comes back without its memory (a "
			"restart, a failover): then it cannot be known which host had them\n");
	else if (!up && leases && left > 0)
		fprintf(f, "        leases cannot be renewed: in %s their holders %s (on_lost)\n",
			show_ms(strcmp(on_lost, "warn") ? field_number(store, "sure_left_ms") : left, time),
			!strcmp(on_lost, "freeze") ? "are frozen until it answers"
			: !strcmp(on_lost, "kill") ? "are ended"
						   : "go on unprotected");
	else if (up && left > 0)
		fprintf(f, "        this host's leases are sure for another %s (ttl %s)\n", time,
			show_ms(field_number(store, "ttl_ms"), ttl));
}

static void print_store(const json_t *status, FILE *f)
{
	const json_t *store = json_object_get(status, "store");
	char time[SHOW_TIME_BYTES];
	bool up = field_flag(store, "up");
	const char *error = field_text(store, "error"), *refuses = field_text(store, "refuses");

	fprintf(f, "store   ");
	show_text(f, field_text(store, "server"));
	fprintf(f, up ? ", up, version " : ", DOWN: ");
	show_text(f, up ? field_text(store, "version") : *error ? error : "not connected yet");
	fputc('\n', f);
	if (up && *refuses) {
		fprintf(f, "        NO NEW LOCKS: ");
		show_text(f, refuses);
		fputc('\n', f);
	}
	if (up && field_flag(store, "grace"))
		fprintf(f,
			"        in grace: it is new or lost its memory, and nothing new is granted for another %s\n",
			show_ms(field_number(store, "grace_left_ms"), time));
	print_deadline(status, f);
}

/* One line if other hosts name or protect differently. */
static void elsewhere_print(const json_t *elsewhere, FILE *f)
{
	const json_t *list = json_object_get(elsewhere, "differences"), *difference;
	size_t i, renamed = 0;

	json_array_foreach (list, i, difference)
		renamed += !strcmp(field_text(difference, "what"), "renamed");
	if (renamed)
		fprintf(f,
			"\nNAMED DIFFERENTLY on other hosts: %zu rule%s; these locks do not exclude each other. "
			"`dflock doctor` shows them\n",
			renamed, renamed == 1 ? "" : "s");
	else if (json_array_size(list) + (size_t)field_number(elsewhere, "alone"))
		fprintf(f, "\nrules differ: of hosts that share lock names, not all protect the same; `dflock doctor` "
			   "shows what\n");
}

/* Every field may be missing, of another type, or hostile text. */
static void status_print(const json_t *status, const struct status_options *options, FILE *f)
{
	const json_t *cluster = json_object_get(status, "cluster");

	print_keeper(status, f);
	print_rules(status, f);
	print_log(status, f);
	if (field_flag(status, "unsupervised"))
		fprintf(f, "        UNSUPERVISED: its parent was killed and no other can be started; see the log. "
			   "No process would stop holders whose leases cannot be renewed\n");
	if (*field_text(status, "twin")) {
		fprintf(f,
			"        TWICE: another keeper had the same host id, and one of the two is another host now: see the "
			"log. It is the copy of a machine or of a runtime directory; the other host is ");
		show_text(f, field_text(status, "twin"));
		fputc('\n', f);
	}
	if (field_flag(status, "ending"))
		fprintf(f, "        told to end: waits until the locks below are not held any more\n");
	print_store(status, f);
	status_toolong_print(json_object_get(status, "too_long"), f);
	status_past_print(status, f);
	status_leases_print_lost(json_object_get(status, "lost"), f);
	status_leases_print(json_object_get(status, "leases"), f);
	if (json_is_object(cluster)) {
		status_cluster_print(cluster, field_text(status, "host"), options->all, f);
		elsewhere_print(json_object_get(status, "elsewhere"), f);
	} else {
		const char *error = field_text(status, "cluster_error");

		fprintf(f, "\nthe rest of the cluster cannot be shown: ");
		show_text(f, *error ? error : "the store is not reachable");
		fputc('\n', f);
	}
}

/* --- the command --- */

static const char status_doc[] =
	"Shows this host's keeper, its leases with the processes that hold and await them, leases that were lost, and "
	"for the whole cluster which hosts hold and await which locks. Lock names that only silent hosts have are "
	"shown only with --all.\v"
	"The exit status is 0, also if no keeper runs (then this host holds nothing), and 1 if the keeper could not "
	"be asked. With --check it is 0 if all is well, 1 for what may surprise (leases were lost, older rules are in "
	"force, grace), and 2 if locks are refused, processes are frozen, or the keeper could not be asked, or does not run although "
	"one of the system was enabled, or --expect-keeper is given.";

#define STATUS_ENABLED "/etc/systemd/system/multi-user.target.wants/dflock.service"
#define WATCH_S        2
#define WATCH_MAX_S    3600

static error_t status_parse(int key, char *arg, struct argp_state *state)
{
	struct status_options *options = state->input;

	switch (key) {
	case 'j':
		options->json = true;
		return 0;
	case 'H':
		options->html = true;
		return 0;
	case 'a':
		options->all = true;
		return 0;
	case 'c':
		options->check = true;
		return 0;
	case 'e':
		options->check = options->expect_keeper = true;
		return 0;
	case 'w':
		options->watch_s = arg ? atoi(arg) : WATCH_S;
		if (options->watch_s < 1 || options->watch_s > WATCH_MAX_S)
			argp_error(state, "--watch takes from 1 to %d seconds, not %s", WATCH_MAX_S, arg);
		return 0;
	case ARGP_KEY_END:
		if (options->json + options->html + options->check + (options->watch_s > 0) > 1)
			argp_error(state, "one of --json, --html, --check and --watch");
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "it takes no arguments, but got %s", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Asks the keeper. 0 with *status; -ENOENT: none runs; or -errno. Then `why` says so in one line. */
static int status_ask(json_t **status, char why[CLI_LINE_BYTES])
{
	int ret = ask_once(WIRE_STATUS, NULL, status, why);
	size_t used = strlen(why);

	if (ret == -ENOENT)
		snprintf(why + used, CLI_LINE_BYTES - used, ": this host holds nothing");
	return ret;
}

/* One of several times: an error is shown, and the next time comes. */
static void status_write(void *arg, FILE *f)
{
	const struct status_options *options = arg;
	char why[CLI_LINE_BYTES];
	json_t *status;

	if (status_ask(&status, why)) {
		show_text(f, why);
		fputc('\n', f);
		return;
	}
	status_print(status, options, f);
	json_decref(status);
}

/* Why a keeper should run: NULL if programs start one when they need it. A keeper of the system does not end by itself, and leaves its lock file
 * behind; the unit is enabled, or it was run since the machine was started. */
static const char *status_expects(const struct status_options *options)
{
	const char *dir = getenv("DFLOCK_RUNTIME_DIR");

	if (options->expect_keeper)
		return "--expect-keeper";
	if (dir && strcmp(dir, RUNDIR_SYSTEM) != 0)
		return NULL;
	if (access(STATUS_ENABLED, F_OK) == 0)
		return "dflock.service is enabled";
	return access(RUNDIR_SYSTEM "/" RUNDIR_LOCK_NAME, F_OK) == 0
		       ? "a keeper of the system has run since the machine was started"
		       : NULL;
}

static int status_check_once(const struct status_options *options)
{
	char why[CLI_LINE_BYTES];
	json_t *status;
	int ret = status_ask(&status, why), level = ret == -ENOENT ? 0 : 2;
	const char *expects = ret == -ENOENT ? status_expects(options) : NULL;

	if (expects) {
		snprintf(why, sizeof(why), "no keeper runs, and one should: %s; see its log", expects);
		level = 2;
	}
	if (ret) {
		status_check_line(level, why, stdout);
		putchar('\n');
		return level;
	}
	level = status_check(status, stdout);
	json_decref(status);
	return level;
}

/* status NULL: no keeper runs. 0 or -ENOMEM. */
static int status_show_page(json_t *status)
{
	json_t *none = status ? NULL : json_pack("{s:b}", "running", 0);
	bool shown = (status || none) && status_page(status ? status : none, stdout);

	json_decref(none);
	return shown ? 0 : -ENOMEM;
}

static int status_once(const struct status_options *options)
{
	char why[CLI_LINE_BYTES];
	json_t *status;
	int ret = status_ask(&status, why);

	if (ret && ret != -ENOENT)
		return cli_fail(why);
	if (ret && options->json)
		puts("{\"running\": false}");
	else if (options->html)
		ret = status_show_page(status);
	else if (ret)
		printf("%s\n(the first program that locks a protected file starts one)\n", why);
	else if (options->json)
		field_print(status);
	else
		status_print(status, options, stdout);
	json_decref(status);
	return ret == -ENOMEM ? cli_fail("no memory is left") : CLI_OK;
}

int cmd_status(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"json", 'j', NULL, 0, "print the keeper's answer as it is, for programs", 0},
		{"html", 'H', NULL, 0, "print a page for a browser, which needs no other file", 0},
		{"all", 'a', NULL, 0, "show every lock name and every host", 0},
		{"check", 'c', NULL, 0, "one line with figures, and an exit status, for monitoring systems", 0},
		{"expect-keeper", 'e', NULL, 0, "--check: it is critical if no keeper runs", 0},
		{"watch", 'w', "SECONDS", OPTION_ARG_OPTIONAL, "show it again every 2 or SECONDS seconds; q ends it",
		 0},
		{0}};
	static const struct argp argp = {.options = known, .parser = status_parse, .doc = status_doc};
	struct status_options options = {.json = false};

	argp_parse(&argp, argc, argv, 0, NULL, &options);
	if (options.check)
		return status_check_once(&options);
	if (options.watch_s)
		return status_watch(options.watch_s, status_write, &options);
	return status_once(&options);
}

const json_t *status_find_lock(const json_t *status, const char *name)
{
	const json_t *lock;
	size_t i;

	json_array_foreach (json_object_get(json_object_get(status, "cluster"), "locks"), i, lock)
		if (!strcmp(field_text(lock, "name"), name))
			return lock;
	return NULL;
}
