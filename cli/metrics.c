/*
 * dflock metrics: see metrics.h.
 *
 * The file of --textfile. node_exporter reads DIR/dflock.prom at any moment, so that name always has a whole file: it is
 * written under another name, which node_exporter does not read, and then renamed. If dflock is killed in between, that name stays,
 * and the next dflock removes it. Only one at a time writes it, by a kernel lock on DIR, which ends with the process: else one
 * would rename what the other has half written. The file is made anew and exclusively, so no other user of DIR can have it
 * open. It is not synced: after a crash of the machine its numbers say nothing.
 */
#include "cli/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/ask.h"

enum metric_type { METRIC_GAUGE, METRIC_COUNTER, METRIC_HISTOGRAM };

struct metric {
	const char *name; /* without "dflock_": also its key in the keeper's JSON */
	enum metric_type type;
	const char *labels; /* their names, with a blank between them */
	const char *help;
};
#define PAGE                                                                                                                    \
	" Lock calls that a lease of this host covers already go through the shared page and never reach the keeper: they are " \
	"not counted."

static const struct metric metrics_table[] = {
	/* dflock itself */
	{"up", METRIC_GAUGE, "", "1: the keeper answered. 0: none runs, or it does not answer."},
	{"build_info", METRIC_GAUGE, "program version", "Always 1; which versions of dflock and dflockd run."},

	/* the keeper */
	{"start_time_seconds", METRIC_GAUGE, "", "When the keeper started. Its counters begin at 0 then."},
	{"keeper_restarts_total", METRIC_COUNTER, "",
	 "Keepers that died and were started again. Survives a keeper: the parent counts."},
	{"keeper_hangs_total", METRIC_COUNTER, "",
	 "Keepers that did nothing and were killed. Survives a keeper: the parent counts."},
	{"unsupervised", METRIC_GAUGE, "", "1: the keeper's parent was killed and none can be started."},
	{"connections", METRIC_GAUGE, "", "Connections of programs and operators, one for each question or pin."},
	{"connections_max", METRIC_GAUGE, "", "How many connections there may be; one user gets a quarter."},
	{"connections_accepted_total", METRIC_COUNTER, "", "Connections that were accepted."},

	/* leases */
	{"leases", METRIC_GAUGE, "space state", "Leases of this host; docs/design.md, section 5, has the states."},
	{"leases_max", METRIC_GAUGE, "", "How many leases there may be, of all spaces and states."},
	{"page_leases", METRIC_GAUGE, "",
	 "Open leases in the shared page. Which programs use them is not known: reading a page tells no other process."},
	{"lease_grants_total", METRIC_COUNTER, "space", "Leases that the store granted to this host."},
	{"lease_hold_seconds", METRIC_HISTOGRAM, "space",
	 "From the grant of a lease until it was given back or lost. A lock under it was held for at most so long; how long "
	 "exactly is not known, since unlocking needs no message."},
	{"lease_recall_seconds", METRIC_HISTOGRAM, "space",
	 "From the moment that another host wanted a lease until it was handed over: the time for which holders here kept "
	 "other hosts waiting."},
	{"handovers_total", METRIC_COUNTER, "space",
	 "Leases that were given back, or shrunk to shared, because another host wanted them."},
	{"leases_lost_total", METRIC_COUNTER, "reason",
	 "Leases that were lost: taken (not renewed in time), forgotten (the store lost its memory), broken (by dflock "
	 "break), damaged (the table of a dead keeper could not be read). Their holders end as on_lost says."},
	{"held_too_long_total", METRIC_COUNTER, "", "Locks that were held for longer than warn_after_ms."},

	/* lock calls */
	{"waiters", METRIC_GAUGE, "space", "Lock calls that wait for a lease." PAGE},
	{"lock_wait_seconds", METRIC_HISTOGRAM, "space",
	 "Lock calls that the keeper granted, and how long each waited for the answer." PAGE},
	{"lock_busy_total", METRIC_COUNTER, "space",
	 "Lock calls that did not wait and got EWOULDBLOCK because another host had the lock."},
	{"lock_refusals_total", METRIC_COUNTER, "reason",
	 "Lock calls and tests that the keeper refused (ENOLCK), and connections that it turned away."},
	{"lock_deadlocks_total", METRIC_COUNTER, "", "Lock calls that got EDEADLK because of a circle over hosts."},
	{"lock_abandoned_total", METRIC_COUNTER, "", "Lock calls whose program went away while it waited."},
	{"calls_under_way", METRIC_GAUGE, "",
	 "Lock calls of programs under the net that were granted, and whose threads were not seen out of them: most have ended."},
	{"calls_seen_out_total", METRIC_COUNTER, "",
	 "Threads that were seen out of such calls, since another host wanted the lock."},
	{"waited_too_long_total", METRIC_COUNTER, "", "Lock calls that waited for longer than wait_warn_ms."},

	/* past dflock */
	{"locks_past", METRIC_GAUGE, "", "Locks on protected files that are held without a lease."},
	{"taken_past_total", METRIC_COUNTER, "", "Locks on protected files that were found without a lease."},

	/* renewing */
	{"beats_total", METRIC_COUNTER, "result",
	 "Beats that renew the leases of this host; requests for leases renew, too, and are not counted."},
	{"deadline_left_seconds", METRIC_GAUGE, "",
	 "For how long the leases are sure. 0: over. Without leases nothing is renewed, and it runs down to 0."},
	{"ttl_seconds", METRIC_GAUGE, "", "ttl_ms of the configuration: leases are renewed three times in it."},
	{"frozen_processes", METRIC_GAUGE, "", "Processes that are stopped until the store answers."},
	{"freezes_total", METRIC_COUNTER, "", "How often holders were frozen. Survives a keeper: the parent counts."},
	{"ended_processes_total", METRIC_COUNTER, "reason signal",
	 "Processes that got a signal to end: lost (their lease was), broken (by dflock break), stuck (could not be frozen "
	 "in time), expired (on_lost is kill), held_too_long (kill_after_ms). One that gets SIGTERM and then SIGKILL counts "
	 "under both. All but held_too_long survive a keeper."},

	/* the store */
	{"store_up", METRIC_GAUGE, "", "1: connected to the store."},
	{"store_grace", METRIC_GAUGE, "", "1: the store is in grace and grants nothing new."},
	{"store_connects_total", METRIC_COUNTER, "", "Connections to the store that were made."},
	{"store_disconnects_total", METRIC_COUNTER, "", "Connections to the store that broke."},
	{"store_requests_total", METRIC_COUNTER, "operation", "Round trips to the store that began."},
	{"store_request_failures_total", METRIC_COUNTER, "reason",
	 "Round trips that ended with an error, or without an answer (with replicas: too few have acknowledged it)."},
	{"store_request_seconds", METRIC_HISTOGRAM, "",
	 "Round trips that were answered, and how long that took; with replicas, until enough of them have it."},
	{"store_memory_losses_total", METRIC_COUNTER, "",
	 "How often the store came back without its memory, as another incarnation."},

	/* each store (stores of dflock.conf(5)); what has no such label is of the default one */
	{"stores_up", METRIC_GAUGE, "store", "1: connected to this store."},
	{"stores_grace", METRIC_GAUGE, "store", "1: this store is in grace and grants nothing new."},
	{"stores_deadline_left_seconds", METRIC_GAUGE, "store", "For how long the leases in this store are sure."},
	{"stores_leases", METRIC_GAUGE, "store",
	 "Leases of this host in this store, of all spaces and states but asking."},

	/* rules */
	{"rules_hosts", METRIC_GAUGE, "rules",
	 "Other keepers in the store whose rules have the same digest as this one's, another one, or are not known."},
	{"rules_compared_timestamp_seconds", METRIC_GAUGE, "",
	 "When dflock_rules_hosts was found out; 0: not so far. Looked at when metrics are read, every 15 minutes at most."},
	{"config_refused", METRIC_GAUGE, "", "1: the configuration file is not in force, and older rules are."},
	{.name = NULL}};

