/* See whoreport.h. */
#include "keeper/callers/whoreport.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "keeper/leases/locks.h"

#define PIDS_SHOWN  3 /* in a line, of each host */
#define HOSTS_SHOWN 4 /* in a line */
#define ID_DIGITS   16

/* --- JSON --- */

static const char *const whoreport_states[] = {
	[WHO_UNASKED] = "unasked", [WHO_OLD] = "old", [WHO_SILENT] = "silent", [WHO_ANSWERED] = "answered"};

/* Lock names may be any bytes. */
static json_t *whoreport_text(const char *s)
{
	json_t *value = json_string(s);

	return value ? value : json_string("(not UTF-8)");
}

static void whoreport_set_range(json_t *object, const struct store_range *range)
{
	json_object_set_new(object, "space", json_string(range->space == WIRE_FLOCK ? "flock" : "record"));
	json_object_set_new(object, "mode", json_string(range->mode == WIRE_SHARED ? "shared" : "exclusive"));
	json_object_set_new(object, "from", json_integer(range->from));
	json_object_set_new(object, "to", range->to == WIRE_EOF ? json_null() : json_integer(range->to));
}

static json_t *whoreport_job(const struct store_job *job)
{
	return json_pack("{s:i,s:s,s:I}", "pid", job->pid, "command", job->command, "since", (json_int_t)job->since);
}

static json_t *whoreport_entry(const struct store_entry *entry)
{
	json_t *object = json_object();

	whoreport_set_range(object, &entry->range);
	if (entry->waiter)
		json_object_set_new(object, "host", json_string(entry->host));
	else
		json_object_set_new(object, "fence", json_integer((json_int_t)entry->fence));
	if (entry->job.pid)
		json_object_set_new(object, "job", whoreport_job(&entry->job));
	return object;
}

static json_t *whoreport_holder(const struct finding *finding)
{
	json_t *object = whoreport_job(&finding->job);

	whoreport_set_range(object, &finding->range);
	return object;
}

static json_t *whoreport_host(const struct who_report *report, const struct who_host *host)
{
	json_t *leases = json_array(), *holders = json_array();

	for (size_t i = 0; i < report->entry_count; i++)
		if (!report->entries[i].waiter && strcmp(report->entries[i].host, host->host) == 0)
			json_array_append_new(leases, whoreport_entry(&report->entries[i]));
	for (size_t i = 0; i < host->shown; i++)
		json_array_append_new(holders, whoreport_holder(&host->holders[i]));
	return json_pack("{s:s,s:b,s:s,s:I,s:o,s:o}", "host", host->host, "own", host->own, "state",
			 whoreport_states[host->state], "count", (json_int_t)host->count, "leases", leases, "holders",
			 holders);
}

static json_t *whoreport_client(const struct who_report *report)
{
	if (!*report->aside.client)
		return json_null();
	return json_pack("{s:s,s:I}", "token", report->aside.client, "left_ms", (json_int_t)report->aside.client_ms);
}

json_t *whoreport_json(const struct who_report *report)
{
	json_t *hosts = json_array(), *waiting = json_array(), *resting = json_object();

	for (size_t i = 0; i < report->host_count; i++) {
		json_t *host = whoreport_host(report, report->hosts[i]);

		if (json_array_size(json_object_get(host, "leases")) || report->hosts[i]->count)
			json_array_append(hosts, host);
		json_decref(host);
	}
	for (size_t i = 0; i < report->entry_count; i++)
		if (report->entries[i].waiter)
			json_array_append_new(waiting, whoreport_entry(&report->entries[i]));
	for (int space = 0; space < WIRE_SPACES; space++)
		if (report->aside.rest_ms[space] > 0)
			json_object_set_new(resting, space == WIRE_FLOCK ? "flock" : "record",
					    json_integer(report->aside.rest_ms[space]));
	return json_pack("{s:o,s:b,s:s,s:o,s:o,s:o,s:o,s:I}", "name", whoreport_text(report->name), "protected",
			 report->is_protected, "error", report->why, "hosts", hosts, "waiting", waiting, "resting",
			 resting, "client", whoreport_client(report), "left_out", (json_int_t)report->left_out);
}

/* --- the line --- */

struct whoreport_line {
	char *out;
	size_t size, used;
};

static void __attribute__((format(printf, 2, 3))) whoreport_add(struct whoreport_line *line, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line->out + line->used, line->size - line->used, format, args);
	va_end(args);
	line->used += n > 0 ? (size_t)n : 0;
	if (line->used >= line->size)
		line->used = line->size - 1;
}

/* The id of a host is its name and 16 digits: people know it by its name. */
static int whoreport_name_length(const char *host)
{
	size_t n = strlen(host);

	return (int)(n > ID_DIGITS + 1 && host[n - ID_DIGITS - 1] == '-' &&
				     strspn(host + n - ID_DIGITS, "0123456789abcdef") == ID_DIGITS
			     ? n - ID_DIGITS - 1
			     : n);
}

static void whoreport_add_host(struct whoreport_line *line, const struct who_host *host)
{
	if (host->own)
		whoreport_add(line, "held by this host");
	else
		whoreport_add(line, "held by host %.*s", whoreport_name_length(host->host), host->host);
}

