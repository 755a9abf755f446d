/* See metrics.h. */
#include "keeper/callers/metrics.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/callers/configfile.h"
#include "keeper/callers/listener.h"
#include "keeper/callers/picture.h"
#include "keeper/callers/session.h"
#include "keeper/clock.h"
#include "keeper/guard/deeds.h"
#include "keeper/leases/keeper.h"

static void set_number(json_t *doc, const char *key, uint64_t n)
{
	json_object_set_new(doc, key, json_integer((json_int_t)n));
}

static double seconds(int64_t ns)
{
	return (double)ns / 1e9;
}

/* An object for the values of one metric. */
static json_t *set_group(json_t *doc, const char *key)
{
	json_t *group = json_object();

	json_object_set_new(doc, key, group);
	return group; /* the document's; NULL if there is no memory: then what is set in it is left out */
}

static void set_counts(json_t *doc, const char *key, const char *const *names, const uint64_t *counts, size_t n)
{
	json_t *group = set_group(doc, key);

	for (size_t i = 0; i < n; i++)
		set_number(group, names[i], counts[i]);
}

static void set_by_space(json_t *doc, const char *key, const uint64_t counts[WIRE_SPACES])
{
	static const char *const spaces[WIRE_SPACES] = {[WIRE_FLOCK] = "flock", [WIRE_RECORD] = "record"};

	set_counts(doc, key, spaces, counts, WIRE_SPACES);
}

static json_t *histogram_json(const struct histogram *h)
{
	json_t *le = json_array(), *counts = json_array();
	size_t count;
	const int64_t *bounds = histogram_bounds(h, &count);

	for (size_t i = 0; i < count; i++)
		json_array_append_new(le, json_real(seconds(bounds[i])));
	for (size_t i = 0; i <= count; i++)
		json_array_append_new(counts, json_integer((json_int_t)h->counts[i]));
	return json_pack("{s:o,s:o,s:f}", "le", le, "counts", counts, "sum", (double)h->sum_ns / 1e9);
}

static void set_histograms(json_t *doc, const char *key, const struct histogram histograms[WIRE_SPACES])
{
	json_t *group = set_group(doc, key);

	for (int i = 0; i < WIRE_SPACES; i++)
		json_object_set_new(group, picture_space(i), histogram_json(&histograms[i]));
}

/* --- what is counted --- */

static void set_callers(json_t *doc, const struct keeper *k)
{
	static const char *const refusals[REFUSALS] = {
		[REFUSAL_STORE] = "store",     [REFUSAL_GRACE] = "grace",     [REFUSAL_ROOM] = "room",
		[REFUSAL_FILE] = "file",       [REFUSAL_RULE] = "rule",       [REFUSAL_CONFIG] = "config",
		[REFUSAL_VERSION] = "version", [REFUSAL_PROGRAM] = "program",
	};
	const struct sessions *s = k->sessions;

	set_by_space(doc, "waiters", (const uint64_t[WIRE_SPACES]){s->waiting[WIRE_FLOCK], s->waiting[WIRE_RECORD]});
	set_histograms(doc, "lock_wait_seconds", s->counts.waited);
	set_by_space(doc, "lock_busy_total", s->counts.busy);
	set_counts(doc, "lock_refusals_total", refusals, s->counts.refused, REFUSALS);
	set_number(doc, "lock_deadlocks_total", s->counts.deadlocks);
	set_number(doc, "lock_abandoned_total", s->counts.abandoned);
	set_number(doc, "calls_under_way", seenout_under_way(k));
	set_number(doc, "calls_seen_out_total", k->seenout.seen);
	set_number(doc, "waited_too_long_total", k->sessions->counts.long_waits);
	set_number(doc, "connections", s->count);
	set_number(doc, "connections_max", k->listener->limit);
	set_number(doc, "connections_accepted_total", s->accepted);
}

/* In all stores. */
static unsigned count_leases(const struct keeper *k, int space, int state)
{
	unsigned count = 0;

	for (unsigned i = 0; i < k->member_count; i++)
		count += k->members[i].states.count[space][state];
	return count;
}

