/* store/postgresql/: many hosts want the same, while the server is killed, and while a standby takes its place: exclusion, and fences that rise. */
#include "tests/unit/postgresql_server.h"
#include "tests/unit/store_race.h"

static const struct {
	unsigned names, kills;
	bool sigkill;
} races[] = {{1, 0, false}, {RACERS, 0, false}, {1, 3, false}, {4, 3, true}, {1, 3, true}, {RACERS, 2, true}};

static bool race_sigkill;

static void race_hurt(unsigned n)
{
	if (race_sigkill)
		pg_kill(&pg);
	else
		pg_stop(&pg);
	pg_start(&pg);
}

TEST_EACH(many_hosts_want_the_same, ROWS(races))
{
	race_sigkill = races[_i].sigkill;
	race(races[_i].names, races[_i].kills, race_hurt);
}

/* ---- a standby takes its place ---- */

static struct pg standby;

static void make_standby(void)
{
	char conninfo[200];

	pg_prepare(&standby);
	snprintf(conninfo, sizeof(conninfo), "host=%s user=postgres application_name=s1", pg.dir);
	pg_shell(&standby, "pg_basebackup -D data -R -c fast --no-sync -d '%s'", conninfo);
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
