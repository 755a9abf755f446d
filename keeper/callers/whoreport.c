/* See who.h. */
#include "keeper/callers/who.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "keeper/callers/picture.h"
#include "keeper/leases/locks.h"

#define PIDS_SHOWN  3 /* of each host */
#define HOSTS_SHOWN 4
#define ID_DIGITS   16

static const char *whoreport_text(const json_t *row, const char *key)
{
	return json_string_value(json_object_get(row, key));
}

static int64_t whoreport_number(const json_t *row, const char *key)
{
	return json_integer_value(json_object_get(row, key));
}

static bool whoreport_is_in_way(const json_t *row, const struct store_range *wanted)
{
	const struct store_range range = picture_read_range(row);

	return range_overlaps(&range, wanted) && (range.mode == WIRE_EXCLUSIVE || wanted->mode == WIRE_EXCLUSIVE);
}

/* The holders that are. A process with several locks counts once. */
static json_t *whoreport_in_way(const json_t *host, const struct store_range *wanted, pid_t but)
{
	json_t *rows = json_array(), *row;
	int64_t last = 0, pid;
	size_t i;

	json_array_foreach (json_object_get(host, "holders"), i, row) {
		pid = whoreport_number(row, "pid");
		if (!whoreport_is_in_way(row, wanted) ||
		    (pid && (pid == last || (pid == but && json_is_true(json_object_get(host, "own"))))))
			continue;
		last = pid;
		json_array_append(rows, row);
	}
	return rows;
}

/* A lease of the host that is, if the host has not told which process uses it. */
static const json_t *whoreport_lease_in_way(const json_t *host, const struct store_range *wanted)
{
	const json_t *lease;
	size_t i;

	if (strcmp(whoreport_text(host, "state"), "answered") != 0 ||
	    whoreport_number(host, "count") != (int64_t)json_array_size(json_object_get(host, "holders")))
		json_array_foreach (json_object_get(host, "leases"), i, lease)
			if (whoreport_is_in_way(lease, wanted))
				return lease;
	return NULL;
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

static void whoreport_add_host(FILE *f, const json_t *host)
{
	const char *name = whoreport_text(host, "host");

	if (json_is_true(json_object_get(host, "own")))
		fprintf(f, "held by this host");
	else
		fprintf(f, "held by host %.*s", whoreport_name_length(name), name);
}

/* Local time; with the date unless that is today's. */
static void whoreport_add_when(FILE *f, const char *before, int64_t since)
{
	time_t then = (time_t)since, now = time(NULL);
	struct tm when, today;
	char shown[64];

	if (since <= 0 || !localtime_r(&then, &when) || !localtime_r(&now, &today))
		return;
	if (strftime(shown, sizeof(shown),
		     when.tm_year == today.tm_year && when.tm_yday == today.tm_yday ? "%H:%M:%S" : "%Y-%m-%d %H:%M:%S",
		     &when))
		fprintf(f, "%s%s", before, shown);
}

static void whoreport_add_job(FILE *f, const char *before, const json_t *job)
{
	int64_t pid = whoreport_number(job, "pid");

	if (!pid)
		fprintf(f, "%sa process that its keeper may not look into", before);
	else if (*whoreport_text(job, "command"))
		fprintf(f, "%spid %" PRId64 " (%s)", before, pid, whoreport_text(job, "command"));
	else
		fprintf(f, "%spid %" PRId64, before, pid);
}

static void whoreport_add_holders(FILE *f, const json_t *rows)
{
	int64_t since = INT64_MAX;
	const json_t *row;
	size_t i;

	json_array_foreach (rows, i, row) {
		if (whoreport_number(row, "since") < since)
			since = whoreport_number(row, "since");
		if (i < PIDS_SHOWN)
			whoreport_add_job(f, ", ", row);
	}
	if (i > PIDS_SHOWN)
		fprintf(f, " and %zu more", i - PIDS_SHOWN);
	whoreport_add_when(f, ", since ", since);
}

static void whoreport_add_unknown(FILE *f, const json_t *host, const json_t *lease)
{
	const char *state = whoreport_text(host, "state");
	const json_t *job = json_object_get(lease, "job");

	if (strcmp(state, "answered") == 0)
		fprintf(f, ", which does not tell its jobs (show_jobs)");
	else if (strcmp(state, "old") == 0)
		fprintf(f, ", job unknown: dflock there is of an older version");
	else if (strcmp(state, "silent") == 0)
		fprintf(f, ", which has not answered");
	if (job) {
		whoreport_add_job(f, "; last known: ", job);
		whoreport_add_when(f, ", which asked for it at ", whoreport_number(job, "since"));
	}
}

/* Where no host has it. */
static void whoreport_add_free(FILE *f, const json_t *report, enum wire_space space)
{
	const json_t *client = json_object_get(report, "client");
	int64_t rest_ms = whoreport_number(json_object_get(report, "resting"), picture_space(space));

	if (json_is_object(client) && whoreport_number(client, "left_ms") < 0)
		fprintf(f, "held by a Redis client (%s...), without an expiry", whoreport_text(client, "token"));
	else if (json_is_object(client))
		fprintf(f, "held by a Redis client (%s...), for another %" PRId64 " s", whoreport_text(client, "token"),
			(whoreport_number(client, "left_ms") + 999) / 1000);
	else if (rest_ms > 0)
		fprintf(f, "free, but it rests for %" PRId64 " s more (at_least_ms)", (rest_ms + 999) / 1000);
	else if (*whoreport_text(report, "error"))
		fprintf(f, "which host has it is not known: %.200s", whoreport_text(report, "error"));
	else
		fprintf(f, "was taken, and is free again");
}

void whoreport_line(const json_t *report, const char *path, const struct store_range *wanted, pid_t but, char *out,
		    size_t size)
{
	FILE *f = fmemopen(out, size - 1, "w");
	const json_t *host;
	size_t i, hosts = 0;

	memset(out, 0, size);
	if (!f)
		return;
	fprintf(f, "%.512s: ", path);
	json_array_foreach (json_object_get(report, "hosts"), i, host) {
		json_t *rows = whoreport_in_way(host, wanted, but);
		const json_t *lease = json_array_size(rows) ? NULL : whoreport_lease_in_way(host, wanted);

		if ((json_array_size(rows) || lease) && hosts++ < HOSTS_SHOWN) {
			fprintf(f, hosts > 1 ? "; " : "");
			whoreport_add_host(f, host);
			if (lease)
				whoreport_add_unknown(f, host, lease);
			else
				whoreport_add_holders(f, rows);
		}
		json_decref(rows);
	}
	if (hosts > HOSTS_SHOWN)
		fprintf(f, "; and by %zu more hosts", hosts - HOSTS_SHOWN);
	else if (!hosts)
		whoreport_add_free(f, report, wanted->space);
	fclose(f);
}
