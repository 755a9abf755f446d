/* store/postgresql/: what store_trouble.h and store_race.h have, a full disk, a standby, and rows that go. */
#include "tests/unit/own_mounts.h"
#include "tests/unit/postgresql_server.h"
#include "tests/unit/store_race.h"
#include "tests/unit/store_trouble.h"

static void proxy_name(struct sockaddr_un *name, const char *folder)
{
	*name = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(name->sun_path, sizeof(name->sun_path), "%.80s/.s.PGSQL.5432", folder);
}

static void trouble_proxy(void)
{
	static char folder[SUITE_PATH_BYTES], info[256];

	suite_make_folder(folder, "/dev/shm");
	snprintf(info, sizeof(info), "host=%s dbname=postgres user=dflock", folder);
	proxy_name(&proxy.at.local, folder);
	proxy_name(&proxy.to.local, pg.dir);
	proxy_start(&proxy);
	config.postgresql = info;
}

static void trouble_clean(void)
{
	sql("update dflock.about set clean_at = '2000-01-01', clean_from = 0");
	ck_assert_int_gt(sql_number("select dflock.clean(100000, 1)"), 0);
	ck_assert_int_eq(sql_number("select count(*) from dflock.cell where value is null"), 0);
}

/* ---- a full disk ---- */

