/* store/postgresql/: many hosts want the same, while the server is killed, and while a standby takes its place: exclusion, and fences that rise. */
#include "tests/unit/postgresql_server.h"

#define RACERS 16
#define TURNS  10

enum racer_state {
	RACER_ASKS,
	RACER_WAITS,
	RACER_HOLDS,
	RACER_RECLAIMS,
	RACER_RELEASES,
	RACER_STILL_HAS,
};

static struct racer {
	struct host host;
	char id[16], name[16];
	unsigned turn, number, ups, changes; /* connections, and incarnations, that it has followed */
	uint64_t fence;
	enum racer_state state;
	bool again;
} racers[RACERS];
static struct {
	const struct racer *holder;
	uint64_t fence;
} of[RACERS];

static const char *race_token(const struct racer *r) { return token(r->number * 1000 + r->turn + 1); }

/* Granted: it is alone, and has the largest fence of the name. What was not answered is asked again, with the same token. */
static void race_on(void *arg, const struct store_reply *reply)
{
	struct racer *r = arg;
	size_t n = (size_t)atoi(r->name);

	r->state = RACER_WAITS;
	r->again = reply->status == STORE_UNREACHABLE || reply->status == STORE_GRACE ||
		   reply->status == STORE_INCARNATION;
	if (reply->status == STORE_WAIT || r->again)
		return;
	ck_assert_msg(reply->status == STORE_OK, "%d %s", reply->status, reply->error ? reply->error : "");
	ck_assert_ptr_null(of[n].holder);
	ck_assert_uint_gt(reply->fence, of[n].fence);
	of[n].fence = r->fence = reply->fence;
	of[n].holder = r;
	r->state = RACER_HOLDS;
}

static struct store_acquire race_want(const struct racer *r)
{
	struct store_acquire w = want(0, WIRE_EXCLUSIVE);

	w.name = r->name;
	w.token = race_token(r);
	return w;
}

static void race_ask(struct racer *r)
{
	struct store_acquire w = race_want(r);

	r->state = RACER_ASKS;
	r->again = false;
	r->host.messages = 0;
	r->ups = r->host.ups;
	store_acquire(r->host.store, &w, race_on, r);
}

/* It was confirmed, so it must stand. */
static void race_on_reclaimed(void *arg, const struct store_reply *reply)
{
	struct racer *r = arg;

	r->state = RACER_HOLDS;
	if (reply->status == STORE_OK)
		return;
	ck_assert_msg(reply->status == STORE_UNREACHABLE || reply->status == STORE_INCARNATION, "%d", reply->status);
	r->changes = 0;
}

static void race_reclaim(struct racer *r)
{
	struct store_acquire w = race_want(r);

	r->state = RACER_RECLAIMS;
	r->changes = r->host.changes;
	store_reclaim(r->host.store, w.name, w.file, w.token, r->fence, &w.range, NULL, race_on_reclaimed, r);
}

static void race_on_released(void *arg, const struct store_reply *reply)
{
	struct racer *r = arg;

	if (reply->status == STORE_UNREACHABLE || reply->status == STORE_INCARNATION) {
		r->state = RACER_STILL_HAS;
		return;
	}
	ck_assert_int_eq(reply->status, STORE_OK);
	if (++r->turn < TURNS)
		race_ask(r);
}

static void race_go_on(struct racer *r)
{
	size_t n = (size_t)atoi(r->name);

	if (r->turn == TURNS || !store_is_up(r->host.store))
		return;
	if (r->state == RACER_HOLDS && r->changes != r->host.changes) {
		race_reclaim(r);
	} else if (r->state == RACER_WAITS &&
		   (r->host.messages || r->again || r->ups != r->host.ups)) { /* granted, perhaps */
		race_ask(r);
	} else if (r->state == RACER_HOLDS || r->state == RACER_STILL_HAS) {
		if (r->state == RACER_HOLDS)
			of[n].holder = NULL;
		r->state = RACER_RELEASES;
		store_release(r->host.store, r->name, race_token(r), false, race_on_released, r);
	} else if (r->state == RACER_WAITS || r->state == RACER_ASKS) {
		r->changes = r->host.changes;
	}
}

static unsigned race_turns(void)
{
	unsigned turns = 0;

	for (struct racer *r = racers; r < racers + RACERS; r++) {
		race_go_on(r);
		turns += r->turn;
	}
	return turns;
}