/* Local time; with the date unless that is today's. */
static void whoreport_add_when(struct whoreport_line *line, const char *before, int64_t since)
{
	time_t then = (time_t)since, now = time(NULL);
	struct tm when, today;
	char text[64];

	if (since <= 0 || !localtime_r(&then, &when) || !localtime_r(&now, &today))
		return;
	if (strftime(text, sizeof(text),
		     when.tm_year == today.tm_year && when.tm_yday == today.tm_yday ? "%H:%M:%S" : "%Y-%m-%d %H:%M:%S",
		     &when))
		whoreport_add(line, "%s%s", before, text);
}

static void whoreport_add_job(struct whoreport_line *line, const struct store_job *job)
{
	if (job->pid && *job->command)
		whoreport_add(line, "pid %d (%s)", job->pid, job->command);
	else if (job->pid)
		whoreport_add(line, "pid %d", job->pid);
	else
		whoreport_add(line, "a process that its keeper may not look into");
}

static bool whoreport_clashes(const struct store_range *range, const struct store_range *wanted)
{
	return range_overlaps(range, wanted) && (range->mode == WIRE_EXCLUSIVE || wanted->mode == WIRE_EXCLUSIVE);
}

/* A process with several locks counts once. */
static bool whoreport_is_in_way(const struct who_host *host, size_t i, const struct store_range *wanted, pid_t but)
{
	const struct finding *h = &host->holders[i];

	if (!whoreport_clashes(&h->range, wanted) || (host->own && but && h->job.pid == but))
		return false;
	return !(i > 0 && h->job.pid && host->holders[i - 1].job.pid == h->job.pid &&
		 whoreport_clashes(&host->holders[i - 1].range, wanted));
}

static bool whoreport_add_holders(struct whoreport_line *line, const struct who_host *host,
				  const struct store_range *wanted, pid_t but)
{
	int64_t since = INT64_MAX;
	size_t count = 0;

	for (size_t i = 0; i < host->shown; i++) {
		if (!whoreport_is_in_way(host, i, wanted, but))
			continue;
		if (count++ == 0)
			whoreport_add_host(line, host);
		if (host->holders[i].job.since < since)
			since = host->holders[i].job.since;
		if (count > PIDS_SHOWN)
			continue;
		whoreport_add(line, ", ");
		whoreport_add_job(line, &host->holders[i].job);
	}
	if (count > PIDS_SHOWN)
		whoreport_add(line, " and %zu more", count - PIDS_SHOWN);
	if (count)
		whoreport_add_when(line, ", since ", since);
	return count > 0;
}

static const struct store_entry *whoreport_lease(const struct who_report *report, const struct who_host *host,
						 const struct store_range *wanted)
{
	for (size_t i = 0; i < report->entry_count; i++) {
		const struct store_entry *e = &report->entries[i];

		if (!e->waiter && strcmp(e->host, host->host) == 0 && whoreport_clashes(&e->range, wanted))
			return e;
	}
	return NULL;
}

/* The host has a lease, and which process uses it was not told. */
static bool whoreport_add_unknown(struct whoreport_line *line, const struct who_report *report,
				  const struct who_host *host, const struct store_range *wanted)
{
	const struct store_entry *e = whoreport_lease(report, host, wanted);

	if (!e || (host->state == WHO_ANSWERED && host->count == host->shown))
		return false;
	whoreport_add_host(line, host);
	if (host->state == WHO_ANSWERED)
		whoreport_add(line, ", which does not tell its jobs (show_jobs)");
	else if (host->state == WHO_OLD)
		whoreport_add(line, ", job unknown: dflock there is of an older version");
	else if (host->state == WHO_SILENT)
		whoreport_add(line, ", which has not answered");
	if (e->job.pid) {
		whoreport_add(line, "; last known: ");
		whoreport_add_job(line, &e->job);
		whoreport_add_when(line, ", which asked for it at ", e->job.since);
	}
	return true;
}

void whoreport_line(const struct who_report *report, const char *path, const struct store_range *wanted, pid_t but,
		    char *out, size_t size)
{
	struct whoreport_line line = {.out = out, .size = size};
	size_t hosts = 0, more = 0;

	whoreport_add(&line, "%.512s: ", path);
	for (size_t i = 0; i < report->host_count; i++) {
		size_t before = line.used;

		if (hosts)
			whoreport_add(&line, "; ");
		if (!whoreport_add_holders(&line, report->hosts[i], wanted, but) &&
		    !whoreport_add_unknown(&line, report, report->hosts[i], wanted)) {
			line.used = before;
			continue;
		}
		if (hosts++ < HOSTS_SHOWN)
			continue;
		line.used = before;
		more++;
	}
	out[line.used] = '\0';
	if (more)
		whoreport_add(&line, "; and by %zu more hosts", more);
	else if (!hosts && *report->aside.client && report->aside.client_ms < 0)
		whoreport_add(&line, "held by a Redis client (%s...), without an expiry", report->aside.client);
	else if (!hosts && *report->aside.client)
		whoreport_add(&line, "held by a Redis client (%s...), for another %" PRId64 " s", report->aside.client,
			      (report->aside.client_ms + 999) / 1000);
	else if (!hosts && report->aside.rest_ms[wanted->space] > 0)
		whoreport_add(&line, "free, but it rests for %" PRId64 " s more (at_least_ms)",
			      (report->aside.rest_ms[wanted->space] + 999) / 1000);
	else if (!hosts && *report->why)
		whoreport_add(&line, "which host has it is not known: %.200s", report->why);
	else if (!hosts)
		whoreport_add(&line, "was taken, and is free again");
}
