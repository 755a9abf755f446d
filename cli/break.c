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
#include "cli/field.h"
#include "cli/show.h"
#include "cli/status.h"
#include "config/config.h"

#define BREAK_PATIENCE_S 30 /* for one lease: more than the keeper has for it */

struct break_options {
	const char *lock, *host; /* one of them */
	bool yes, force;
};

/* Asks the operator on the terminal. False: not agreed, which has been said. */
static bool break_agreed(const struct break_options *options, const char *question)
{
	char answer[16] = "";

	if (options->yes)
		return true;
	if (!isatty(STDIN_FILENO)) {
		cli_error("nothing was changed: standard input is no terminal, so it cannot ask; --yes does it without "
			  "asking");
		return false;
	}
	printf("%s [y/N] ", question);
	fflush(stdout);
	if (fgets(answer, sizeof(answer), stdin) && (!strcmp(answer, "y\n") || !strcmp(answer, "yes\n")))
		return true;
	puts("nothing was changed");
	return false;
}

/* --- a host --- */

static int break_host_agreed(struct ask *ask, const struct break_options *options, int64_t ttl_ms,
			     char why[CLI_LINE_BYTES])
{
	int ret;

	ask->flags = options->force ? WIRE_F_FORCE : 0;
	ask_patience(ask, BREAK_PATIENCE_S + (int)(ttl_ms / 1000));
	ret = ask_about(ask, WIRE_GIVE_UP, options->host, NULL, why);
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
			show_row(stdout, lock, "    {name}");
			show_row(stdout, entry, ", {mode}, fence {fence}\n");
		}
}

static int break_host(struct ask *ask, const struct break_options *options, const json_t *status)
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
	return break_host_agreed(ask, options, ttl_ms < INT32_MAX ? ttl_ms : INT32_MAX, why);
}

/* --- a lock --- */

struct break_lock {
	struct ask *ask;
	char name[LOCK_NAME_BYTES];
	const json_t *lock; /* of this name; NULL: nothing is known of it */
	int64_t limit;      /* the largest fence number of the store when this was shown */
	unsigned failed;    /* leases that could not be taken away */
	unsigned gone;      /* ... that had ended meanwhile */
};

/* The lock name of what the operator wrote: a name that the store knows, or a file by the rules. */
static void break_name(const char *word, const struct place *place, const json_t *status, char name[LOCK_NAME_BYTES])
{
	char path[PATH_MAX], why[CLI_LINE_BYTES], bytes[LOCK_NAME_BYTES];
	struct config *config = NULL;

	snprintf(name, LOCK_NAME_BYTES, "%s", word);
	if (!status_find_lock(status, word) && show_unescape(word, bytes, sizeof(bytes)) &&
	    status_find_lock(status, bytes))
		snprintf(name, LOCK_NAME_BYTES, "%s", bytes);
	if (status_find_lock(status, name) || files_resolve(word, path) != 0 || !place->config[0])
		return;
	if (config_load_rules(place->config, &config, why, sizeof(why)) == 0 &&
	    config_lock_name(config, path, name) != 0)
		snprintf(name, LOCK_NAME_BYTES, "%s", word);
	config_free(config);
}

/* What the name's store has of it, by the rules: where other hosts' rules differ, another store may have the name, too. NULL: nothing. */
static const json_t *break_find(const struct place *place, const json_t *status, const char *name)
{
	const json_t *lock, *found = NULL;
	char why[CLI_LINE_BYTES];
	struct config *config;
	const char *store;
	size_t i;

	if (!place->config[0] || config_load_rules(place->config, &config, why, sizeof(why)) != 0)
		return status_find_lock(status, name);
	store = config->stores[config_store_of(config, name)].name;
	json_array_foreach (json_object_get(json_object_get(status, "cluster"), "locks"), i, lock)
		if (field_is(lock, "name", name) && field_is(lock, "store", store))
			found = lock;
	config_free(config);
	return found;
}

/* --- what would be hit --- */

/* The holders on one host, as its keeper tells them: for all leases that the host has of this name. */
static void break_show_holders(const json_t *who, const char *name)
{
	const json_t *host, *found = NULL, *p;
	int64_t count;
	size_t i;

	json_array_foreach (json_object_get(who, "hosts"), i, host)
		if (!strcmp(field_text(host, "host"), name))
			found = host;
	if (strcmp(field_text(found, "state"), "answered") != 0) {
		puts("        which processes hold the lock is not known: the host has not answered");
		return;
	}
	count = field_number(found, "count");
	json_array_foreach (json_object_get(found, "holders"), i, p) {
		show_row(stdout, p, "        pid {pid}, since {since:when}: {command}\n");
		count--;
	}
	if (count > 0)
		printf("        %" PRId64 " %sprocesses, of which it tells no more (show_jobs)\n", count,
		       i ? "more " : "");
	else if (!i)
		puts("        no process holds the lock now: the host gives the lease back by itself when it is wanted");
}

