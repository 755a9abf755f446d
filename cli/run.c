/* dflock run: the preload for one program. */
#include "cli/cli.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/program.h"
#include "cli/require.h"

static const char run_doc[] =
	"Runs JOB, found in PATH, with libdflock.so in LD_PRELOAD, so that its file locks, and those of all programs "
	"that it starts, hold across the cluster. Other preloads stay.\v"
	"The exit status is that of JOB; 127 if it was not found, 126 if it could not be executed, 125 if dflock "
	"itself failed, and 123 if --require found something missing. One line says so if the preload cannot reach "
	"JOB (statically linked, setuid); it is run all the same.";

struct run_options {
	char **job;
	bool require;
	const char *file; /* to be protected; NULL: none is named */
};

static error_t run_parse(int key, char *arg, struct argp_state *state)
{
	struct run_options *options = state->input;

	switch (key) {
	case 'r':
		options->require = true;
		options->file = arg;
		return 0;
	case ARGP_KEY_ARG:
		/* The first argument is the job. All others are the job's, options too. */
		options->job = &state->argv[state->next - 1];
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_usage(state);
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

static int set_preload(const char *shim)
{
	const char *others = getenv("LD_PRELOAD");
	char *list = NULL;
	int ret = 0;

	if (others && is_listed(others, shim))
		return 0;
	if (asprintf(&list, "%s%s%s", shim, others && *others ? ":" : "", others ? others : "") < 0)
		return -ENOMEM;
	if (setenv("LD_PRELOAD", list, 1))
		ret = -errno;
	free(list);
	return ret;
}

/* 0, or the exit status, when a line was printed. */
static int examine(const struct run_options *options, const char *shim)
{
	struct program program;
	struct place place;
	char why[CLI_LINE_BYTES];

	program_examine_job(options->job[0], options->job, shim, &program);
	if (program.reach == REACH_ITSELF)
		cli_error("warning: %s", program.line);
	if (program.reach == REACH_NO || program.reach == REACH_DOUBTFUL)
		cli_error("%s%s", options->require ? "not started: " : "warning: ", program.line);
	if (!options->require)
		return 0;
	if (program.reach == REACH_NO || program.reach == REACH_DOUBTFUL)
		return CLI_RUN_UNFIT;
	if (program.reach != REACH_YES && program.reach != REACH_ITSELF)
		return 0; /* execvp() says why, as ever */
	cli_place(&place, NULL);
	if (require_fit(&place, options->file, why))
		return 0;
	cli_error("not started: %s", why);
	return CLI_RUN_UNFIT;
}

int cmd_run(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"require", 'r', "FILE", OPTION_ARG_OPTIONAL,
		 "start JOB only if it will be protected: the preload reaches it, a keeper runs, the store grants "
		 "locks, and FILE, if named, is protected",
		 0},
		{0}};
	static const struct argp argp = {
		.options = known, .parser = run_parse, .args_doc = "[--] JOB [ARGUMENT...]", .doc = run_doc};
	struct run_options options = {.job = NULL};
	char shim[PATH_MAX], **job;
	int ret;

	argp_err_exit_status = CLI_RUN_FAILED;
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &options);
	job = options.job;
	ret = program_shim(shim);
	if (ret) {
		cli_error("%s: %s; without it locks would not be protected: install it", shim, strerror(-ret));
		return CLI_RUN_FAILED;
	}
	if (strpbrk(shim, ": ")) {
		cli_error("%s: a path with a space or a colon cannot be preloaded; install dflock elsewhere", shim);
		return CLI_RUN_FAILED;
	}
	ret = examine(&options, shim);
	if (ret)
		return ret;
	ret = set_preload(shim);
	if (ret) {
		cli_error("cannot set LD_PRELOAD: %s", strerror(-ret));
		return CLI_RUN_FAILED;
	}
	execvp(job[0], job);
	ret = errno;
	cli_error("cannot run %s: %s", job[0], strerror(ret));
	return ret == ENOENT ? CLI_RUN_NOT_FOUND : CLI_RUN_CANNOT_EXECUTE;
}
