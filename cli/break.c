/*
 * dflock break: takes a lock away from its holders, or gives up a host that is off.
 *
 * What is taken away are the leases that were shown, by their fence numbers: a holder that came later is not hit, and
 * is reported.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/ask.h"
#include "cli/break.h"
#include "cli/field.h"
#include "cli/show.h"
#include "cli/start.h"
#include "cli/store.h"

static const char break_doc[] =
	"Takes a lock away from its holders: they, and all that they started, are killed, and then those that wait get "
	"the lock, in their order. Ends a rest (at_least_ms), too. LOCK is a file, or a lock name as `dflock status' "
	"shows it. Shows what would be hit, and asks. With --host, gives up a host that is off: what it has in the store "
	"is released at once, for all locks.\v"
	"On this host root and the keeper's user may break a lock, and so may a user who owns all of its holders. Another host "
	"ends its holders only if its configuration has allow_break. The exit status is 0 if no lease that was shown is left, 3 if no host holds the "
	"lock, or the store does not know the host, 2 if the command line makes no sense, and else 1, with one line for "
	"each lease that was not taken away.";

static error_t break_parse(int key, char *arg, struct argp_state *state)
{
	struct break_options *options = state->input;

	switch (key) {
	case 'y':
		options->yes = true;
		return 0;
	case 'f':
		options->force = true;
		return 0;
	case 'h':
		options->host = arg;
		return 0;
	case ARGP_KEY_ARG:
		cli_take_lock(state, arg, &options->lock);
		return 0;
	case ARGP_KEY_END:
		if (!options->lock == !options->host)
			argp_error(state, "it takes either a LOCK or --host");
		if (options->force && !options->host)
			argp_error(state, "--force goes with --host only");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* --- a host --- */

static int break_host_agreed(struct ask *ask, const struct break_options *options, const struct place *place,
			     int64_t ttl_ms, char why[CLI_LINE_BYTES])
{
	int ret;

	ask->flags = options->force ? WIRE_F_FORCE : 0;
	ask_patience(ask, BREAK_PATIENCE_S + (int)(ttl_ms / 1000));
	ret = break_ask(ask, WIRE_GIVE_UP, options->host, place, why);
	if (!ret) {
		fputs("given up: ", stdout);
		show_text(stdout, options->host);
		puts("; what it had in the store is released");
		return CLI_OK;
	}
	cli_error("%s", why);
	return ret == -EAGAIN ? CLI_BREAK_NOBODY : CLI_FAILED;
}

/* Tells how long it has been silent, and what it has. */
static void break_host_show(const json_t *cluster, const char *host, int64_t age_ms)
{
	const json_t *lock, *entry;
	char age[SHOW_TIME_BYTES];
	size_t i, n;

	fputs("host ", stdout);
	show_text(stdout, host);
	printf(" was heard of %s ago, by the clock of the store; it has leases of\n", show_ms(age_ms, age));
	json_array_foreach (json_object_get(cluster, "locks"), i, lock)
		json_array_foreach (json_object_get(lock, "leases"), n, entry) {
			if (strcmp(field_text(entry, "host"), host) != 0)
				continue;
			fputs("    ", stdout);
			show_text(stdout, field_text(lock, "name"));
			printf(", %s, fence %" PRId64 "\n", field_text(entry, "mode"), field_number(entry, "fence"));
		}
}

int break_host(struct ask *ask, const struct break_options *options, const struct place *place, const json_t *status)
{
	const json_t *cluster = json_object_get(status, "cluster");
	const json_t *about = json_object_get(json_object_get(cluster, "hosts"), options->host);
	int64_t ttl_ms = field_number(json_object_get(status, "store"), "ttl_ms");
	char why[CLI_LINE_BYTES], ttl[SHOW_TIME_BYTES];

	if (!json_is_object(about)) {
		cli_error("the store knows no host %s; `dflock status --all' lists those that it knows", options->host);
		return CLI_BREAK_NOBODY;
	}
	break_host_show(cluster, options->host, field_number(about, "age_ms"));
	if (options->force)
		puts("with --force its leases are released even if it lives: until it hears of that, its programs and the "
		     "next holders run at the same time");
	else
		printf("it is watched until it has been silent for %s here, if it was not watched for so long before\n",
		       show_ms(ttl_ms, ttl));
	if (!break_agreed(options, "Is it off, and shall it be given up?"))
		return CLI_FAILED;
	fflush(stdout);
	return break_host_agreed(ask, options, place, ttl_ms < INT32_MAX ? ttl_ms : INT32_MAX, why);
}

/* --- the command --- */

static int break_run(struct ask *ask, const struct break_options *options, const struct place *place)
{
	char why[CLI_LINE_BYTES];
	json_t *status = store_await(ask, place, why);
	int exit = CLI_FAILED;

	if (!status)
		cli_error("nothing was changed: %s", why);
	else if (!json_is_object(json_object_get(status, "cluster")))
		cli_error("nothing was changed: the store cannot be read: %s", field_text(status, "cluster_error"));
	else
		exit = options->host ? break_host(ask, options, place, status)
				     : break_lock(ask, options, place, status);
	json_decref(status);
	return exit;
}

int cmd_break(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"yes", 'y', NULL, 0, "do not ask", 0},
		{"host", 'h', "HOST", 0, "give up HOST, as `dflock status --all' names it", 0},
		{"force", 'f', NULL, 0,
		 "with --host: even if it may live. Two hosts may then hold a lock at the same time", 0},
		{0}};
	static const struct argp argp = {
		.options = known, .parser = break_parse, .args_doc = "[LOCK]", .doc = break_doc};
	struct break_options options = {.lock = NULL};
	char why[CLI_LINE_BYTES];
	bool started = false;
	struct place place;
	struct ask ask;
	int exit;

	argp_parse(&argp, argc, argv, 0, NULL, &options);
	cli_place(&place, NULL);
	if (start_connect(&place, &ask, &started, why)) {
		cli_error("nothing was changed: %s", why);
		return CLI_FAILED;
	}
	exit = break_run(&ask, &options, &place);
	ask_close(&ask);
	return exit;
}
