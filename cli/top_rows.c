/* See top.h. A row for each lease and each waiter of any host, or for each host. */
#include "cli/top.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/field.h"
#include "cli/show.h"
#include "cli/status.h"

struct top_view top;

/* NULL without memory: the row is left out. */
static struct top_row *top_add(const char *lock, const char *host)
{
	struct top_row *rows = top.rows, *row;

	if (top.count == top.room) {
		top.room = top.room ? 2 * top.room : 64;
		rows = reallocarray(top.rows, top.room, sizeof(*rows));
		if (!rows) {
			top.room = top.count;
			return NULL;
		}
		top.rows = rows;
	}
	row = &rows[top.count++];
	*row = (struct top_row){.lock = lock};
	snprintf(row->text[TOP_LOCK], TOP_TEXT_BYTES, "%s", lock);
	snprintf(row->text[TOP_HOST], TOP_TEXT_BYTES, "%s", host);
	return row;
}

/* Rows that the filter leaves out go again. */
static void top_filter(struct top_row *row)
{
	for (size_t i = 0; row && *top.filter && i < TOP_COLUMNS; i++)
		if (strcasestr(row->text[i], top.filter))
			return;
	if (row && *top.filter)
		top.count--;
}

/* A lease, or with place a waiter. */
static void top_add_entry(const char *lock, const json_t *entry, unsigned place)
{
	const json_t *job = json_object_get(entry, "job");
	struct top_row *row = top_add(lock, field_text(entry, "host"));
	char range[SHOW_RANGE_BYTES], age[SHOW_TIME_BYTES];

	if (!row)
		return;
	row->place = place;
	row->color = place ? TOP_WARN : TOP_GOOD;
	row->since = field_number(job, "since");
	if (place)
		snprintf(row->text[TOP_STATE], TOP_TEXT_BYTES, "waits (%u.)", place);
	else
		snprintf(row->text[TOP_STATE], TOP_TEXT_BYTES, "held");
	snprintf(row->text[TOP_WHAT], TOP_TEXT_BYTES, "%s %s, %s", field_text(entry, "space"),
		 field_text(entry, "mode"), show_range(entry, range));
	if (row->since)
		snprintf(row->text[TOP_SINCE], TOP_TEXT_BYTES, "%s", show_ms((time(NULL) - row->since) * 1000, age));
	if (field_number(job, "pid"))
		snprintf(row->text[TOP_BY], TOP_TEXT_BYTES, "pid %" PRId64 " (%s)", field_number(job, "pid"),
			 field_text(job, "command"));
	top_filter(row);
}

static void top_add_lock(const json_t *lock)
{
	const json_t *client = json_object_get(lock, "client"), *entry;
	const char *name = field_text(lock, "name");
	struct top_row *row;
	size_t i;

	json_array_foreach (json_object_get(lock, "leases"), i, entry)
		top_add_entry(name, entry, 0);
	if (json_is_object(client) && (row = top_add(name, "a Redis client"))) {
		row->color = TOP_GOOD;
		strcpy(row->text[TOP_STATE], "held");
		snprintf(row->text[TOP_WHAT], TOP_TEXT_BYTES, "key %s", field_text(client, "key"));
		top_filter(row);
	}
	json_array_foreach (json_object_get(lock, "waiters"), i, entry)
		top_add_entry(name, entry, (unsigned)i + 1);
}

static void top_add_host(const char *host, const json_t *about, int64_t ttl_ms)
{
	bool own = !strcmp(host, field_text(top.doc, "host"));
	struct top_row *row = top_add("", host);
	char age[SHOW_TIME_BYTES];

	if (!row)
		return;
	row->since = field_number(about, "age_ms");
	row->color = row->since > ttl_ms ? TOP_BAD : TOP_GOOD;
	snprintf(row->text[TOP_STATE], TOP_TEXT_BYTES, "%s",
		 row->since > ttl_ms ? "silent"
		 : own               ? "this host"
				     : "beats");
	snprintf(row->text[TOP_SINCE], TOP_TEXT_BYTES, "%s", show_ms(row->since, age));
	snprintf(row->text[TOP_BY], TOP_TEXT_BYTES, "beat %" PRId64, field_number(about, "beat"));
	top_filter(row);
}

static int top_compare(const void *a, const void *b)
{
	const struct top_row *one = a, *other = b;
	int64_t ret = top.sort == TOP_SINCE ? (one->since > other->since) - (one->since < other->since)
					    : strcmp(one->text[top.sort], other->text[top.sort]);

	if (ret == 0)
		ret = strcmp(one->lock, other->lock);
	if (ret == 0)
		return one->place < other->place ? -1 : one->place > other->place;
	return (ret < 0) == !top.down ? -1 : 1;
}

void top_fill(void)
{
	const json_t *cluster = json_object_get(top.doc, "cluster"), *lock;
	const char *host;
	json_t *about;
	size_t i;

	top.count = 0;
	if (top.hosts)
		json_object_foreach (json_object_get(cluster, "hosts"), host, about)
			top_add_host(host, about, field_number(cluster, "ttl_ms"));
	else
		json_array_foreach (json_object_get(cluster, "locks"), i, lock)
			top_add_lock(lock);
	if (top.count)
		qsort(top.rows, top.count, sizeof(*top.rows), top_compare);
	if (top.at < top.count && !strcmp(top.rows[top.at].lock, top.chosen))
		return;
	for (i = 0; i < top.count && *top.chosen; i++)
		if (!strcmp(top.rows[i].lock, top.chosen)) {
			top.at = i;
			return;
		}
	top.at = top.count && top.at >= top.count ? top.count - 1 : top.count ? top.at : 0;
}