static void race_begin(unsigned names)
{
	for (unsigned i = 0; i < RACERS; i++) {
		struct racer *r = &racers[i];

		*r = (struct racer){.number = i};
		snprintf(r->id, sizeof(r->id), "racer-%u", i);
		snprintf(r->name, sizeof(r->name), "%u", i % names);
		start(&r->host, r->id);
		wait_until(r->host.ups == 1);
		r->changes = r->host.changes;
	}
	assert_ok(store_open(racers[0].host.store, STORE_OPEN_FORCED, "", on_answer, &answer));
	memset(of, 0, sizeof(of));
	for (unsigned i = 0; i < RACERS; i++)
		race_ask(&racers[i]);
}

static void race_end(void)
{
	for (unsigned i = 0; i < RACERS; i++)
		stop(&racers[i].host);
}

static const struct {
	unsigned names, kills;
	bool sigkill;
} races[] = {{1, 0, false}, {RACERS, 0, false}, {1, 3, false}, {4, 3, true}, {1, 3, true}, {RACERS, 2, true}};

TEST_EACH(many_hosts_want_the_same, ROWS(races))
{
	int64_t last = server_clock_ms() + 50000;
	unsigned kills = 0, turns = 0;

	race_begin(races[_i].names);
	while ((turns = race_turns()) < RACERS * TURNS) {
		ck_assert_msg(server_clock_ms() < last, "only %u turns", turns);
		uv_run(&loop, UV_RUN_ONCE);
		if (kills < races[_i].kills && turns > RACERS * TURNS / 4 * (kills + 1)) {
			if (races[_i].sigkill)
				pg_kill(&pg);
			else
				pg_stop(&pg);
			pg_start(&pg);
			kills++;
		}
	}
	for (unsigned i = 0; i < RACERS; i++)
		ck_assert_uint_eq(racers[i].host.changes, 1); /* it is the same memory */
	race_end();
	ck_assert_uint_eq(kills, races[_i].kills);
}

/* ---- a standby takes its place ---- */

static struct pg standby;

static void make_standby(void)
{
	char conninfo[200];

	pg_prepare(&standby);
	snprintf(conninfo, sizeof(conninfo), "host=%s user=postgres application_name=s1", pg.dir);
	pg_shell(&standby, BIN "pg_basebackup -D data -R -c fast --no-sync -d '%s'", conninfo);
	pg_start(&standby);
	wait_until(sql_number("select count(*) from pg_stat_replication where state = 'streaming'") == 1);
	sql("alter system set synchronous_standby_names = 's1'");
	sql("select pg_reload_conf()");
	wait_until(sql_number("select count(*) from pg_stat_replication where sync_state = 'sync'") == 1);
}

/* It would wait for itself. */
static void promote(void)
{
	PQclear(pg_ask(&standby, "alter system reset synchronous_standby_names"));
	PQclear(pg_ask(&standby, "select pg_promote()"));
	PQclear(pg_ask(&standby, "select pg_reload_conf()"));
}

/* All are there, know the new memory, and have put back what they have. */
static bool race_is_ready(void)
{
	for (struct racer *r = racers; r < racers + RACERS; r++)
		if (!store_is_up(r->host.store) || !store_in_grace(r->host.store) || r->state == RACER_RECLAIMS ||
		    (r->state == RACER_HOLDS && r->changes != r->host.changes) ||
		    strcmp(store_incarnation(r->host.store), store_incarnation(racers[0].host.store)) != 0)
			return false;
	return true;
}

static const unsigned failovers[] = {1, 4, RACERS}; /* names */

TEST_EACH(a_standby_takes_its_place, ROWS(failovers))
{
	int64_t last = server_clock_ms() + 50000;
	enum { BEFORE, AFTER, OPENED } stage = BEFORE;
	char both[400];
	unsigned turns;

	make_standby();
	snprintf(both, sizeof(both), "host=%s,%s dbname=postgres user=dflock target_session_attrs=read-write", pg.dir,
		 standby.dir);
	config.postgresql = both;
	race_begin(failovers[_i]);
	while ((turns = race_turns()) < RACERS * TURNS) {
		ck_assert_msg(server_clock_ms() < last, "only %u turns", turns);
		uv_run(&loop, UV_RUN_ONCE);
		if (stage == BEFORE && turns > RACERS * TURNS / 2) {
			pg_kill(&pg);
			promote();
			stage = AFTER;
		} else if (stage == AFTER && race_is_ready()) {
			assert_ok(store_open(racers[0].host.store, STORE_OPEN_WATCHED, "", on_answer, &answer));
			stage = OPENED;
		}
	}
	ck_assert_int_eq(stage, OPENED);
	for (unsigned i = 0; i < RACERS; i++)
		ck_assert_uint_eq(racers[i].host.changes, 2); /* another memory, once */
	race_end();
	pg_remove(&standby);
	pg_start(&pg);
	sql("alter system reset synchronous_standby_names");
	sql("select pg_reload_conf()");
}
