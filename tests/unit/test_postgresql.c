/* store/postgresql/: store.h against a PostgreSQL server of one's own, on a Unix socket, run by an ordinary user. */
#define STORE_HOSTS_OTHER_SERVER
#include "tests/unit/store_course.h"

#include <libpq-fe.h>

#define BIN "/usr/lib/postgresql/15/bin/"

static char dir[SUITE_PATH_BYTES], info[256], admin[256]; /* for the least of roles; for the one that has made the server */
static pid_t server_pid, server_parent;

/* As an ordinary user, whom the folder belongs to: the server refuses root. */
__attribute__((format(printf, 1, 2))) static void shell(const char *format, ...)
{
	char command[1024], whole[1200];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	snprintf(whole, sizeof(whole), "cd %s && %s %s >>log 2>&1", dir,
		 getuid() ? "" : "setpriv --reuid=65534 --regid=65534 --clear-groups", command);
	ck_assert_msg(system(whole) == 0, "%s: see %s/log", whole, dir);
}

static void start_postgresql(void)
{
	server_parent = getpid();
	server_pid = fork();
	if (server_pid == 0) {
		char data[128];

		prctl(PR_SET_PDEATHSIG, SIGQUIT);
		snprintf(data, sizeof(data), "%s/data", dir);
		if (!getuid() && (setgid(65534) != 0 || setuid(65534) != 0))
			_exit(126);
		prctl(PR_SET_PDEATHSIG, SIGQUIT);
		if (chdir(dir) != 0)
			_exit(126);
		int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
		dup2(log, 1);
		dup2(log, 2);
		execl(BIN "postgres", "postgres", "-D", data, "-k", dir, "-c", "listen_addresses=", NULL);
		_exit(127);
	}
	for (int64_t limit = server_clock_ms() + 60000;;) {
		PGconn *c = PQconnectdb(admin);
		bool good = PQstatus(c) == CONNECTION_OK;

		PQfinish(c);
		if (good)
			return;
		ck_assert(server_clock_ms() < limit);
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	}
}

static void stop_postgresql(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/data/postmaster.pid", dir);
	shell("sh -c 'kill -QUIT $(head -1 data/postmaster.pid)'");
	waitpid(server_pid, NULL, 0); /* of a test's own */
	for (int64_t limit = server_clock_ms() + 30000; access(path, F_OK) == 0;)
		ck_assert(server_clock_ms() < limit);
}

static void sql(const char *text)
{
	PGconn *c = PQconnectdb(admin);
	PGresult *result;

	PQclear(PQexec(c, "set client_min_messages = warning"));
	result = PQexec(c, text);

	ck_assert_msg(PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK, "%s: %s",
		      text, PQerrorMessage(c));
	PQclear(result);
	PQfinish(c);
}

static void make_server(void)
{
	suite_make_folder(dir, "/dev/shm");
	ck_assert(getuid() != 0 || chown(dir, 65534, 65534) == 0);
	snprintf(info, sizeof(info), "host=%s dbname=postgres user=dflock", dir);
	snprintf(admin, sizeof(admin), "host=%s dbname=postgres user=postgres", dir);
	shell(BIN "initdb -D data -U postgres --auth=trust --no-sync --locale=C -E UTF8");
	start_postgresql();
	sql("create role dflock login");
}

static void remove_server(void)
{
	if (PQping(admin) == PQPING_OK)
		stop_postgresql();
	char command[256];
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	ck_assert_int_eq(system(command), 0);
}

static void begin(void)
{
	char command[512];

	signal(SIGPIPE, SIG_IGN);
	if (PQping(admin) != PQPING_OK) /* it ended with a test that had one of its own */
		start_postgresql();
	sql("drop schema if exists dflock cascade");
	snprintf(command, sizeof(command),
		 "psql -q -v ON_ERROR_STOP=1 -v role=dflock -f store/postgresql/schema.sql '%s'", admin);
	ck_assert_int_eq(system(command), 0);
	config = (struct config_store){.postgresql = info, .connect_ms = 5000};
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	uv_timer_init(&loop, &tick);
	uv_timer_start(&tick, on_tick, 2, 2);
	a = b = (struct host){.id = ""};
}

