/*
 * dflock init: opens a store that is new before its grace is over. dflock reload, log-level and stop: the keeper takes its
 * configuration over as it is now; logs more or less until it is started anew; gives everything back and ends.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/ask.h"
#include "cli/field.h"

static const char init_doc[] =
	"Opens a new store. A store that is new, or that lost its memory, grants no locks until a keeper has watched "
	"it for one ttl (30 s unless configured otherwise), because hosts that it has forgotten may still hold locks. "
	"This command waits for a third of that and two seconds, in which hosts that run come back, and opens the "
	"store if nothing is known of an earlier memory. Else it refuses, and lists what is known.\v"
	"When in doubt wait one ttl: the store then opens by itself. Starts a keeper if none runs. The exit status is "
	"0 if the store grants locks now, and else 1.";

static int init_ask(struct ask *ask, bool force, char why[CLI_LINE_BYTES])
{
	json_t *status = store_await(ask, why); /* if the store does not come up, the keeper's answer says so */
	int64_t ttl_ms = field_number(json_object_get(status, "store"), "ttl_ms");

	json_decref(status);
	if (ttl_ms > 0 && ttl_ms < INT32_MAX)
		ask_patience(ask, ASK_DEADLINE_S + (int)(ttl_ms / 1000));
	ask->flags = force ? WIRE_F_FORCE : 0;
	return ask_about(ask, WIRE_INIT, NULL, NULL, why);
}

int cmd_init(int argc, char **argv)
{
	char why[CLI_LINE_BYTES];
	bool force = cli_force(argc, argv, init_doc,
			       "open it at once, whatever is known: a host that still holds a lock of the earlier "
			       "memory, and the next one that gets this lock, then run at the same time");
	struct place place;
	struct ask ask;
	int ret;

	cli_place(&place, NULL);
	if (!place.config[0]) {
		cli_error("there is no configuration that names a store; " CLI_WRITE_ONE);
		return CLI_FAILED;
	}
	ret = start_connect(&place, &ask, why);
	if (!ret)
		ret = init_ask(&ask, force, why);
	ask_close(&ask);
	if (ret)
		return cli_fail(why);
	puts("the store is open: locks are granted");
	return CLI_OK;
}

/* --- dflock reload --- */

static const char reload_doc[] =
	"Makes the keeper read its configuration again and use it, whatever it protects. A changed configuration that "
	"still protects every file under the same name is taken over without this command. Locks that are held stay "
	"held. If the new configuration is invalid, the keeper says so and changes nothing.\v"
	"The exit status is 0, also if no keeper runs and none left rules behind (the next one reads the "
	"configuration when it starts), and 1 if the keeper refuses.";

int cmd_reload(int argc, char **argv)
{
	bool force = cli_force(
		argc, argv, reload_doc,
		"also while a lock is held or waited for that would have another name or store, or not be protected any more");
	char why[CLI_LINE_BYTES];
	struct place place;
	struct ask ask;
	int ret;

	cli_place(&place, NULL);
	ret = ask_connect(&place, &ask, why);
	if (ret == -ENOENT && !ask_is_left(&ask)) {
		puts("no keeper runs; the next one reads the configuration when it starts");
		return CLI_OK;
	}
	if (ret == -ENOENT)
		ret = start_connect(&place, &ask, why);
	if (!ret) {
		ask.flags = force ? WIRE_F_FORCE : 0;
		ret = ask_about(&ask, WIRE_RELOAD, NULL, NULL, why);
	}
	ask_close(&ask);
	if (ret)
		return cli_fail(why);
	printf("the keeper (pid %d) has read its configuration again\n", (int)ask.pid);
	return CLI_OK;
}

/* --- dflock log-level --- */

static const char level_doc[] =
	"Shows the level of the keeper's log and what has set it, or sets it: error, warning, info or debug. At debug each "
	"line is written; else a line of one cause at most once a minute. The level holds until it is set again or the "
	"keeper is started anew, before DFLOCK_LOG and log_level in the configuration; default gives it back to these. "
	"Only root and the keeper's user may set it.\v"
	"The exit status is 0, and 1 if no keeper runs or it refuses.";

int cmd_log_level(int argc, char **argv)
{
	char why[CLI_LINE_BYTES];
	bool given = cli_options(argc, argv, level_doc, "[error|warning|info|debug|default]", NULL, NULL);
	const char *level = given ? argv[argc - 1] : "show";

	if (!*level)
		cli_misused(argv, "the level is empty");
	if (ask_once(WIRE_LOG_LEVEL, 0, level, NULL, why))
		return cli_fail(why);
	puts(why);
	return CLI_OK;
}

/* --- dflock stop --- */

static const char stop_doc[] =
	"Makes the keeper give back all leases and end, and waits for that. A keeper whose leases are in use refuses: "
	"end their holders first (dflock status shows them). The next program that locks a protected file starts a "
	"new keeper.\v"
	"The exit status is 0 if no keeper runs any more, and 1 if it refused or does not end.";

/* Waits for the process itself, because the connection is closed before it ends. Without a pidfd, the answer is
 * enough. */
static int wait_for_end(int pidfd)
{
	struct pollfd end = {.fd = pidfd, .events = POLLIN};

	return pidfd >= 0 && poll(&end, 1, ASK_DEADLINE_S * 1000) == 0 ? -ETIMEDOUT : 0;
}

int cmd_stop(int argc, char **argv)
{
	char why[CLI_LINE_BYTES];
	int pidfd = -1, ret;
	struct place place;
	struct ask ask;

	cli_options(argc, argv, stop_doc, NULL, NULL, NULL);
	cli_place(&place, NULL);
	ret = ask_connect(&place, &ask, why);
	if (ret == -ENOENT) {
		puts("no keeper runs");
		return CLI_OK;
	}
	if (!ret && ask.pid > 0)
		pidfd = (int)syscall(SYS_pidfd_open, ask.pid, 0);
	if (!ret)
		ret = ask_about(&ask, WIRE_STOP, NULL, NULL, why);
	if (!ret) {
		ret = wait_for_end(pidfd);
		if (ret)
			snprintf(why, sizeof(why),
				 "the keeper (pid %d) gave everything back and did not end within %d s; kill it",
				 (int)ask.pid, ASK_DEADLINE_S);
	}
	if (pidfd >= 0)
		close(pidfd);
	ask_close(&ask);
	if (ret)
		return cli_fail(why);
	printf("the keeper (pid %d) has ended\n", (int)ask.pid);
	return CLI_OK;
}