static void fill(const struct pg *s, bool full)
{
	char filler[128], bytes[4096] = "";

	snprintf(filler, sizeof(filler), "%s/filler", s->dir);
	if (!full) {
		ck_assert_int_eq(unlink(filler), 0);
		return;
	}
	int fd = open(filler, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	while (write(fd, bytes, sizeof(bytes)) == sizeof(bytes))
		;
	close(fd);
}

/* The server may end by it: it stops when its log has no room. */
TEST(a_full_disk)
{
	static struct pg small;
	unsigned refused_count = 0;
	char name[32];

	own_mounts_as(getuid()); /* the server does not run as root */
	suite_make_folder(small.dir, "/dev/shm");
	ck_assert_int_eq(mount("none", small.dir, "tmpfs", 0, "size=100m,mode=0777"), 0);
	pg_name(&small);
	pg_shell(&small, "initdb -D data -U postgres --auth=trust --no-sync --locale=C -E UTF8 --wal-segsize=1");
	pg_start(&small);
	PQclear(pg_ask(&small, "create role dflock login"));
	pg_schema(&small);
	config.postgresql = small.info;
	config.connect_ms = SHORT_MS;
	uint64_t fence = start_with_lock();
	fill(&small, true);
	for (unsigned i = 0; i < 20000 && refused_count < 3; i++) {
		snprintf(name, sizeof(name), "lock %u", i);
		refused_count += acquire(&b, 2, WIRE_EXCLUSIVE, w.name = name) != STORE_OK;
	}
	ck_assert_uint_eq(refused_count, 3);
	fill(&small, false);
	if (PQping(small.admin) != PQPING_OK && has_ended(pg_pid(&small)))
		pg_start(&small);
	wait_longer_until(store_is_up(a.store) && store_is_up(b.store));
	ck_assert_uint_eq(a.changes, 1);
	assert_ok(store_confirm(a.store, NAME, token(1), fence, on_answer, &answer));
	ck_assert_int_eq(acquire(&b, 3, WIRE_EXCLUSIVE), STORE_WAIT);
	ck_assert_int_eq(release(&a, 1), STORE_OK);
	ck_assert_int_eq(acquire(&b, 3, WIRE_EXCLUSIVE), STORE_OK);
	ck_assert_uint_gt(answer.reply.fence, fence);
	stop(&a);
	stop(&b);
	pg_stop(&small);
}

/* ---- a list of servers ---- */

/* It takes the connection and says nothing; a machine that is off is as silent. */
TEST(a_silent_server_does_not_hide_the_next_one)
{
	char silent[SUITE_PATH_BYTES], both[300];

	suite_make_folder(silent, "/dev/shm");
	proxy_name(&proxy.at.local, silent);
	proxy_start(&proxy);
	snprintf(both, sizeof(both), "host=%s,%s dbname=postgres user=dflock", silent, pg.dir);
	config.postgresql = both;
	config.connect_ms = 2 * SHORT_MS;
	start(&a, "host-a");
	wait_until(a.ups == 1);
	unsigned downs = a.downs;
	ck_assert_uint_gt(downs, 0);
	sql("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'dflock'");
	wait_until(a.ups == 2);
	ck_assert_uint_eq(a.downs, downs + 1); /* it has begun with the one that had served */
	proxy_end(&proxy);
}

/* ---- locks of the server ---- */

/* a asks for the lock while the connection that is returned has the lock of the fences. */
static PGconn *acquire_behind_fences(void)
{
	PGconn *c = PQconnectdb(pg.admin);
	struct store_acquire one = want(1, WIRE_EXCLUSIVE);

	start_both();
	PQclear(PQexec(c, "select pg_advisory_lock(dflock.fence_lock())"));
	answer = (struct asked){.answers = 0};
	store_acquire(a.store, &one, on_answer, &answer);
	return c;
}

/* Of those that load() takes, none stays. */
TEST(a_second_try_that_waits_leaves_no_lock)
{
	PGconn *c = acquire_behind_fences();

	for (int64_t until = server_clock_ms() + 3000; server_clock_ms() < until;)
		uv_run(&loop, UV_RUN_ONCE);
	PQfinish(c);
	wait_until(answer.answers > 0);
	ck_assert_int_eq(answer.reply.status, STORE_OK);
	ck_assert_int_eq(beat(&a), STORE_OK);
	ck_assert_int_eq(sql_number("select count(*) from pg_locks where locktype = 'advisory'"), 0);
}

TEST(a_statement_that_is_cancelled_is_no_end_of_the_server)
{
	PGconn *c = acquire_behind_fences();

	wait_until((sql("select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'advisory'"),
		    answer.answers > 0));
	PQfinish(c);
	ck_assert_msg(strstr(answer.error, "a statement took too long, or somebody cancelled it") != NULL, "%s",
		      answer.error);
}

static void beat_on(void *arg, const struct store_reply *reply)
{
	struct host *h = arg;

	if (reply->status == STORE_OK)
		store_beat(h->store, 0, 0, beat_on, h);
}

/* More than the server has room for locks of; and another host goes on. */
TEST(a_host_is_given_up_where_there_are_very_many_locks)
{
	struct host c;

	start_both();
	ck_assert_int_eq(beat(&b), STORE_OK);
	ck_assert_int_eq(ask(store_hosts(a.store, on_hosts, &answer)), STORE_OK);
	ck_assert_uint_eq(host_rows, 1);
	sql("insert into dflock.cell (key, name, value, version) select 'dflock:{0}:store', convert_to('=dflock:{0}:lock:' || n, 'UTF8'), "
	    "'x', 1 from generate_series(1, 30000) n");
	start(&c, "host-c");
	wait_until(c.ups == 1);
	beat_on(&c, &(struct store_reply){.status = STORE_OK}); /* all the time */
	assert_ok(store_give_up(a.store, &host_row[0], on_answer, &answer));
	stop(&c);
	ck_assert_int_eq(beat(&b), STORE_GIVEN_UP);
	ck_assert_uint_eq(a.ups, 1);
}

/* ---- cleaning ---- */

TEST(rows_of_names_that_nobody_wants_any_more_go)
{
	char name[32];

	start_both();
	sql("select setval(pg_get_serial_sequence('dflock.cell', 'id'), 1000000000)"); /* as after some months */
	for (unsigned i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "lock %u", i);
		ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE, w.name = name), STORE_OK);
		assert_ok(store_release(a.store, name, token(1), false, on_answer, &answer));
	}
	ck_assert_int_eq(acquire(&a, 2, WIRE_EXCLUSIVE), STORE_OK);
	int64_t before = sql_number("select count(*) from dflock.cell");
	ck_assert_int_gt(before, 600);
	sql("update dflock.about set clean_at = '2000-01-01'");
	wait_until(sql_number("select count(*) from dflock.cell") < 30); /* a keeper looks now and then */
	ck_assert_int_eq(acquire(&b, 3, WIRE_EXCLUSIVE), STORE_WAIT);
	ck_assert_int_eq(acquire(&b, 3, WIRE_EXCLUSIVE, w.name = "lock 7"), STORE_OK);
}

/* ---- many hosts, a server that is killed, a standby that takes its place: exclusion, and fences that rise ---- */

static const unsigned races[][2] = {{1, 1}, {4, 3}}; /* names, and how often it is killed */

static void race_hurt(unsigned n)
{
	pg_stop(&pg);
	pg_start(&pg);
}

TEST_EACH(many_hosts_want_the_same, ROWS(races)) { race(races[_i][0], races[_i][1], race_hurt); }

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

TEST(a_standby_takes_its_place)
{
	int64_t last = server_clock_ms() + 50000;
	enum { BEFORE, AFTER, OPENED } stage = BEFORE;
	char both[400];
	unsigned turns;

	make_standby();
	snprintf(both, sizeof(both), "host=%s,%s dbname=postgres user=dflock target_session_attrs=read-write", pg.dir,
		 standby.dir);
	config.postgresql = both;
	race_begin(4);
	while ((turns = race_turns()) < RACERS * TURNS) {
		ck_assert_msg(server_clock_ms() < last, "only %u turns", turns);
		uv_run(&loop, UV_RUN_ONCE);
		if (stage == BEFORE && turns > RACERS * TURNS / 2) {
			pg_stop(&pg);
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
