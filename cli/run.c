/* dflock run: the preload for one program. libc only: it is in each start of a job. */

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/container.h"
#include "cli/program.h"
#include "cli/run.h"

#define PATIENCE_MAX_S 3600
#define KEY_NET        0x100 /* has no short name */

static const char run_doc[] =
	"Runs JOB, found in PATH, with libdflock.so in LD_PRELOAD, so that its file locks, and those of all programs "
	"that it starts, hold across the cluster. Other preloads stay.\v"
	"The exit status is that of JOB; 127 if it was not found, 126 if it could not be executed, 125 if dflock "
	"itself failed, 123 if --require found something missing, and 122 if JOB succeeded and --require=taken found "
	"that it took no protected lock, or none on a FILE that --require names. One line says so if the preload cannot "
	"reach JOB (statically linked, setuid); it is run all the same.";

#define RUN_VERBOSE "DFLOCK_VERBOSE"

static void run_require(struct run_options *options, const char *what)
{
	options->require = true;
	if (what && strcmp(what, "taken") == 0)
		options->taken = true;
	else if (what)
		options->files[options->file_count++] = what;
}

static void run_init(struct run_options *options, const char *seconds, struct argp_state *state)
{
	char *end;
	long number = seconds ? strtol(seconds, &end, 10) : CONTAINER_PATIENCE_S;

	if (seconds && (!isdigit((unsigned char)*seconds) || *end || number > PATIENCE_MAX_S))
		argp_error(state, "--init takes 0 to %d seconds, not \"%s\"", PATIENCE_MAX_S, seconds);
	options->init = true;
	options->patience_s = (int)number;
}

static void run_net(struct run_options *options, const char *word, struct argp_state *state)
{
	options->net = strcmp(word, "on") == 0;
	if (!options->net && strcmp(word, "off") != 0)
		argp_error(state, "--net takes on or off, not \"%s\"", word);
}