/* --- from the keeper's JSON (keeper/callers/metrics.h) to text: a value of the wrong kind is left out, a text is escaped --- */

static const char *const metric_types[] = {
	[METRIC_GAUGE] = "gauge", [METRIC_COUNTER] = "counter", [METRIC_HISTOGRAM] = "histogram"};

/* As in a label's value; a HELP needs no more. */
static void print_escaped(const char *text, FILE *f)
{
	for (; *text; text++)
		if (*text == '\n')
			fputs("\\n", f);
		else if (*text == '\\' || *text == '"')
			fprintf(f, "\\%c", *text);
		else
			fputc(*text, f);
}

/* One sample up to its value. suffix: of a histogram; labels: NAME="VALUE",... */
static void print_sample(const struct metric *metric, const char *suffix, const char *labels, FILE *f)
{
	fprintf(f, *labels ? "dflock_%s%s{%s} " : "dflock_%s%s ", metric->name, suffix, labels);
}

/* The counts are cumulative in the text, and not in the keeper's answer. */
static void print_histogram(const struct metric *metric, const json_t *value, const char *labels, FILE *f)
{
	const json_t *le = json_object_get(value, "le"), *counts = json_object_get(value, "counts");
	const json_t *sum = json_object_get(value, "sum");
	json_int_t total = 0;
	size_t n = json_array_size(le);

	if (!json_is_number(sum) || json_array_size(counts) != n + 1)
		return;
	for (size_t i = 0; i <= n; i++) {
		total += json_integer_value(json_array_get(counts, i));
		fprintf(f, "dflock_%s_bucket{%s%sle=\"", metric->name, labels, *labels ? "," : "");
		fprintf(f, i < n ? "%.9g" : "+Inf", json_number_value(json_array_get(le, i)));
		fprintf(f, "\"} %" JSON_INTEGER_FORMAT "\n", total);
	}
	print_sample(metric, "_sum", labels, f);
	fprintf(f, "%.9g\n", json_number_value(sum));
	print_sample(metric, "_count", labels, f);
	fprintf(f, "%" JSON_INTEGER_FORMAT "\n", total);
}

