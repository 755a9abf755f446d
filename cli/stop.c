/* dflock stop: the keeper gives everything back and ends. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>

#include "cli/ask.h"

static const char doc[] =
	"Has the keeper give all leases back and end, and waits for it. A keeper whose leases are in use refuses: end their "
	"holders first (dflock status shows them). The next program that locks a protected file starts a new keeper.\v"
	"The exit status is 0 if no keeper runs any more, and 1 if it refused or does not end.";

int cmd_stop(int argc, char **argv)
{
	char why[CLI_LINE_BYTES];
	struct place place;
	struct ask ask;
	int r;

	cli_no_arguments(argc, argv, doc);
	cli_place(&place, NULL);
	r = ask_connect(&place, &ask, why);
	if (r == -ENOENT) {
		puts("no keeper runs");
		return CLI_OK;
	}
	if (!r)
		r = ask_question(&ask, WIRE_STOP, &place, NULL, why);
	if (!r) {
		r = ask_wait_for_end(&ask);
		if (r)
			snprintf(why, sizeof(why), "the keeper (pid %d) gave everything back but does not end; its log "
				 "may say why", (int)ask.pid);
	}
	ask_close(&ask);
	if (r) {
		cli_error("%s", why);
		return CLI_FAILED;
	}
	printf("the keeper (pid %d) has ended\n", (int)ask.pid);
	return CLI_OK;
}
