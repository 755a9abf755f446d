/*
 * dflock-doctor: `dflock check` and `dflock doctor`, the two commands that know TLS; `dflock top`, which draws; and `dflock wrap`, which is
 * used once. A program of its own, since each start of a job by `dflock run` would else map OpenSSL and ncurses, which takes longer than
 * all the rest of that start.
 */
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "cli/field.h"
#include "cli/program.h"
#include "procfs/procfs.h"

const char *argp_program_version = "dflock " DFLOCK_VERSION;

static const char doctor_doc[] = "Looks at the installation, the configuration, the keeper, the store and the "
				 "protected files, and says line by line what is in order (ok:), what may surprise "
				 "(warning:) and what must be mended (problem:). With PROGRAM also whether the "
				 "preload will reach it. If no keeper runs, one is started to try the store; it ends "
				 "by itself when no program needs it.\v"
				 "The exit status is 0 if there is no problem, and else 1.";

static void check_installation(struct doctor *d)
{
	char path[PATH_MAX];

	if (program_shim(path))
		doctor_find(d, FINDING_PROBLEM, "%s: %s; without it no lock is protected: install it", path,
			    strerror(errno));
	else if (strpbrk(path, ": "))
		doctor_find(d, FINDING_PROBLEM,
			    "%s: a path with a space or a colon cannot be preloaded; install dflock elsewhere", path);
	else
		doctor_find(d, FINDING_OK, "the library is %s", path);
	place_find("dflockd", "sbin", DFLOCKD_INSTALLED, path);
	if (access(path, X_OK))
		doctor_find(d, FINDING_PROBLEM, "the keeper's program %s: %s; install it", path, strerror(errno));
	else
		doctor_find(d, FINDING_OK, "the keeper's program is %s", path);
	place_find("dflock-net", "libexec", NET_INSTALLED, path);
	if (access(path, X_OK))
		doctor_find(
			d, FINDING_WARNING,
			"the net's program %s: %s; `dflock run --net=on` needs it: install it (it is there for x86-64 and arm64)",
			path, strerror(errno));
	else
		doctor_find(d, FINDING_OK, "the net's program is %s", path);
}

/* What the store needs, and not every installation has. */
static void check_object(struct doctor *d)
{
	const char *engine = config_engine(d->store);
	char path[PATH_MAX], why[CLI_LINE_BYTES];

	if (engine && config_find_engine(engine, path, why, sizeof(why)) < 0)
		doctor_find(d, FINDING_PROBLEM, "%s", why);
	else if (engine)
		doctor_find(d, FINDING_OK, "the store's engine is %s", path);
}

static void each_store(struct doctor *d, void (*check)(struct doctor *d))
{
	for (size_t i = 0; d->config && i < d->config->store_count; i++) {
		d->store = &d->config->stores[i];
		check(d);
	}
	d->store = NULL;
}

static void check_config(struct doctor *d)
{
	char why[CLI_LINE_BYTES];

	if (!d->place.config[0])
		doctor_find(d, FINDING_PROBLEM, "there is no configuration, so nothing is protected; " CLI_WRITE_ONE);
	else if (config_load(d->place.config, &d->config, why, sizeof(why)))
		doctor_unread(d, why);
	else if (!d->config->rule_count)
		doctor_find(d, FINDING_WARNING, "the configuration %s protects nothing; add rules to `protect`",
			    d->place.config);
	else
		doctor_find(d, FINDING_OK, "the configuration %s is valid and has %zu rule%s", d->place.config,
			    d->config->rule_count, d->config->rule_count == 1 ? "" : "s");
}

static void check_program(struct doctor *d, const char *name)
{
	static const enum finding levels[] = {
		[REACH_YES] = FINDING_OK,     [REACH_ITSELF] = FINDING_WARNING, [REACH_DOUBTFUL] = FINDING_WARNING,
		[REACH_NO] = FINDING_PROBLEM, [REACH_CANNOT] = FINDING_PROBLEM,
	};
	struct program program;
	char shim[PATH_MAX];

	if (program_shim(shim))
		return; /* the finding about the installation says it */
	program_examine(name, NULL, shim, true, &program);
	doctor_find(d, levels[program.reach], "%s", program.line);
}

/* Without a configuration: for all that it may say. */
static int print_acl(struct doctor *d)
{
	char why[CLI_LINE_BYTES];
	int ret;

	if (d->place.config[0] && config_load_rules(d->place.config, &d->config, why, sizeof(why)))
		return cli_fail(why);
	ret = doctor_acl(d->config);
	config_free(d->config);
	return ret;
}

static void doctor_end(struct doctor *d)
{
	unsigned problems = d->counts[FINDING_PROBLEM], warnings = d->counts[FINDING_WARNING];
	json_t *answer;

	if (!d->found) {
		printf("\n%u problem%s, %u warning%s\n", problems, problems == 1 ? "" : "s", warnings,
		       warnings == 1 ? "" : "s");
		return;
	}
	answer = json_pack("{s:i, s:i, s:i, s:o}", "schema", 1, "problems", (int)problems, "warnings", (int)warnings,
			   "findings", d->found);
	field_print(answer);
	json_decref(answer);
}

static int cmd_doctor(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"config", 'c', "FILE", 0, "go by FILE instead of the configuration that would be used", 0},
		{"json", 'j', NULL, 0, "print what was found for programs", 0},
		{"acl", 0x100, NULL, 0,
		 "only print the rights that dflock needs in the store, as Redis commands or as SQL", 0},
		{0}};
	struct doctor d = {.config = NULL};
	const char *file = NULL;
	bool acl = false, json = false;
	int words = cli_options(argc, argv, doctor_doc, "[PROGRAM]", known, (void *[]){&file, &json, &acl});

	cli_place(&d.place, file);
	if (acl)
		return print_acl(&d);
	d.found = json ? json_array() : NULL;
	check_installation(&d);
	check_config(&d);
	each_store(&d, check_object);
	doctor_keeper(&d);
	each_store(&d, doctor_replicas);
	doctor_files(&d);
	doctor_preloads(&d);
	if (words)
		check_program(&d, argv[argc - 1]);
	config_free(d.config);
	doctor_end(&d);
	return d.counts[FINDING_PROBLEM] ? CLI_FAILED : CLI_OK;
}

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} commands[] = {
	{"dflock check", cmd_check}, {"dflock doctor", cmd_doctor}, {"dflock top", cmd_top}, {"dflock wrap", cmd_wrap}};

int main(int argc, char **argv)
{
	const char *name = argc > 0 ? argv[0] : "";

	procfs_be_oneself(argv, true);
	/* A parent may have left it ignored: then how a child has ended would not be told. */
	signal(SIGCHLD, SIG_DFL);
	setlocale(LC_CTYPE, "");
	argp_err_exit_status = CLI_USAGE;
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(name, commands[i].name))
			return cli_end(commands[i].run(argc, argv));
	cli_error("%s is no command: use `dflock check' or its like", name);
	return CLI_USAGE;
}
