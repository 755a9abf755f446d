/* See whoreport.h. */
#include "keeper/callers/whoreport.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "keeper/callers/picture.h"
#include "keeper/leases/locks.h"

#define PIDS_SHOWN  3 /* in a line, of each host */
#define HOSTS_SHOWN 4 /* in a line */
#define ID_DIGITS   16

/* --- JSON --- */

static const char *const whoreport_states[] = {
	[WHO_UNASKED] = "unasked", [WHO_OLD] = "old", [WHO_SILENT] = "silent", [WHO_ANSWERED] = "answered"};

static json_t *whoreport_holders(const struct who_host *host)
{
	json_t *holders = json_array();

	for (size_t i = 0; i < host->shown; i++) {
		json_t *holder = picture_job(&host->holders[i].job);

		picture_add_range(holder, &host->holders[i].range);
		json_array_append_new(holders, holder);
	}
	return holders;
}

json_t *whoreport_json(const struct who_report *report)
{
	json_t *hosts = json_array();

	for (size_t i = 0; i < report->host_count; i++) {
		const struct who_host *host = report->hosts[i];
		json_t *leases = picture_entries(report->entries, report->entry_count, false, host->host, false);

		if (json_array_size(leases) || host->count)
			json_array_append_new(hosts, json_pack("{s:s,s:b,s:s,s:I,s:O,s:o}", "host", host->host, "own",
							       host->own, "state", whoreport_states[host->state],
							       "count", (json_int_t)host->count, "leases", leases,
							       "holders", whoreport_holders(host)));
		json_decref(leases);
	}
	return json_pack("{s:i,s:o,s:b,s:s,s:o,s:o,s:o,s:o,s:I}", "schema", PICTURE_SCHEMA, "name",
			 picture_text(report->name), "protected", report->is_protected, "error", report->why, "hosts",
			 hosts, "waiting", picture_entries(report->entries, report->entry_count, true, NULL, false),
			 "resting", picture_rests(&report->aside), "client", picture_client(&report->aside), "left_out",
			 (json_int_t)report->left_out);
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
