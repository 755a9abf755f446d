/* dflock who: which processes hold a lock, on which hosts. */
#include "cli/ask.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/field.h"
#include "cli/show.h"
#include "config/config.h"
#include "wire/rundir.h"

static const char who_doc[] =
	"Says which processes hold a lock, on all hosts. LOCK is a file, a lock name as `dflock status' shows it, or the NAME "
	"of a `dflock lock'. The keepers of the hosts that have leases are asked; what one does not answer within two "
	"seconds is shown as last known.\v"
	"The exit status is 0 if the lock is held, or may be; 1 if no process holds it; 2, with one line, if that cannot be "
	"found out, or if LOCK is the name of nothing that is known here.";

enum who_exit { WHO_HELD = 0, WHO_FREE = 1, WHO_UNKNOWN = 2 };

struct who_options {
	const char *lock;
	bool json;
};

/* --- asking --- */

static bool who_is_empty(const json_t *report)
{
	return !json_array_size(json_object_get(report, "hosts")) &&
	       !json_array_size(json_object_get(report, "waiting")) &&
	       !json_object_size(json_object_get(report, "resting"));
}

/* Has a `dflock lock` of this keeper's users used the name? */
static bool who_is_named(const struct ask *ask, const char *name)
{
	char file[NAME_MAX + 1], path[PLACE_DIR_BYTES + sizeof(NAMES_DIR) + NAME_MAX + 2];

	if (strncmp(name, CONFIG_NAMES, strlen(CONFIG_NAMES)) == 0)
		name += strlen(CONFIG_NAMES);
	if (!cli_lock_file(name, file))
		return false;
	snprintf(path, sizeof(path), "%s/" NAMES_DIR "/%s", ask->dir, file);
	return access(path, F_OK) == 0;
}

bool who_is_known(const struct ask *ask, const char *lock, char why[CLI_LINE_BYTES])
{
	char path[PATH_MAX], dir[PATH_MAX] = "this directory", ignored[CLI_LINE_BYTES];
	struct config *config;
	bool known;

	if (files_exist(lock) || who_is_named(ask, lock) || !ask->place->config[0] ||
	    config_load_rules(ask->place->config, &config, ignored, sizeof(ignored)) != 0)
		return true;
	known = config_path_of(config, lock, path) == 0 ||
		(files_resolve(lock, path) == 0 && config_lock_name(config, path, (char[LOCK_NAME_BYTES]){0}) == 0);
	config_free(config);
	if (!known)
		snprintf(
			why, CLI_LINE_BYTES,
			"%.256s: there is no such file in %.256s, no rule gives a file this lock name, and no `dflock lock' has used "
			"it here: give the file's whole path, or a name as `dflock status' shows it",
			lock, getcwd(dir, sizeof(dir)) ? dir : "this directory");
	return known;
}

static json_t *who_ask_lock(struct ask *ask, const char *lock, char why[CLI_LINE_BYTES])
{
	char name[sizeof(CONFIG_NAMES) + NAME_MAX], bytes[LOCK_NAME_BYTES];
	json_t *report, *plain = ask_json(ask, WIRE_WHO, lock, why);

	if (!plain || !who_is_empty(plain))
		return plain;
	if (show_unescape(lock, bytes, sizeof(bytes))) {
		report = ask_json(ask, WIRE_WHO, bytes, why);
		if (report && !who_is_empty(report)) {
			json_decref(plain);
			return report;
		}
		json_decref(report);
	}
	memcpy(name, CONFIG_NAMES, sizeof(CONFIG_NAMES));
	if (!cli_lock_file(lock, name + strlen(CONFIG_NAMES)))
		return plain;
	report = ask_json(ask, WIRE_WHO, name, why);
	if (report && who_is_empty(report) && !who_is_named(ask, lock)) {
		json_decref(report);
		return plain;
	}
	json_decref(plain);
	return report;
}

json_t *who_ask(struct ask *ask, const char *lock, char why[CLI_LINE_BYTES])
{
	char path[PATH_MAX], bytes[LOCK_NAME_BYTES];
	bool is_file = files_exist(lock), escaped = !is_file && show_unescape(lock, bytes, sizeof(bytes));
	json_t *report;

	if ((is_file || strchr(lock, '/')) && files_resolve(lock, path) == 0) {
		report = ask_json(ask, WIRE_WHO, path, why);
		if (!report || (field_flag(report, "protected") && !(escaped && who_is_empty(report))))
			return report;
		json_decref(report);
	}
	report = who_ask_lock(ask, lock, why);
	if (!report || !who_is_empty(report) || (!is_file && who_is_known(ask, lock, why)))
		return report;
	json_decref(report);
	if (is_file)
		snprintf(
			why, CLI_LINE_BYTES,
			"%.512s: no rule protects this file, so dflock does not know which processes lock it; see `dflock "
			"check`",
			lock);
	return NULL;
}