static void set_leases(json_t *doc, const struct keeper *k)
{
	static const char *const whys[TABLE_WHYS] = {[TABLE_WHY_UNKNOWN] = "damaged",
						     [TABLE_WHY_TAKEN] = "taken",
						     [TABLE_WHY_FORGOTTEN] = "forgotten",
						     [TABLE_WHY_BROKEN] = "broken",
						     [TABLE_WHY_KEY] = "key"};
	json_t *group = set_group(doc, "leases");
	unsigned shown = 0;

	for (unsigned i = 0; i < k->member_count; i++)
		shown += k->members[i].shown;

	for (int space = 0; space < WIRE_SPACES; space++) {
		json_t *states = set_group(group, picture_space(space));

		for (int i = 0; i < LEASE_ENDED; i++)
			set_number(states, lease_state_name((enum lease_state)i), count_leases(k, space, i));
	}
	set_number(doc, "leases_max", k->room.limit);
	set_number(doc, "page_leases", shown);
	set_by_space(doc, "lease_grants_total", k->act.granted);
	set_histograms(doc, "lease_hold_seconds", k->act.held);
	set_histograms(doc, "lease_recall_seconds", k->act.recalled);
	set_by_space(doc, "handovers_total", k->act.handovers);
	set_counts(doc, "leases_lost_total", whys, k->lost.counts, TABLE_WHYS);
	set_number(doc, "held_too_long_total", k->toolong.warned);
}

static void set_past(json_t *doc, const struct keeper *k)
{
	const struct suspect *s;
	uint64_t count = 0;

	DL_FOREACH (k->past.suspects, s)
		count += s->reported && !s->known->before;
	set_number(doc, "locks_past", count);
	set_number(doc, "taken_past_total", k->past.reported);
}

static void set_deadline(json_t *doc, const struct member *m)
{
	static const char *const results[DEADLINE_BEATS] = {[DEADLINE_BEAT_COUNTED] = "counted",
							    [DEADLINE_BEAT_GIVEN_UP] = "given_up",
							    [DEADLINE_BEAT_REFUSED] = "refused",
							    [DEADLINE_BEAT_UNANSWERED] = "unanswered"};
	int64_t left = m->deadline.at_ns - clock_now_ns();

	set_counts(doc, "beats_total", results, m->deadline.beats, DEADLINE_BEATS);
	json_object_set_new(doc, "deadline_left_seconds",
			    json_real(m->deadline.expired || left < 0 ? 0 : seconds(left)));
	json_object_set_new(doc, "ttl_seconds", json_real(seconds(deadline_ttl_ns(m->keeper))));
}

static void set_store(json_t *doc, const struct member *m)
{
	const struct store_counts *counts = store_counts(m->store);
	json_t *group = set_group(doc, "store_requests_total");

	for (size_t i = 0; i < STORE_OPERATIONS; i++)
		set_number(group, store_operation_name(i), counts->asked[i]);
	group = set_group(doc, "store_request_failures_total");
	set_number(group, "error", counts->errors);
	set_number(group, "unanswered", counts->unanswered);
	json_object_set_new(doc, "store_request_seconds", histogram_json(&counts->took));
	set_number(doc, "store_up", store_is_up(m->store));
	set_number(doc, "store_grace", store_is_up(m->store) && store_in_grace(m->store));
	set_number(doc, "store_connects_total", counts->connected);
	set_number(doc, "store_disconnects_total", counts->broken);
	set_number(doc, "store_memory_losses_total", m->grace.losses);
}

/* Of each store, by its name. */
static void set_stores(json_t *doc, const struct keeper *k)
{
	json_t *up = set_group(doc, "stores_up"), *grace = set_group(doc, "stores_grace");
	json_t *left = set_group(doc, "stores_deadline_left_seconds"), *leases = set_group(doc, "stores_leases");

	for (unsigned i = 0; i < k->member_count; i++) {
		const struct member *m = &k->members[i];
		int64_t left_ns = m->deadline.at_ns - clock_now_ns();
		unsigned count = 0;
		char name[MEMBER_NAME_BYTES];

		if (!m->wanted)
			continue;
		member_name(m, name);
		for (int space = 0; space < WIRE_SPACES; space++)
			for (int state = LEASE_ASKING + 1; state < LEASE_ENDED; state++)
				count += m->states.count[space][state];
		set_number(up, name, store_is_up(m->store));
		set_number(grace, name, store_is_up(m->store) && store_in_grace(m->store));
		json_object_set_new(left, name, json_real(m->deadline.expired || left_ns < 0 ? 0 : seconds(left_ns)));
		set_number(leases, name, count);
	}
}