/* names: of the labels that are left. labels: those that have a value, as print_sample() takes them. */
static void print_value(const struct metric *metric, const json_t *value, const char *names, const char *labels,
			FILE *f)
{
	size_t n = strcspn(names, " "), size;
	const char *key;
	json_t *each;
	char *text;

	if (n) {
		json_object_foreach ((json_t *)value, key, each) {
			FILE *with = open_memstream(&text, &size);

			if (!with)
				return;
			fprintf(with, "%s%s%.*s=\"", labels, *labels ? "," : "", (int)n, names);
			print_escaped(key, with);
			fputc('"', with);
			fclose(with);
			print_value(metric, each, names + n + (names[n] == ' '), text, f);
			free(text);
		}
	} else if (metric->type == METRIC_HISTOGRAM) {
		print_histogram(metric, value, labels, f);
	} else if (json_is_number(value)) {
		print_sample(metric, "", labels, f);
		if (json_is_integer(value))
			fprintf(f, "%" JSON_INTEGER_FORMAT "\n", json_integer_value(value));
		else
			fprintf(f, "%.9g\n", json_real_value(value));
	}
}

/* What dflock says itself: {"up": .., "build_info": {PROGRAM: {VERSION: 1}}}. */
static json_t *own_values(const json_t *answer)
{
	const char *version = json_string_value(json_object_get(answer, "version"));
	json_t *own = json_pack("{s:i,s:{s:{s:i}}}", "up", answer != NULL, "build_info", "dflock", DFLOCK_VERSION, 1);

	if (version)
		json_object_set_new(json_object_get(own, "build_info"), "dflockd", json_pack("{s:i}", version, 1));
	return own;
}

