/* dflock status: which hosts hold and await which locks. */
#include "cli/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/field.h"
#include "cli/show.h"

#define REST_MAX_MS INT64_C(2592000000) /* the longest at_least_ms */

struct cluster {
	const json_t *hosts;
	const char *own;
	int64_t ttl_ms;
};

/* Silent for longer than a lease lasts: a host that wants its leases gets them after one ttl of watching. */
static bool is_silent(const struct cluster *c, const char *host)
{
	const json_t *about = json_object_get(c->hosts, host);

	return !json_is_object(about) || field_number(about, "age_ms") > c->ttl_ms;
}

static const char *describe_host(const struct cluster *c, const char *host, char *out, size_t size)
{
	const json_t *about = json_object_get(c->hosts, host);
	char age[SHOW_TIME_BYTES];

	if (!strcmp(host, c->own))
		snprintf(out, size, "%s (this host)", host);
	else if (!json_is_object(about))
		snprintf(out, size, "%s (never heard of)", host);
	else if (is_silent(c, host))
		snprintf(out, size, "%s (silent for %s)", host, show_ms(field_number(about, "age_ms"), age));
	else
		snprintf(out, size, "%s", host);
	return out;
}

static bool concerns_the_living(const struct cluster *c, const json_t *lock)
{
	static const char *const lists[] = {"leases", "waiters"};
	const json_t *entry;
	size_t i;

	if (json_object_size(json_object_get(lock, "resting")))
		return true;
	for (int l = 0; l < 2; l++)
		json_array_foreach (json_object_get(lock, lists[l]), i, entry)
			if (!is_silent(c, field_text(entry, "host")))
				return true;
	return false;
}

/* By this machine's clock: the store says how long it still rests. */
static void add_rests(struct grid *grid, const json_t *lock)
{
	char when[SHOW_TIME_BYTES], time_left[SHOW_TIME_BYTES];
	const char *space;
	json_t *left;

	json_object_foreach (json_object_get(lock, "resting"), space, left) {
		int64_t ms = json_integer_value(left);

		if (ms <= 0 || ms > REST_MAX_MS)
			continue;
		grid_cell(grid, "    resting");
		grid_cell(grid, "until %s", show_when(time(NULL) + (ms + 999) / 1000, when));
		grid_cell(grid, "%s", space);
		grid_cell(grid, "%s more", show_ms(ms, time_left));
		grid_cell(grid, "%s", "");
	}
}

/* The program whose question got the lease: it may have ended since, and others of its host may use the lease. */
static void add_job(struct grid *grid, const json_t *entry)
{
	const json_t *job = json_object_get(entry, "job");
	char when[SHOW_TIME_BYTES];

	if (field_number(job, "pid"))
		grid_cell(grid, "asked for by pid %" PRId64 " (%s), %s", field_number(job, "pid"),
			  field_text(job, "command"), show_when(field_number(job, "since"), when));
	else
		grid_cell(grid, "%s", "");
}

/* A program that has the lock by its key (redis_key). */
static void add_client(struct grid *grid, const json_t *client)
{
	char left[SHOW_TIME_BYTES];

	if (!json_is_object(client))
		return;
	grid_cell(grid, "    held");
	grid_cell(grid, "a Redis client (%s...)", field_text(client, "token"));
	grid_cell(grid, "key %s", field_text(client, "key"));
	if (field_number(client, "left_ms") < 0)
		grid_cell(grid, "without an expiry");
	else
		grid_cell(grid, "for another %s", show_ms(field_number(client, "left_ms"), left));
	grid_cell(grid, "%s", "");
}

static void add_lock(struct grid *grid, const struct cluster *c, const json_t *lock)
{
	char host[512];
	const json_t *entry;
	size_t i;

	grid_note(grid, "%s", field_text(lock, "name"));
	json_array_foreach (json_object_get(lock, "leases"), i, entry) {
		grid_cell(grid, "    held");
		grid_cell(grid, "%s", describe_host(c, field_text(entry, "host"), host, sizeof(host)));
		status_leases_add_range(grid, entry);
		grid_cell(grid, "fence %" PRId64, field_number(entry, "fence"));
		add_job(grid, entry);
	}
	add_client(grid, json_object_get(lock, "client"));
	add_rests(grid, lock);
	json_array_foreach (json_object_get(lock, "waiters"), i, entry) {
		grid_cell(grid, "    waits (%zu.)", i + 1);
		grid_cell(grid, "%s", describe_host(c, field_text(entry, "host"), host, sizeof(host)));
		status_leases_add_range(grid, entry);
		grid_cell(grid, "%s", "");
		add_job(grid, entry);
	}
}

static void print_hosts(const struct cluster *c, FILE *f)
{
	struct grid *grid = grid_new(2);
	const char *host;
	json_t *about;

	fprintf(f, "\nhosts, and how long ago they were heard of\n");
	json_object_foreach ((json_t *)c->hosts, host, about) {
		char age[SHOW_TIME_BYTES];

		grid_cell(grid, "    %s%s", host, strcmp(host, c->own) ? "" : " (this host)");
		grid_cell(grid, "%s", show_ms(field_number(about, "age_ms"), age));
	}
	grid_print(grid, f);
	grid_free(grid);
}

void status_cluster_print(const json_t *cluster, const char *own, bool all, FILE *f)
{
	struct cluster c = {json_object_get(cluster, "hosts"), own, field_number(cluster, "ttl_ms")};
	size_t count, left_out = 0, living = 0;
	json_t **list = field_sorted(json_object_get(cluster, "locks"), "name", "", &count);
	struct grid *grid = grid_new(5);
	const char *host;
	json_t *about;

	json_object_foreach ((json_t *)c.hosts, host, about)
		living += !is_silent(&c, host);
	fprintf(f, "\ncluster: %zu active host%s%s, %zu lock name%s\n", living, living == 1 ? "" : "s",
		field_flag(cluster, "open") ? "" : ", in grace", count, count == 1 ? "" : "s");
	for (size_t i = 0; i < count; i++) {
		if (all || concerns_the_living(&c, list[i]))
			add_lock(grid, &c, list[i]);
		else
			left_out++;
	}
	grid_print(grid, f);
	if (left_out)
		fprintf(f, "(--all shows %zu more, which only silent hosts have: until another host wants them)\n",
			left_out);
	if (all)
		print_hosts(&c, f);
	grid_free(grid);
	free(list);
}
