/* dflock status: what the keeper says of itself, its leases and the cluster. */
#include "cli/cli.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ask.h"
#include "cli/show.h"
#include "cli/status.h"

static const char status_doc[] =
	"Shows this host's keeper, its leases with the processes that hold and await them, leases that were lost, and "
	"for the whole cluster which hosts hold and await which locks. Lock names that only silent hosts have are "
	"shown only with --all.\v"
	"The exit status is 0, also if no keeper runs (then this host holds nothing), and 1 if the keeper could not "
	"be asked. With --check it is 0 if all is well, 1 for what may surprise (leases were lost, older rules are in "
	"force, grace), and 2 if locks are refused, processes are frozen or the keeper could not be asked.";

#define WATCH_S     2
#define WATCH_MAX_S 3600

static error_t status_parse(int key, char *arg, struct argp_state *state)
{
	struct status_options *options = state->input;

	switch (key) {
	case 'j':
		options->json = true;
		return 0;
	case 'a':
		options->all = true;
		return 0;
	case 'c':
		options->check = true;
		return 0;
	case 'w':
		options->watch_s = arg ? atoi(arg) : WATCH_S;
		if (options->watch_s < 1 || options->watch_s > WATCH_MAX_S)
			argp_error(state, "--watch takes from 1 to %d seconds, not %s", WATCH_MAX_S, arg);
		return 0;
	case ARGP_KEY_END:
		if (options->json + options->check + (options->watch_s > 0) > 1)
			argp_error(state, "one of --json, --check and --watch");
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "it takes no arguments, but got %s", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Asks the keeper. 0 with *status; -ENOENT: none runs; or -errno. Then `why` says so in one line. */
static int status_ask(json_t **status, char **text, char why[CLI_LINE_BYTES])
{
	size_t len = 0, used;
	int ret;

	*status = NULL;
	*text = NULL;
	ret = ask_once(WIRE_STATUS, NULL, text, &len, why);
	used = strlen(why);
	if (ret == -ENOENT)
		snprintf(why + used, CLI_LINE_BYTES - used, ": this host holds nothing");
	if (ret)
		return ret;
	*status = ask_parse(*text, len, why);
	if (*status)
		return 0;
	free(*text);
	*text = NULL;
	return -EPROTO;
}

/* One of several times: an error is shown, and the next time comes. */
static void status_write(void *arg, FILE *f)
{
	const struct status_options *options = arg;
	char why[CLI_LINE_BYTES], *text;
	json_t *status;

	if (status_ask(&status, &text, why)) {
		show_text(f, why);
		fputc('\n', f);
		return;
	}
	status_print(status, options, f);
	json_decref(status);
	free(text);
}

static int status_check_once(void)
{
	char why[CLI_LINE_BYTES], *text;
	json_t *status;
	int ret = status_ask(&status, &text, why);

	if (ret) {
		status_check_line(ret == -ENOENT ? 0 : 2, why, stdout);
		putchar('\n');
		return ret == -ENOENT ? 0 : 2;
	}
	ret = status_check(status, stdout);
	json_decref(status);
	free(text);
	return ret;
}

static int status_once(const struct status_options *options)
{
	char why[CLI_LINE_BYTES], *text;
	json_t *status;
	int ret = status_ask(&status, &text, why);

	if (ret == -ENOENT) {
		if (options->json)
			puts("{\"running\": false}");
		else
			printf("%s\n(the first program that locks a protected file starts one)\n", why);
		return CLI_OK;
	}
	if (ret) {
		cli_error("%s", why);
		return CLI_FAILED;
	}
	if (options->json)
		printf("%s%s", text, *text && text[strlen(text) - 1] == '\n' ? "" : "\n");
	else
		status_print(status, options, stdout);
	json_decref(status);
	free(text);
	return CLI_OK;
}

int cmd_status(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"json", 'j', NULL, 0, "print the keeper's answer as it is, for programs", 0},
		{"all", 'a', NULL, 0, "show every lock name and every host", 0},
		{"check", 'c', NULL, 0, "one line with figures, and an exit status, for monitoring systems", 0},
		{"watch", 'w', "SECONDS", OPTION_ARG_OPTIONAL, "show it again every 2 or SECONDS seconds; q ends it",
		 0},
		{0}};
	static const struct argp argp = {.options = known, .parser = status_parse, .doc = status_doc};
	struct status_options options = {.json = false};

	argp_parse(&argp, argc, argv, 0, NULL, &options);
	if (options.check)
		return status_check_once();
	if (options.watch_s)
		return status_watch(options.watch_s, status_write, &options);
	return status_once(&options);
}