static void break_show(const struct break_lock *b, const json_t *status)
{
	const char *own = field_text(status, "host"), *space;
	char left[SHOW_TIME_BYTES], why[CLI_LINE_BYTES];
	json_t *rest, *who = who_ask(b->ask, b->name, why);
	const json_t *e;
	size_t i;

	show_text(stdout, b->name);
	puts(" is held by");
	json_array_foreach (json_object_get(b->lock, "leases"), i, e) {
		show_row(stdout, e, "    host {host}");
		show_row(stdout, e,
			 strcmp(field_text(e, "host"), own)
				 ? ", {space} {mode}, {from:range}, fence {fence}\n"
				 : " (this host), {space} {mode}, {from:range}, fence {fence}\n");
		break_show_holders(who, field_text(e, "host"));
	}
	json_object_foreach (json_object_get(b->lock, "resting"), space, rest)
		printf("    a rest, %s, for %s more (at_least_ms)\n", space, show_ms(json_integer_value(rest), left));
	fflush(stdout);
	json_decref(who);
}

/* --- doing it --- */

/* The name may be one that is no UTF-8, as the keeper shows it. The fence number says which lock is meant. */
static int break_ask(struct break_lock *b, enum wire_op op, char why[CLI_LINE_BYTES])
{
	char bytes[LOCK_NAME_BYTES];
	int ret = ask_about(b->ask, op, b->name, NULL, why);

	if (ret == -EAGAIN && show_unescape(b->name, bytes, sizeof(bytes)))
		ret = ask_about(b->ask, op, bytes, NULL, why);
	return ret;
}

static void break_lease(struct break_lock *b, const json_t *e)
{
	char why[CLI_LINE_BYTES];
	int64_t fence = field_number(e, "fence");
	int ret;

	b->ask->from = fence;
	b->ask->to = b->limit;
	ret = break_ask(b, WIRE_BREAK, why);
	if (!ret) {
		show_row(stdout, e, "taken away: fence {fence} of host {host}\n");
		return;
	}
	b->gone += ret == -EAGAIN;
	b->failed += ret != -EAGAIN;
	cli_error("fence %" PRId64 " of host %s %s: %s", fence, field_text(e, "host"),
		  ret == -EAGAIN ? "was not there any more" : "was not taken away", why);
}

static void break_rest(struct break_lock *b, const char *space)
{
	char why[CLI_LINE_BYTES];
	int ret;

	b->ask->space = strcmp(space, "flock") ? WIRE_RECORD : WIRE_FLOCK;
	b->ask->to = b->limit;
	ret = break_ask(b, WIRE_END_REST, why);
	b->ask->space = 0;
	if (!ret || ret == -EAGAIN) { /* it ended with its lease, or by itself */
		printf("the rest (%s) is over\n", space);
		return;
	}
	b->failed++;
	cli_error("the rest was not ended: %s", why);
}

/* Leases that are younger than what was shown, where one that was shown had gone before it could be taken away. */
static int break_report_younger(const struct break_lock *b)
{
	char why[CLI_LINE_BYTES];
	json_t *status = ask_json(b->ask, WIRE_STATUS, NULL, why);
	const json_t *e;
	int exit = CLI_OK;
	size_t i;

	json_array_foreach (json_object_get(status ? break_find(b->ask->place, status, b->name) : NULL, "leases"), i,
			    e) {
		if (field_number(e, "fence") <= b->limit)
			continue;
		cli_error("meanwhile host %s has got the lock (fence %" PRId64
			  "), and keeps it: run `dflock break' again "
			  "to take it away from there",
			  field_text(e, "host"), field_number(e, "fence"));
		exit = CLI_FAILED;
	}
	if (!status)
		cli_error("%s", why);
	json_decref(status);
	return status ? exit : CLI_FAILED;
}

