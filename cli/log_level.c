/* dflock log-level: which lines the keeper logs, until it is started anew. */
#include "cli/cli.h"

#include <stdio.h>

#include "cli/ask.h"

static const char level_doc[] =
	"Shows the level of the keeper's log and what has set it, or sets it: error, warning, info or debug. At debug each "
	"line is written; else a line of one cause at most once a minute. The level holds until it is set again or the "
	"keeper is started anew, before DFLOCK_LOG and log_level in the configuration; default gives it back to these. "
	"Only root and the keeper's user may set it.\v"
	"The exit status is 0, and 1 if no keeper runs or it refuses.";

static error_t level_parse(int key, char *arg, struct argp_state *state)
{
	const char **level = state->input;

	if (key != ARGP_KEY_ARG || state->arg_num > 0)
		return ARGP_ERR_UNKNOWN;
	if (!*arg)
		argp_error(state, "the level is empty");
	*level = arg;
	return 0;
}

int cmd_log_level(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = level_parse, .args_doc = "[error|warning|info|debug|default]", .doc = level_doc};
	const char *level = "show";
	char why[CLI_LINE_BYTES];

	argp_parse(&argp, argc, argv, 0, NULL, &level);
	if (ask_once(WIRE_LOG_LEVEL, level, NULL, NULL, why)) {
		cli_error("%s", why);
		return CLI_FAILED;
	}
	puts(why);
	return CLI_OK;
}
