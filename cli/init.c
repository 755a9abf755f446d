/* dflock init: the operator's word that a new store may grant at once. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>

#include "cli/ask.h"
#include "cli/store.h"

static const char doc[] = "Opens a new store at once. A store that is new, or that lost its memory, grants no locks "
			  "until a keeper has watched "
			  "it for one ttl (30 s unless configured otherwise), because hosts that it has forgotten may "
			  "still hold locks. This "
			  "command skips that wait.\v"
			  "Use it only when nothing uses the store: at the first start of a cluster, in a test. When "
			  "in doubt wait one ttl: it "
			  "then opens by itself, and nothing is lost but this time. Starts a keeper if none runs. The "
			  "exit status is 0 if the "
			  "store grants locks now, and else 1.";

int cmd_init(int argc, char **argv)
{
	char why[CLI_LINE_BYTES];
	bool started = false;
	struct place place;
	struct ask ask;
	int r;

	cli_no_arguments(argc, argv, doc);
	cli_place(&place, NULL);
	if (!place.config[0]) {
		cli_error(
			"there is no configuration that names a store; write ~/.config/dflock.conf or /etc/dflock.conf "
			"(see dflock.conf(5)), or set DFLOCK_CONFIG");
		return CLI_FAILED;
	}
	r = ask_connect_or_start(&place, &ask, &started, why);
	if (!r) {
		json_decref(store_await(&ask, &place, why)); /* if it does not come up, the answer says so */
		r = ask_question(&ask, WIRE_INIT, &place, NULL, why);
	}
	ask_close(&ask);
	if (r) {
		cli_error("%s", why);
		return CLI_FAILED;
	}
	puts("the store is open: locks are granted");
	return CLI_OK;
}