static int break_all(struct break_lock *b)
{
	const char *space;
	const json_t *e;
	json_t *rest;
	size_t i;

	ask_patience(b->ask, BREAK_PATIENCE_S);
	json_array_foreach (json_object_get(b->lock, "leases"), i, e)
		break_lease(b, e);
	json_object_foreach (json_object_get(b->lock, "resting"), space, rest)
		break_rest(b, space);
	if (b->gone && break_report_younger(b) != CLI_OK)
		return CLI_FAILED;
	return b->failed ? CLI_FAILED : CLI_OK;
}

static int64_t break_limit(const struct break_lock *b)
{
	int64_t limit = field_number(b->lock, "fence"); /* of its store */
	const json_t *e;
	size_t i;

	json_array_foreach (json_object_get(b->lock, "leases"), i, e)
		if (field_number(e, "fence") > limit)
			limit = field_number(e, "fence");
	return limit;
}

/* There is nothing to take away. */
static int break_nothing(const struct break_lock *b, const char *word, const json_t *status)
{
	const json_t *other = b->lock ? NULL : status_find_lock(status, b->name);
	char why[CLI_LINE_BYTES];

	if (*field_text(status, "cluster_error")) {
		cli_error("nothing was changed: not every store can be read: %s", field_text(status, "cluster_error"));
		return CLI_FAILED;
	}
	if (other) {
		cli_error("nothing was changed: %s is in the store %s, and not in the one that this host's rules say: "
			  "run `dflock break' on a host whose rules do; `dflock doctor' shows what differs",
			  b->name, *field_text(other, "store") ? field_text(other, "store") : "default");
		return CLI_FAILED;
	}
	if (!who_is_known(b->ask, word, why)) {
		cli_error("%s; no host holds it", why);
		return CLI_BREAK_NOBODY;
	}
	cli_error("%s: no host holds a lock of this name; `dflock status' shows those that are held (%s is "
		  "called lock:%s if `dflock lock' took it)",
		  b->name, word, word);
	return CLI_BREAK_NOBODY;
}

static int break_lock(struct ask *ask, const struct break_options *options, const json_t *status)
{
	struct break_lock b = {.ask = ask};

	break_name(options->lock, ask->place, status, b.name);
	b.lock = break_find(ask->place, status, b.name);
	if (!json_array_size(json_object_get(b.lock, "leases")) &&
	    !json_object_size(json_object_get(b.lock, "resting")))
		return break_nothing(&b, options->lock, status);
	b.limit = break_limit(&b);
	break_show(&b, status);
	if (!break_agreed(options,
			  "Take it away? These processes, those of the other hosts, and all that they started, are "
			  "killed."))
		return CLI_FAILED;
	return break_all(&b);
}

/* --- the command --- */

static const char break_doc[] =
	"Takes a lock away from its holders: they, and all that they started, are killed, and then those that wait get "
	"the lock, in their order. Ends a rest (at_least_ms), too. LOCK is a file, or a lock name as `dflock status' "
	"shows it. Shows what would be hit, and asks. With --host, gives up a host that is off: what it has in the store "
	"is released at once, for all locks.\v"
	"On this host root and the keeper's user may break a lock, and so may a user who owns all of its holders. Another host "
	"ends its holders only if its configuration has allow_break. The exit status is 0 if no lease that was shown is left, 3 if no host holds the "
	"lock, or the store does not know the host, 2 if the command line makes no sense, and else 1, with one line for "
	"each lease that was not taken away.";

static int break_run(struct ask *ask, const struct break_options *options)
{
	char why[CLI_LINE_BYTES];
	json_t *status = store_await(ask, why);
	int exit = CLI_FAILED;

	if (!status)
		cli_error("nothing was changed: %s", why);
	else if (!json_is_object(json_object_get(status, "cluster")))
		cli_error("nothing was changed: the store cannot be read: %s", field_text(status, "cluster_error"));
	else
		exit = options->host ? break_host(ask, options, status) : break_lock(ask, options, status);
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
	struct break_options options = {.lock = NULL};
	char why[CLI_LINE_BYTES];
	struct place place;
	struct ask ask;
	int exit;

	if (cli_options(argc, argv, break_doc, "[LOCK]", known,
			(void *[]){&options.yes, &options.host, &options.force}))
		options.lock = argv[argc - 1];
	if (!options.lock == !options.host)
		cli_misused(argv, "it takes either a LOCK or --host");
	if (options.force && !options.host)
		cli_misused(argv, "--force goes with --host only");
	cli_place(&place, NULL);
	if (start_connect(&place, &ask, why)) {
		cli_error("nothing was changed: %s", why);
		return CLI_FAILED;
	}
	exit = break_run(&ask, &options);
	ask_close(&ask);
	return exit;
}
