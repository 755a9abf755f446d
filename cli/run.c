/* dflock run: the preload for one program. */
#include "cli/cli.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/program.h"

static const char run_doc[] =
	"Runs JOB, found in PATH, with libdflock.so in LD_PRELOAD, so that its file locks, and those of all programs "
	"that it starts, hold across the cluster. Other preloads stay.\v"
	"The exit status is that of JOB; 127 if it was not found, 126 if it could not be executed, 125 if dflock "
	"itself failed. One line says so if the preload cannot reach JOB (statically linked, setuid); it is run all "
	"the same.";

static error_t run_parse(int key, char *arg, struct argp_state *state)
{
	char ***job = state->input;

	(void)arg;
	switch (key) {
	case ARGP_KEY_ARG:
		/* The first one: the rest is the job's, options and all. */
		*job = &state->argv[state->next - 1];
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

int cmd_run(int argc, char **argv)
{
	static const struct argp argp = {.parser = run_parse, .args_doc = "[--] JOB [ARGUMENT...]", .doc = run_doc};
	struct program program;
	char shim[PATH_MAX], **job = NULL;
	int ret;

	argp_err_exit_status = CLI_RUN_FAILED;
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &job);
	ret = program_shim(shim);
	if (ret) {
		cli_error("%s: %s; without it locks would not be protected: install it", shim, strerror(-ret));
		return CLI_RUN_FAILED;
	}
	if (strpbrk(shim, ": ")) {
		cli_error("%s: a path with a space or a colon cannot be preloaded; install dflock elsewhere", shim);
		return CLI_RUN_FAILED;
	}
	program_examine_job(job[0], job, shim, &program);
	if (program.reach == REACH_NO || program.reach == REACH_DOUBTFUL)
		cli_error("warning: %s", program.line);
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