static error_t run_parse(int key, char *arg, struct argp_state *state)
{
	struct run_options *options = state->input;

	switch (key) {
	case 'r':
		run_require(options, arg);
		return 0;
	case 'R':
		options->report = true;
		options->report_file = arg;
		return 0;
	case 'j':
		options->json = true;
		return 0;
	case 'i':
		run_init(options, arg, state);
		return 0;
	case KEY_NET:
		run_net(options, arg, state);
		return 0;
	case 'v':
		options->verbose = true;
		return 0;
	case ARGP_KEY_ARG:
		/* The first argument is the job. All others are the job's, options too. */
		options->job = &state->argv[state->next - 1];
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_usage(state);
		return 0;
	case ARGP_KEY_END:
		if (options->json && !options->report)
			argp_error(state, "--json is the form of a --report");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* LD_PRELOAD is a list with spaces and colons between the names. */
static bool is_listed(const char *list, const char *path)
{
	size_t len = strlen(path);

	for (const char *p = list; *p; p += strspn(p, ": ")) {
		size_t n = strcspn(p, ": ");

		if (n == len && !memcmp(p, path, len))
			return true;
		p += n;
	}
	return false;
}

/* LD_PRELOAD for the job, to be freed; NULL: no memory. */
static char *list_preloads(const char *shim)
{
	const char *others = getenv("LD_PRELOAD");
	char *list = NULL;

	if (others && is_listed(others, shim))
		return strdup(others);
	if (asprintf(&list, "%s%s%s", shim, others && *others ? ":" : "", others ? others : "") < 0)
		return NULL;
	return list;
}

static int set_preload(const char *shim)
{
	char *list = list_preloads(shim);
	int ret = 0;

	if (!list || setenv("LD_PRELOAD", list, 1))
		ret = list ? -errno : -ENOMEM;
	free(list);
	return ret;
}

/* The job becomes `dflock-net PRELOAD JOB [ARGUMENT...]`. It sets LD_PRELOAD for the job; in its own processes nothing is to be
 * loaded. */
static int set_net(struct run_options *options, const char *shim)
{
	static char path[PATH_MAX];
	size_t count = 0;
	char **words;

	while (options->job[count])
		count++;
	words = calloc(count + 3, sizeof(*words));
	if (!words)
		return -ENOMEM;
	place_find("dflock-net", "libexec", NET_INSTALLED, path);
	words[0] = path;
	words[1] = list_preloads(shim);
	memcpy(&words[2], options->job, count * sizeof(*words));
	options->words = words;
	return words[1] && unsetenv("LD_PRELOAD") == 0 ? 0 : -ENOMEM;
}

/* 0, or the exit status, when a line was printed. */
static int examine(struct run_options *options, const char *shim, run_fit_fn *fit)
{
	static struct program program;
	bool reached, found;

	program_examine(options->job[0], options->job + 1, shim, options->require, &program);
	reached = program.reach != REACH_NO && program.reach != REACH_DOUBTFUL;
	found = program.reach != REACH_CANNOT; /* else execvp() says why, as ever */
	if (program.reach == REACH_ITSELF && !options->net)
		cli_error("warning: %s", program.line);
	if (!reached && !options->net)
		cli_error("%s%s", options->require ? "not started: " : "warning: ", program.line);
	if (options->require && !reached && !options->net)
		return CLI_RUN_UNFIT;
	return fit && found ? fit(options) : 0;
}

int run_prepare(struct run_options *options, run_fit_fn *fit)
{
	char shim[PATH_MAX];
	int ret = program_shim(shim);

	if (ret) {
		cli_error("%s: %s; without it locks would not be protected: install it", shim, strerror(-ret));
		return CLI_RUN_FAILED;
	}
	if (strpbrk(shim, ": ")) {
		cli_error("%s: a path with a space or a colon cannot be preloaded; install dflock elsewhere", shim);
		return CLI_RUN_FAILED;
	}
	ret = examine(options, shim, fit);
	if (ret)
		return ret;
	if (options->verbose && setenv(RUN_VERBOSE, "1", 1)) {
		cli_error("cannot set " RUN_VERBOSE ": %s", strerror(errno));
		return CLI_RUN_FAILED;
	}
	ret = options->net ? set_net(options, shim) : set_preload(shim);
	if (ret) {
		cli_error("cannot set LD_PRELOAD: %s", strerror(-ret));
		return CLI_RUN_FAILED;
	}
	return 0;
}

int run_cannot(const struct run_options *options, int err)
{
	const char *job = options->words[0];

	if (options->net) {
		cli_error("not started: %s: %s; --net needs it: install it (it is there for x86-64 and arm64)", job,
			  strerror(err));
		return CLI_RUN_FAILED;
	}
	cli_error("cannot run %s: %s", job, strerror(err));
	return err == ENOENT ? CLI_RUN_NOT_FOUND : CLI_RUN_CANNOT_EXECUTE;
}

int run_job(int argc, char **argv, run_more_fn *more)
{
	static const struct argp_option known[] = {
		{"require", 'r', "FILE", OPTION_ARG_OPTIONAL,
		 "start JOB only if it will be protected: the preload reaches it, a keeper runs, the store grants "
		 "locks, and FILE, if named, is protected. --require=taken: also fail if JOB took no protected lock, or none on "
		 "FILE",
		 0},
		{"report", 'R', "FILE", OPTION_ARG_OPTIONAL,
		 "when JOB has ended, list the files that it locked, on standard error or in FILE", 0},
		{"json", 'j', NULL, 0, "the report as JSON", 0},
		{"init", 'i', "SECONDS", OPTION_ARG_OPTIONAL,
		 "stay until JOB has ended; then end what it left, after SECONDS (5) by force, and have its keeper give "
		 "everything back, for containers. The default for the first process of a pid namespace",
		 0},
		{"net", KEY_NET, "on|off", 0,
		 "catch also the lock calls that the preload does not reach, those of static programs for example, in the "
		 "kernel. The default is off. Needs Linux 5.19; for other users than root, setuid programs then run without "
		 "their rights",
		 0},
		{"verbose", 'v', NULL, 0,
		 "when a lock is taken, and the call is refused or waits, say on standard error which processes hold it",
		 0},
		{0}};
	static const struct argp argp = {
		.options = known, .parser = run_parse, .args_doc = "[--] JOB [ARGUMENT...]", .doc = run_doc};
	struct run_options options = {.files = calloc((size_t)argc, sizeof(char *)),
				      .init = container_is_first(),
				      .patience_s = CONTAINER_PATIENCE_S};
	int ret;

	if (!options.files) {
		cli_error("%s", strerror(ENOMEM));
		return CLI_RUN_FAILED;
	}
	argp_err_exit_status = CLI_RUN_FAILED;
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &options);
	options.words = options.job;
	if (options.require || options.report || options.init) {
		ret = more(&options, argc, argv);
	} else {
		ret = run_prepare(&options, NULL);
		if (!ret) {
			execvp(options.words[0], options.words);
			ret = run_cannot(&options, errno);
		}
	}
	free(options.files);
	return ret;
}
