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

static const char status_head[] =
	"keeper  pid {pid}, uid {uid}, host {host}, since {started:when}, configuration {config|none}\n"
	"        in {runtime_dir}"
	"[{version!=" DFLOCK_VERSION "}, version {version} (this dflock is " DFLOCK_VERSION ")]\n"
	"[{taken_over?}        its configuration was taken over {rules.in_force_since:when}: {rules.count} "
	"rule[{rules.count!=1}s]\n]"
	"[{rules.why?}        OLDER RULES ARE IN FORCE, since {rules.since:when}: {rules.why}\n]"
	"[{log.level?}{log.level!=info}        log level {log.level}, set by {log.by}\n]"
	"[{log.unwritten?}        {log.unwritten} LINES of its log could not be written: is there a journal or syslog "
	"(/dev/log)?\n]"
	"[{unsupervised?}        UNSUPERVISED: its parent was killed and no other can be started; see the log. "
	"No process would stop holders whose leases cannot be renewed\n]"
	"[{twin?}        TWICE: another keeper had the same host id, and one of the two is another host now: see the log. "
	"It is the copy of a machine or of a runtime directory; the other host is {twin}\n]"
	"[{ending?}        told to end: waits until the locks below are not held any more\n]"
	"store   {store.server}[{store.up?}, up, version {store.version}]"
	"[{store.up!}, DOWN: {store.error|not connected yet}]\n"
	"[{store.up?}{store.refuses?}        NO NEW LOCKS: {store.refuses}\n]"
	"[{store.up?}{store.grace?}        in grace: it is new or lost its memory, and nothing new is granted for another "
	"{store.grace_left_ms:ms}\n]"
	/* How long this host may count on its leases, and what happens then. */
	"[{frozen?}        FROZEN until [{stores!}it][{stores?}the store of their locks] answers: {frozen} processes "
	"(holders of locks, and what they started)"
	"[{stores?}\n][{stores!}; "
	"[{store.deadline_left_ms?}no other host can have the locks for another {store.deadline_left_ms:ms}\n]"
	"[{store.deadline_left_ms!}they are killed if another host has had the locks, or if it comes back without its "
	"memory (a restart, a failover): then it cannot be known which host had them\n]]]"
	"[{frozen!}{store.up!}{leases?}{store.deadline_left_ms?}        leases cannot be renewed: in "
	"[{store.on_lost=warn}{store.deadline_left_ms:ms}][{store.on_lost!=warn}{store.sure_left_ms:ms}] their holders "
	"[{store.on_lost=freeze}are frozen until it answers][{store.on_lost=kill}are ended]"
	"[{store.on_lost=warn}go on unprotected] (on_lost)\n]"
	"[{frozen!}{store.up?}{store.deadline_left_ms?}        this host's leases are sure for another "
	"{store.deadline_left_ms:ms} (ttl {store.ttl_ms:ms})\n]";

/* Of a store that has a name. */
static const char status_store[] =
	"store   {name}: {store.server}[{store.up?}, up, version {store.version}]"
	"[{store.up!}, DOWN: {store.error|not connected yet}]\n"
	"[{store.up?}{store.refuses?}        NO NEW LOCKS: {store.refuses}\n]"
	"[{store.up?}{store.grace?}        in grace: it is new or lost its memory, and nothing new is granted for another "
	"{store.grace_left_ms:ms}\n]"
	"[{store.deadline_left_ms?}        this host's leases there are sure for another {store.deadline_left_ms:ms}\n]";

/* Of a shard, if there is something to say. */
static const char status_shard[] =
	"[{store.up!}store   {name}: {store.server}, DOWN: {store.error|not connected yet}\n]"
	"[{store.up?}{store.refuses?}store   {name}: NO NEW LOCKS: {store.refuses}\n]"
	"[{store.up?}{store.grace?}store   {name}: in grace for another {store.grace_left_ms:ms}\n]";

struct status_options {
	bool json, html, check;
	bool all;           /* also lock names that only silent hosts have, and all hosts */
	bool expect_keeper; /* with check */
	int watch_s;        /* 0: once */
};

