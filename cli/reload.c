/* dflock reload: the keeper reads the configuration again. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>

#include "cli/ask.h"

static const char doc[] = "Has the keeper read its configuration again. What is held stays held. If the new one is "
			  "invalid, the keeper says "
			  "so and changes nothing. Programs whose configuration is not the one that their keeper has "
			  "read are refused locks "
			  "until this was done.\v"
			  "The exit status is 0, also if no keeper runs (the next one reads the configuration when it "
			  "starts), and 1 if the "
			  "keeper refuses.";

int cmd_reload(int argc, char **argv)
{
	char why[CLI_LINE_BYTES];
	struct place place;
	struct ask ask;
	int r;

	cli_no_arguments(argc, argv, doc);
	cli_place(&place, NULL);
	r = ask_connect(&place, &ask, why);
	if (r == -ENOENT) {
		puts("no keeper runs; the next one reads the configuration when it starts");
		return CLI_OK;
	}
	if (!r)
		r = ask_question(&ask, WIRE_RELOAD, &place, NULL, why);
	ask_close(&ask);
	if (r) {
		cli_error("%s", why);
		return CLI_FAILED;
	}
	printf("the keeper (pid %d) has read its configuration again\n", (int)ask.pid);
	return CLI_OK;
}