static void set_rules(json_t *doc, const struct keeper *k)
{
	const struct posting *p = &k->members[0].posting;
	json_t *group = set_group(doc, "rules_hosts");

	set_number(group, "same", p->compared.same);
	set_number(group, "different", p->compared.different);
	set_number(group, "unknown", p->compared.unknown);
	set_number(doc, "rules_compared_timestamp_seconds", (uint64_t)p->compared_at);
	set_number(doc, "config_refused",
		   *k->configfile->why && k->configfile->state != CONFIGFILE_CHANGED); /* changed: it reads it again */
}

static void set_parent(json_t *doc, const struct keeper *k)
{
	static const struct {
		enum deeds_count which;
		const char *reason, *signal;
	} ended[] = {
		{DEEDS_LOST_KILL, "lost", "KILL"},
		{DEEDS_BROKEN_KILL, "broken", "KILL"},
		{DEEDS_STUCK_KILL, "stuck", "KILL"},
		{DEEDS_EXPIRED_TERM, "expired", "TERM"},
		{DEEDS_EXPIRED_KILL, "expired", "KILL"},
		{DEEDS_TOO_LONG_TERM, "held_too_long", "TERM"},
		{DEEDS_TOO_LONG_KILL, "held_too_long", "KILL"},
	};
	json_t *group = set_group(doc, "ended_processes_total");

	for (size_t i = 0; i < sizeof(ended) / sizeof(*ended); i++) {
		json_t *reason = json_object_get(group, ended[i].reason);

		set_number(reason ? reason : set_group(group, ended[i].reason), ended[i].signal,
			   deeds_counted(k->table, ended[i].which));
	}
	set_number(doc, "frozen_processes", table_frozen(k->table));
	set_number(doc, "freezes_total", deeds_counted(k->table, DEEDS_FREEZES));
	set_number(doc, "keeper_restarts_total", deeds_counted(k->table, DEEDS_RESTARTS));
	set_number(doc, "keeper_hangs_total", deeds_counted(k->table, DEEDS_HANGS));
	set_number(doc, "unsupervised", k->unsupervised);
}

json_t *metrics_json(const struct keeper *k)
{
	json_t *doc = json_object();

	if (!doc)
		return NULL;
	json_object_set_new(doc, "version", json_string(DFLOCK_VERSION));
	set_number(doc, "start_time_seconds", (uint64_t)k->started);
	set_leases(doc, k);
	set_callers(doc, k);
	set_past(doc, k);
	set_deadline(doc, &k->members[0]);
	set_store(doc, &k->members[0]);
	set_stores(doc, k);
	set_rules(doc, k);
	set_parent(doc, k);
	return doc;
}

/* --- answers --- */

/* All that have asked get the same. */
static void metrics_answer_all(struct session *asker)
{
	struct keeper *k = asker->keeper;
	json_t *doc = metrics_json(k);
	int fd = doc ? picture_to_memfd(doc) : -1, error = doc ? errno : ENOMEM;
	struct session *s, *next;

	json_decref(doc);
	k->sessions->metrics_ns = clock_now_ns();
	DL_FOREACH_SAFE (k->sessions->all, s, next)
		if (s->state == SESSION_METRICS)
			picture_answer(s, fd, "metrics", error);
	if (fd >= 0)
		close(fd);
	for (unsigned i = 0; i < k->member_count; i++)
		posting_compare(&k->members[i]);
}

void metrics_answer(struct session *s)
{
	int64_t made_ns = s->keeper->sessions->metrics_ns;
	int64_t left_ms = METRICS_PAUSE_MS - (clock_now_ns() - made_ns) / NS_PER_MS;

	session_enter(s, SESSION_METRICS);
	if (made_ns && left_ms > 0)
		session_expect(s, left_ms, metrics_answer_all);
	else
		metrics_answer_all(s);
}