/* Adds "renamed" and "differing": rules that other hosts name differently; all that differs. */
static void count_differences(json_t *status)
{
	const json_t *elsewhere = json_object_get(status, "elsewhere"), *difference;
	json_int_t renamed = 0;
	size_t i;

	json_array_foreach (json_object_get(elsewhere, "differences"), i, difference)
		renamed += !strcmp(field_text(difference, "what"), "renamed");
	json_object_set_new(status, "renamed", json_integer(renamed));
	json_object_set_new(status, "differing", json_integer((json_int_t)i + field_number(elsewhere, "alone")));
}

/* Every field may be missing, of another type, or hostile text. */
static void status_print(json_t *status, const struct status_options *options, FILE *f)
{
	int64_t in_force = field_number(json_object_get(status, "rules"), "in_force_since");
	json_t *store;
	size_t i;

	json_object_set_new(status, "taken_over", json_boolean(in_force > field_number(status, "started") + 1));
	count_differences(status);
	show_row(f, status, status_head);
	json_array_foreach (json_object_get(status, "stores"), i, store)
		show_row(f, store, strchr(field_text(store, "name"), '/') ? status_shard : status_store);
	status_leases_print(status, f);
	if (json_is_object(json_object_get(status, "cluster"))) {
		status_cluster_print(status, options->all, f);
		show_row(
			f, status,
			"[{cluster_error?}\nnot all can be shown: {cluster_error}\n]"
			"[{renamed?}\nNAMED DIFFERENTLY on other hosts: {renamed} rule[{renamed!=1}s]; these locks do not "
			"exclude each other. `dflock doctor` shows them\n]"
			"[{renamed!}{differing?}\nrules differ: of hosts that share lock names, not all protect the same; "
			"`dflock doctor` shows what\n]");
	} else {
		show_row(f, status,
			 "\nthe rest of the cluster cannot be shown: {cluster_error|the store is not reachable}\n");
	}
}

/* --- --check: one line for monitoring systems --- */

/* Why it is critical: locks are refused, or holders are stopped or unguarded. Then why it is a warning. */
struct status_reason {
	int level;
	const char *row; /* shows nothing if the reason does not hold */
};

static const struct status_reason status_reasons[] = {
	{2, "[{frozen?}; {frozen} processes are frozen until the store "
	    "[{stores!}{store.server}][{stores?}of their locks] answers]"},
	{2,
	 "[{store.up!}; the store {store.server} {store.trouble|is not reachable}: {store.error|not connected yet}]"},
	{2, "[{store.up?}{store.refuses?}; no new locks: {store.refuses}]"},
	{2, "[{unsupervised?}; the keeper's parent was killed, and none can be started]"},
	{1, "[{n.lost?}; {n.lost} [{n.lost=1}lease was][{n.lost!=1}leases were] lost]"},
	{1, "[{twin?}; the host {twin} had the same id: a machine or a runtime directory was copied]"},
	{1, "[{n.past?}; {n.past} [{n.past=1}lock was][{n.past!=1}locks were] taken past dflock]"},
	{1, "[{n.long?}; {n.long} [{n.long=1}lock is][{n.long!=1}locks are] held too long]"},
	{1, "[{n.beyond?}; {n.beyond} holder[{n.beyond!=1}s] cannot be stopped]"},
	{1, "[{store.up?}{store.grace?}; the store is in grace and grants no new locks]"},
	{1, "[{rules.why?}{rules.file!=changed}; older rules are in force: {rules.why}]"},
	{1,
	 "[{renamed?}; {renamed} [{renamed=1}rule is][{renamed!=1}rules are] named differently on other hosts (dflock "
	 "doctor)]"},
	/* A setting, which is not over after a while: a warning would be one for ever. What comes of it is critical. */
	{0,
	 "; the store is up, {n.used} of {n.leases} leases in use, {n.waiting} waiting[{store.risk?}; note: {store.risk}]"},
};

/* Of each store that has a name. */
static const struct status_reason status_store_reasons[] = {
	{2,
	 "[{store.up!}; the store {name} ({store.server}) {store.trouble|is not reachable}: {store.error|not connected yet}]"},
	{2, "[{store.up?}{store.refuses?}; no new locks in the store {name}: {store.refuses}]"},
	{1, "[{store.up?}{store.grace?}; the store {name} is in grace and grants no new locks]"},
};