void metrics_print(const json_t *answer, FILE *f)
{
	json_t *own = own_values(answer);

	for (const struct metric *m = metrics_table; m->name; m++) {
		const json_t *value = json_object_get(own, m->name);

		if (!value)
			value = json_object_get(answer, m->name);
		if (!value)
			continue;
		fprintf(f, "# HELP dflock_%s %s\n", m->name, m->help);
		fprintf(f, "# TYPE dflock_%s %s\n", m->name, metric_types[m->type]);
		print_value(m, value, m->labels, "", f);
	}
	json_decref(own);
}

/* --- the command --- */

#define TEXTFILE_NAME    "dflock.prom"
#define TEXTFILE_NEW     ".dflock.prom.new"
#define TEXTFILE_WAIT_MS 5000
#define TEXTFILE_LOOK_MS 20

static const char metrics_doc[] =
	"Prints what the keeper counts, as text for Prometheus; with --textfile, into a file for node_exporter. If no keeper "
	"runs, it says \"dflock_up 0\".\v"
	"The exit status is 0, also if no keeper runs, and 1 if there is one that does not answer (then, too, it says "
	"\"dflock_up 0\"), or if the file cannot be written. dflock(1) lists the metrics.";

/* Waits for another dflock that writes there. 0 or -errno. */
static int textfile_lock(int dir)
{
	const struct timespec pause = {.tv_nsec = TEXTFILE_LOOK_MS * 1000000};
	int64_t until = cli_now_ms() + TEXTFILE_WAIT_MS;

	while (flock(dir, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK || cli_now_ms() > until)
			return -errno;
		nanosleep(&pause, NULL);
	}
	return 0;
}

/* 0 or -errno. */
static int textfile_write(int dir, const json_t *answer)
{
	int fd, ret = 0;
	FILE *f;

	if (unlinkat(dir, TEXTFILE_NEW, 0) && errno != ENOENT)
		return -errno;
	fd = openat(dir, TEXTFILE_NEW, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	f = fdopen(fd, "w");
	if (!f) {
		close(fd);
		return -ENOMEM;
	}
	metrics_print(answer, f);
	if (fflush(f) || ferror(f) || fchmod(fd, 0644)) /* whatever the umask is: node_exporter is another user */
		ret = errno ? -errno : -EIO;
	if (fclose(f) && !ret)
		ret = -errno;
	if (!ret && renameat(dir, TEXTFILE_NEW, dir, TEXTFILE_NAME))
		ret = -errno;
	if (ret)
		unlinkat(dir, TEXTFILE_NEW, 0);
	return ret;
}

static int textfile(const char *path, const json_t *answer)
{
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), ret;

	ret = dir < 0 ? -errno : textfile_lock(dir);
	if (ret == -EWOULDBLOCK)
		cli_error("%s: another process has had a lock on this directory for %d s: " TEXTFILE_NAME
			  " stays as it was",
			  path, TEXTFILE_WAIT_MS / 1000);
	else if (!ret && (ret = textfile_write(dir, answer)))
		cli_error("%s/" TEXTFILE_NAME " cannot be written, and stays as it was: %s", path, strerror(-ret));
	else if (ret)
		cli_error("%s: %s; --textfile takes the directory that node_exporter's "
			  "--collector.textfile.directory names",
			  path, strerror(-ret));
	if (dir >= 0)
		close(dir);
	return ret;
}

int cmd_metrics(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"textfile", 't', "DIR", 0, "write " TEXTFILE_NAME " in this directory, for node_exporter", 0}, {0}};
	char why[CLI_LINE_BYTES];
	const char *dir = NULL;
	bool failed;
	json_t *answer; /* NULL: the keeper is away */
	int ret;

	cli_options(argc, argv, metrics_doc, NULL, known, (void *[]){&dir});
	ret = ask_once(WIRE_METRICS, 0, NULL, &answer, why);
	failed = ret && ret != -ENOENT;
	if (failed)
		cli_error("%s", why);
	ret = 0;
	if (dir)
		ret = textfile(dir, answer);
	else
		metrics_print(answer, stdout);
	json_decref(answer);
	return ret || failed ? CLI_FAILED : CLI_OK;
}