static void end(void)
{
	stop(&a);
	stop(&b);
	uv_close((uv_handle_t *)&tick, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	if (server_parent == getpid()) /* it would end with this test: be sure that it has */
		stop_postgresql();
}
FIXTURE_ONCE(make_server, remove_server)
FIXTURE(begin, end)

/* ---- many hosts at once ---- */

#define RACERS 8
#define TURNS  30

static struct racer {
	struct host host;
	char id[16], name[16];
	unsigned turn, number;
	enum { RACER_ASKS, RACER_WAITS, RACER_HOLDS, RACER_RELEASES, RACER_STILL_HAS } state;
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
	r->host.messages += reply->status == STORE_UNREACHABLE;
	if (reply->status == STORE_WAIT || reply->status == STORE_UNREACHABLE)
		return;
	ck_assert_msg(reply->status == STORE_OK, "%d %s", reply->status, reply->error ? reply->error : "");
	ck_assert_ptr_null(of[n].holder);
	ck_assert_uint_gt(reply->fence, of[n].fence);
	of[n].fence = reply->fence;
	of[n].holder = r;
	r->state = RACER_HOLDS;
}

static void race_ask(struct racer *r)
{
	struct store_acquire w = want(0, WIRE_EXCLUSIVE);

	w.name = r->name;
	w.token = race_token(r);
	r->state = RACER_ASKS;
	store_acquire(r->host.store, &w, race_on, r);
}

static void race_on_released(void *arg, const struct store_reply *reply)
{
	struct racer *r = arg;

	if (reply->status == STORE_UNREACHABLE) {
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
	if (r->state == RACER_WAITS && r->host.messages) { /* granted; or it is an old one */
		r->host.messages = 0;
		race_ask(r);
	} else if (r->state == RACER_HOLDS || r->state == RACER_STILL_HAS) {
		if (r->state == RACER_HOLDS)
			of[n].holder = NULL;
		r->state = RACER_RELEASES;
		store_release(r->host.store, r->name, race_token(r), false, race_on_released, r);
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

static const struct {
	bool names;
	unsigned kills;
} races[] = {{.names = false}, {.names = true}, {.names = false, .kills = 3}, {.names = true, .kills = 3}};

TEST_EACH(many_hosts_want_the_same, ROWS(races))
{
	int64_t last = server_clock_ms() + 50000;
	unsigned kills = 0, turns = 0;

	for (unsigned i = 0; i < RACERS; i++) {
		struct racer *r = &racers[i];

		*r = (struct racer){.number = i};
		snprintf(r->id, sizeof(r->id), "racer-%u", i);
		snprintf(r->name, sizeof(r->name), "%u", races[_i].names ? i : 0);
		start(&r->host, r->id);
		wait_until(r->host.ups == 1);
	}
	assert_ok(store_open(racers[0].host.store, STORE_OPEN_FORCED, "", on_answer, &answer));
	memset(of, 0, sizeof(of));
	for (unsigned i = 0; i < RACERS; i++)
		race_ask(&racers[i]);
	while ((turns = race_turns()) < RACERS * TURNS) {
		ck_assert_msg(server_clock_ms() < last, "only %u turns", turns);
		uv_run(&loop, UV_RUN_ONCE);
		if (kills < races[_i].kills && turns > RACERS * TURNS / 4 * (kills + 1)) {
			stop_postgresql();
			start_postgresql();
			kills++;
		}
	}
	for (unsigned i = 0; i < RACERS; i++)
		stop(&racers[i].host);
	ck_assert_uint_eq(kills, races[_i].kills);
}

/* ---- what is refused ---- */

static const struct {
	const char *sql, *line;
} wrongs[] = {
	{"update dflock.about set format = 2", "its schema is of a newer dflock"},
	{"drop schema dflock cascade", "it has no schema dflock, or half of one: run postgresql.sql"},
	{"drop function dflock.load", "it has half a schema: stop all hosts"},
	{"delete from dflock.about", "its table dflock.about has not one row"},
	{"alter role dflock set default_transaction_read_only = on", "it may only be read"},
	{"revoke update on dflock.cell from dflock", "the role lacks a right, which"},
};

TEST_EACH(what_will_not_do_is_refused, ROWS(wrongs))
{
	sql(wrongs[_i].sql);
	refused(&a, wrongs[_i].line);
	sql("alter role dflock reset all");
}

/* ---- what was lost ---- */

TEST(a_wait_for_a_standby_that_was_cancelled_is_no_answer)
{
	start_both();
	sql("alter system set synchronous_standby_names = 'nobody'");
	sql("select pg_reload_conf()");
	struct store_acquire once = want(1, WIRE_EXCLUSIVE);
	answer = (struct asked){.answers = 0};
	store_acquire(a.store, &once, on_answer, &answer);
	wait_until((sql("select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'"),
		    answer.answers > 0));
	ck_assert_int_eq(answer.reply.status, STORE_UNREACHABLE);
	ck_assert_msg(strstr(answer.error, "a wait for a standby was cancelled") != NULL, "%s", answer.error);
	sql("alter system reset all");
	sql("select pg_reload_conf()");
	wait_until(a.ups == 2);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
}

TEST(a_server_that_was_killed_keeps_what_it_said)
{
	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	uint64_t fence = answer.reply.fence;
	stop_postgresql();
	start_postgresql();
	wait_until(a.ups == 2 && b.ups == 2);
	ck_assert_uint_eq(a.changes, 1);
	assert_ok(store_confirm(a.store, NAME, token(1), fence, on_answer, &answer));
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_WAIT);
}

TEST(a_folder_from_before_is_another_memory)
{
	start_both();
	stop_postgresql();
	shell("cp -a data before");
	start_postgresql();
	wait_until(a.ups == 2 && b.ups == 2);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	for (unsigned i = 0; i < 300; i++) /* what a recovery writes is more than a lock */
		ck_assert_int_eq(beat(&a), STORE_OK);
	stop_postgresql();
	shell("rm -rf data");
	shell("mv before data");
	start_postgresql();
	wait_until(a.changes == 2 && a.ups == 3 && b.ups >= 3);
	ck_assert(store_in_grace(a.store));
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_GRACE);
}