/* Adds "n", the figures. */
static void check_count(json_t *status)
{
	json_int_t leases = 0, used = 0, waiting = 0, lost = 0, beyond = 0;
	const json_t *lease, *holder;
	size_t i, j;

	/* What an operator took away is no surprise. */
	json_array_foreach (json_object_get(status, "lost"), i, lease)
		lost += !field_flag(lease, "broken");
	json_array_foreach (json_object_get(status, "leases"), i, lease) {
		bool asking = !strcmp(field_text(lease, "state"), "asking");
		const json_t *holders = asking ? NULL : json_object_get(lease, "holders");

		leases += !asking;
		used += json_array_size(holders) > 0;
		waiting += (json_int_t)json_array_size(json_object_get(lease, "waiting"));
		json_array_foreach (holders, j, holder)
			beyond += field_flag(holder, "unstoppable");
	}
	json_object_set_new(status, "n",
			    json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "leases", leases, "used", used, "waiting",
				      waiting, "lost", lost, "beyond", beyond, "past",
				      (json_int_t)json_array_size(json_object_get(status, "taken_past")), "long",
				      (json_int_t)json_array_size(json_object_get(status, "too_long"))));
	count_differences(status);
}

/* Behind '|' stand the figures. */
static void check_print(int level, char *why)
{
	static const char *const words[] = {"OK", "WARNING", "CRITICAL"};

	for (char *bar = why; (bar = strchr(bar, '|'));)
		*bar = '/';
	printf("DFLOCK %s: %s", words[level], why);
}

/* Shows those of this level that hold. Are there any? */
static bool check_reasons(const struct status_reason *reasons, size_t count, int level, const json_t *row, FILE *f)
{
	long before = ftell(f);

	for (size_t i = 0; i < count; i++)
		if (reasons[i].level == level)
			show_row(f, row, reasons[i].row);
	return ftell(f) > before;
}

/* With all reasons, the worst first. */
static int check_status(json_t *status)
{
	int level = 0;
	char *why = NULL;
	size_t size, i;
	FILE *f = open_memstream(&why, &size);
	json_t *store;

	if (!f)
		return 2;
	check_count(status);
	for (int of = 2; of > 0 || (of == 0 && !level); of--) {
		bool any =
			check_reasons(status_reasons, sizeof(status_reasons) / sizeof(*status_reasons), of, status, f);

		json_array_foreach (json_object_get(status, "stores"), i, store)
			any |= check_reasons(status_store_reasons,
					     sizeof(status_store_reasons) / sizeof(*status_store_reasons), of, store,
					     f);
		if (any && of > level)
			level = of;
	}
	if (fclose(f) == 0)
		check_print(level, why + 2);
	free(why);
	show_row(stdout, status,
		 " | leases={n.leases} used={n.used} waiting={n.waiting} frozen={frozen|0} lost={n.lost}\n");
	return level;
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
		options->watch_s = arg ? cli_number(arg, WATCH_MAX_S) : WATCH_S;
		if (!options->watch_s)
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
static int status_ask(const struct status_options *options, json_t **status, char why[CLI_LINE_BYTES])
{
	int ret = ask_once(WIRE_STATUS, options->check ? WIRE_F_OWN : 0, NULL, status, why);
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

	if (status_ask(options, &status, why)) {
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
	if (dir && *dir && strcmp(dir, RUNDIR_SYSTEM) != 0)
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
	int ret = status_ask(options, &status, why), level = ret == -ENOENT ? 0 : 2;
	const char *expects = ret == -ENOENT ? status_expects(options) : NULL;

	if (expects) {
		snprintf(why, sizeof(why), "no keeper runs, and one should: %s; see its log", expects);
		level = 2;
	}
	if (ret) {
		char shown[4 * CLI_LINE_BYTES];

		show_escape(why, shown, sizeof(shown));
		check_print(level, shown);
		putchar('\n');
		return level;
	}
	level = check_status(status);
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
	int ret = status_ask(options, &status, why);

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
		if (field_is(lock, "name", name))
			return lock;
	return NULL;
}
