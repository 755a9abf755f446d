#include "cli/status.h"

#include <inttypes.h>
#include <string.h>

#include "cli/elsewhere.h"
#include "cli/field.h"
#include "cli/show.h"

/* Which rules are in force, if not those that the file had when the keeper started. */
static void print_rules(const json_t *status, FILE *f)
{
	const json_t *rules = json_object_get(status, "rules");
	int64_t in_force = field_number(rules, "in_force_since"), count = field_number(rules, "count");
	char since[SHOW_TIME_BYTES];

	if (in_force > field_number(status, "started") + 1)
		fprintf(f, "        its configuration was taken over %s: %" PRId64 " rule%s\n",
			show_when(in_force, since), count, count == 1 ? "" : "s");
	if (!*field_text(rules, "why"))
		return;
	fprintf(f, "        OLDER RULES ARE IN FORCE, since %s: ", show_when(field_number(rules, "since"), since));
	show_text(f, field_text(rules, "why"));
	fputc('\n', f);
}

static void print_keeper(const json_t *status, FILE *f)
{
	char since[SHOW_TIME_BYTES];

	fprintf(f, "keeper  pid %" PRId64 ", uid %" PRId64 ", host ", field_number(status, "pid"),
		field_number(status, "uid"));
	show_text(f, field_text(status, "host"));
	fprintf(f, ", since %s, configuration ", show_when(field_number(status, "started"), since));
	show_text(f, *field_text(status, "config") ? field_text(status, "config") : "none");
	fprintf(f, "\n        in ");
	show_text(f, field_text(status, "runtime_dir"));
	if (strcmp(field_text(status, "version"), DFLOCK_VERSION)) {
		fprintf(f, ", version ");
		show_text(f, field_text(status, "version"));
		fprintf(f, " (this dflock is %s)", DFLOCK_VERSION);
	}
	fputc('\n', f);
}

/* Nothing if all is as usual. */
static void print_log(const json_t *status, FILE *f)
{
	const json_t *log = json_object_get(status, "log");

	if (*field_text(log, "level") && strcmp(field_text(log, "level"), "info")) {
		fprintf(f, "        log level ");
		show_text(f, field_text(log, "level"));
		fprintf(f, ", set by ");
		show_text(f, field_text(log, "by"));
		fputc('\n', f);
	}
	if (field_number(log, "unwritten"))
		fprintf(f,
			"        %" PRId64
			" LINES of its log could not be written: is there a journal or syslog (/dev/log)?\n",
			field_number(log, "unwritten"));
}

/* How long this host may count on its leases, and what happens then. */
static void print_deadline(const json_t *status, FILE *f)
{
	const json_t *store = json_object_get(status, "store");
	const char *on_lost = field_text(store, "on_lost");
	int64_t left = field_number(store, "deadline_left_ms"), frozen = field_number(status, "frozen");
	bool leases = json_array_size(json_object_get(status, "leases")), up = field_flag(store, "up");
	char time[SHOW_TIME_BYTES], ttl[SHOW_TIME_BYTES];

	show_ms(left, time);
	if (frozen)
		fprintf(f,
			"        FROZEN until it answers: %" PRId64
			" processes (holders of locks, and what they started); ",
			frozen);
	if (frozen && left > 0)
		fprintf(f, "no other host can have the locks for another %s\n", time);
	else if (frozen)
		fprintf(f,
			"they are killed if another host has had the locks, or if it comes back without its memory (a "
			"restart, a failover): then it cannot be known which host had them\n");
	else if (!up && leases && left > 0)
		fprintf(f, "        leases cannot be renewed: in %s their holders %s (on_lost)\n",
			show_ms(strcmp(on_lost, "warn") ? field_number(store, "sure_left_ms") : left, time),
			!strcmp(on_lost, "freeze") ? "are frozen until it answers"
			: !strcmp(on_lost, "kill") ? "are ended"
						   : "go on unprotected");
	else if (up && left > 0)
		fprintf(f, "        this host's leases are sure for another %s (ttl %s)\n", time,
			show_ms(field_number(store, "ttl_ms"), ttl));
}

static void print_store(const json_t *status, FILE *f)
{
	const json_t *store = json_object_get(status, "store");
	char time[SHOW_TIME_BYTES];
	bool up = field_flag(store, "up");
	const char *error = field_text(store, "error"), *refuses = field_text(store, "refuses");

	fprintf(f, "store   ");
	show_text(f, field_text(store, "server"));
	fprintf(f, up ? ", up, version " : ", DOWN: ");
	show_text(f, up ? field_text(store, "version") : *error ? error : "not connected yet");
	fputc('\n', f);
	if (up && *refuses) {
		fprintf(f, "        NO NEW LOCKS: ");
		show_text(f, refuses);
		fputc('\n', f);
	}
	if (up && field_flag(store, "grace"))
		fprintf(f,
			"        in grace: it is new or lost its memory, and nothing new is granted for another %s\n",
			show_ms(field_number(store, "grace_left_ms"), time));
	print_deadline(status, f);
}

void status_print(const json_t *status, const struct status_options *options, FILE *f)
{
	const json_t *cluster = json_object_get(status, "cluster");

	print_keeper(status, f);
	print_rules(status, f);
	print_log(status, f);
	if (field_flag(status, "unsupervised"))
		fprintf(f, "        UNSUPERVISED: its parent was killed and no other can be started; see the log. "
			   "No process would stop holders whose leases cannot be renewed\n");
	if (*field_text(status, "twin")) {
		fprintf(f,
			"        TWICE: another keeper had the same host id, and one of the two is another host now: see the "
			"log. It is the copy of a machine or of a runtime directory; the other host is ");
		show_text(f, field_text(status, "twin"));
		fputc('\n', f);
	}
	if (field_flag(status, "ending"))
		fprintf(f, "        told to end: waits until the locks below are not held any more\n");
	print_store(status, f);
	status_toolong_print(json_object_get(status, "too_long"), f);
	status_past_print(status, f);
	status_leases_print_lost(json_object_get(status, "lost"), f);
	status_leases_print(json_object_get(status, "leases"), f);
	if (json_is_object(cluster)) {
		status_cluster_print(cluster, field_text(status, "host"), options->all, f);
		elsewhere_print(json_object_get(status, "elsewhere"), f);
	} else {
		const char *error = field_text(status, "cluster_error");

		fprintf(f, "\nthe rest of the cluster cannot be shown: ");
		show_text(f, *error ? error : "the store is not reachable");
		fputc('\n', f);
	}
}