/* --- showing --- */

static bool who_answered(const json_t *host)
{
	return !strcmp(field_text(host, "state"), "answered");
}

static bool who_is_held(const json_t *report)
{
	const json_t *host;
	size_t i;

	json_array_foreach (json_object_get(report, "hosts"), i, host)
		if (field_number(host, "count") > 0 || !who_answered(host))
			return true;
	return field_number(report, "left_out") > 0 || json_is_object(json_object_get(report, "client"));
}

#define HOST    "    {host}[{own?} (this host)]"
#define PROCESS "[{pid?}pid {pid}[{command?} ({command})]][{pid!}a process that the keeper may not look into]\t"
#define RANGE   "{space} {mode}, {from:range}\t"

/* What the store says of a host that has not said anything itself. */
static void who_add_known(struct grid *grid, const json_t *host)
{
	const json_t *lease;
	size_t i;

	json_array_foreach (json_object_get(host, "leases"), i, lease) {
		grid_row(grid, host,
			 HOST "\t[{state=old}unknown: its dflock is of an older version]"
			      "[{state=silent}unknown: it has not answered][{state=unasked}unknown: it was not asked]");
		grid_row(grid, lease,
			 RANGE "[{job.pid?}last known: pid {job.pid} ({job.command}) asked for it {job.since:when}]");
	}
}

static void who_add_host(struct grid *grid, const json_t *host)
{
	int64_t more = field_number(host, "count");
	const json_t *holder;
	size_t i;

	if (!who_answered(host))
		return who_add_known(grid, host);
	if (more <= 0)
		grid_row(grid, host, HOST "\thas the lease, and no process uses it\t\t");
	json_array_foreach (json_object_get(host, "holders"), i, holder) {
		grid_row(grid, host, HOST);
		grid_row(grid, holder, PROCESS RANGE "since {since:when}");
		more--;
	}
	if (more <= 0)
		return;
	grid_row(grid, host, HOST);
	grid_cell(grid, "%" PRId64 " %s", more, i ? "more" : "that it does not tell (show_jobs)");
	grid_row(grid, host, "\t");
}

static void who_print(const json_t *report, FILE *f)
{
	struct grid *grid = grid_new(4);
	char left_text[SHOW_TIME_BYTES];
	const char *space;
	json_t *row;
	size_t i;

	show_row(f, report, "{name}: ");
	fprintf(f, "%s\n", who_is_held(report) ? "held" : "free");
	json_array_foreach (json_object_get(report, "hosts"), i, row)
		who_add_host(grid, row);
	json_array_foreach (json_object_get(report, "waiting"), i, row) {
		grid_row(grid, row, "    {host}");
		grid_cell(grid, "waits (%zu.)", i + 1);
		grid_row(grid, row, RANGE);
	}
	grid_print(grid, f);
	grid_free(grid);
	show_row(f, report,
		 "[{left_out?}    and {left_out} leases of more hosts, which were not asked\n]"
		 "[{client?}    held by a Redis client ({client.token}...), [{client.left_ms=-1}without an expiry]"
		 "[{client.left_ms!=-1}for another {client.left_ms:ms}]\n]");
	json_object_foreach (json_object_get(report, "resting"), space, row) {
		fprintf(f, "    rests for %s more (at_least_ms): ", show_ms(json_integer_value(row), left_text));
		show_text(f, space);
		fputc('\n', f);
	}
}

/* --- the command --- */

static int who_show(const struct who_options *options, const json_t *report)
{
	bool held = who_is_held(report);

	if (options->json) {
		field_print(report);
	} else if (held || !*field_text(report, "error")) {
		who_print(report, stdout);
	}
	if (*field_text(report, "error"))
		cli_error("%s: other hosts could not be asked: %s", field_text(report, "name"),
			  field_text(report, "error"));
	return held ? WHO_HELD : *field_text(report, "error") ? WHO_UNKNOWN : WHO_FREE;
}

int cmd_who(int argc, char **argv)
{
	static const struct argp_option known[] = {{"json", 'j', NULL, 0, "as JSON", 0}, {0}};
	struct who_options options = {.lock = NULL};
	int status = WHO_UNKNOWN;
	char why[CLI_LINE_BYTES];
	json_t *report = NULL;
	struct place place;
	struct ask ask;

	cli_options(argc, argv, who_doc, "LOCK", known, (void *[]){&options.json});
	options.lock = argv[argc - 1];
	cli_place(&place, NULL);
	if (!start_connect(&place, &ask, why)) {
		report = who_ask(&ask, options.lock, why);
		ask_close(&ask);
	}
	if (report)
		status = who_show(&options, report);
	else
		cli_error("%s", why);
	json_decref(report);
	/* That the output cannot be written must not look as if the lock were free. */
	return fflush(stdout) || ferror(stdout) ? WHO_UNKNOWN : status;
}
