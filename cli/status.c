/* dflock status: what the keeper says of itself, its leases and the cluster. */
#include "cli/cli.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ask.h"
#include "cli/field.h"
#include "cli/status.h"

static const char status_doc[] =
	"Shows this host's keeper, its leases with the processes that hold and await them, leases that were lost, and "
	"for the whole cluster which hosts hold and await which locks. Lock names that only silent hosts have are "
	"shown only with --all.\v"
	"The exit status is 0, also if no keeper runs (then this host holds nothing), and 1 if the keeper could not "
	"be asked.";

static int show(const struct status_options *options, const char *text, size_t len)
{
	json_error_t error;
	json_t *status;

	if (options->json) {
		printf("%s%s", text, len && text[len - 1] == '\n' ? "" : "\n");
		return CLI_OK;
	}
	status = json_loadb(text, len, 0, &error);
	if (!json_is_object(status)) {
		cli_error("the keeper's status makes no sense (%s); is it another version's?", error.text);
		json_decref(status);
		return CLI_FAILED;
	}
	status_print(status, options, stdout);
	json_decref(status);
	return CLI_OK;
}

int cmd_status(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"json", 'j', NULL, 0, "print the keeper's answer as it is, for programs", 0},
		{"all", 'a', NULL, 0, "show every lock name and every host", 0},
		{0}};
	struct status_options options;
	char why[CLI_LINE_BYTES], *text = NULL;
	struct place place;
	struct ask ask;
	bool given[2] = {false}; /* in the order of `known` */
	size_t len = 0;
	int ret;

	cli_flags(argc, argv, status_doc, known, given);
	options = (struct status_options){.json = given[0], .all = given[1]};
	cli_place(&place, NULL);
	ret = ask_connect(&place, &ask, why);
	if (ret == -ENOENT) {
		if (options.json)
			puts("{\"running\": false}");
		else
			printf("no keeper runs for %s: this host holds nothing\n"
			       "(the first program that locks a protected file starts one)\n",
			       ask.dir);
		return CLI_OK;
	}
	if (!ret)
		ret = ask_status(&ask, &place, &text, &len, why);
	if (ret) {
		cli_error("%s", why);
		ask_close(&ask);
		return CLI_FAILED;
	}
	ret = show(&options, text, len);
	free(text);
	ask_close(&ask);
	return ret;
}
