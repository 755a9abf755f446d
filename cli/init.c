/* dflock init: opens a store that is new before its grace is over. */
#include "cli/cli.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include "cli/ask.h"
#include "cli/field.h"
#include "cli/start.h"
#include "cli/store.h"

static const char init_doc[] =
	"Opens a new store. A store that is new, or that lost its memory, grants no locks until a keeper has watched "
	"it for one ttl (30 s unless configured otherwise), because hosts that it has forgotten may still hold locks. "
	"This command waits for a third of that and two seconds, in which hosts that run come back, and opens the "
	"store if nothing is known of an earlier memory. Else it refuses, and lists what is known.\v"
	"When in doubt wait one ttl: the store then opens by itself. Starts a keeper if none runs. The exit status is "
	"0 if the store grants locks now, and else 1.";

static int init_ask(struct ask *ask, const struct place *place, bool force, char why[CLI_LINE_BYTES])
{
	json_t *status = store_await(ask, place, why); /* if the store does not come up, the keeper's answer says so */
	int64_t ttl_ms = field_number(json_object_get(status, "store"), "ttl_ms");

	json_decref(status);
	if (ttl_ms > 0 && ttl_ms < INT32_MAX)
		ask_patience(ask, ASK_DEADLINE_S + (int)(ttl_ms / 1000));
	ask->flags = force ? WIRE_F_FORCE : 0;
	return ask_question(ask, WIRE_INIT, place, NULL, why);
}

int cmd_init(int argc, char **argv)
{
	char why[CLI_LINE_BYTES];
	bool force = cli_force(argc, argv, init_doc,
			       "open it at once, whatever is known: a host that still holds a lock of the earlier "
			       "memory, and the next one that gets this lock, then run at the same time");
	bool started = false;
	struct place place;
	struct ask ask;
	int ret;

	cli_place(&place, NULL);
	if (!place.config[0]) {
		cli_error("there is no configuration that names a store; " CLI_WRITE_ONE);
		return CLI_FAILED;
	}
	ret = start_connect(&place, &ask, &started, why);
	if (!ret)
		ret = init_ask(&ask, &place, force, why);
	ask_close(&ask);
	if (ret) {
		cli_error("%s", why);
		return CLI_FAILED;
	}
	puts("the store is open: locks are granted");
	return CLI_OK;
}
