/*
 * store/postgresql/: how many statements and commits a lock takes, and what it costs beside a one-row transaction of a plain client of libpq, in
 * turn with it. With SPEED=1 in the environment (make speed-postgresql) it prints what it measured; in the suite it only shows that
 * this runs. PG_PLACE: where the server lies.
 */
#include <dlfcn.h>

#include "tests/unit/postgresql_server.h"

#define MANY 8

static unsigned rounds;

struct samples {
	double us[4096];
	unsigned count;
};

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void sample(struct samples *s, int64_t since_ns)
{
	if (s->count < 4096)
		s->us[s->count++] = (double)(now_ns() - since_ns) / 1000;
}

static int by_size(const void *x, const void *y)
{
	double d = *(const double *)x - *(const double *)y;

	return d < 0 ? -1 : d > 0;
}

static double median_us(struct samples *s)
{
	qsort(s->us, s->count, sizeof(*s->us), by_size);
	double m = s->us[s->count / 2];
	s->count = 0;
	return m;
}

__attribute__((format(printf, 1, 2))) static void report(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (getenv("SPEED"))
		vprintf(format, args);
	va_end(args);
	fflush(stdout);
}

static void choose_rounds(void) { rounds = getenv("SPEED") ? 1000 : 20; }

#define quick_until(condition)                                                                                         \
	while (!(condition))                                                                                           \
	uv_run(&loop, UV_RUN_ONCE)

static void on_timed(void *arg, const struct store_reply *reply)
{
	ck_assert_msg(reply->status == STORE_OK, "%d %s", reply->status, reply->error ? reply->error : "");
	*(bool *)arg = true;
}

/* ---- statements and commits ---- */

static unsigned loads, applies;

/* In place of libpq's. */
int PQsendQueryPrepared(PGconn *conn, const char *name, int count, const char *const *values, const int *lengths, const int *formats,
			int format)
{
	static __typeof__(&PQsendQueryPrepared) next;

	if (!next)
		next = (__typeof__(next))(uintptr_t)dlsym(RTLD_NEXT, "PQsendQueryPrepared");
	loads += strcmp(name, "dflock_load") == 0;
	applies += strcmp(name, "dflock_apply") == 0;
	return next(conn, name, count, values, lengths, formats, format);
}

/* Of transactions that have written something, which is what waits for the disk. */
static long long commits(void)
{
	PGconn *c = PQconnectdb(pg.admin);
	PGresult *result = PQexec(c, "select pg_snapshot_xmax(pg_current_snapshot())");
	long long n = atoll(PQgetvalue(result, 0, 0));

	PQclear(result);
	PQfinish(c);
	return n;
}

#define LOCKS 64
/* A server writes down a sequence once for 32 of its numbers, and there are two; and somebody may clean. */
#define EXTRA (2 * (LOCKS / 32 + 1) + 2)

static void a_lock_is_taken(unsigned i)
{
	ck_assert_int_eq(acquire(&a, 2 * i + 10, WIRE_EXCLUSIVE), STORE_OK);
}

static void a_lock_is_given_back(unsigned i) { ck_assert_int_eq(release(&a, 2 * i + 10), STORE_OK); }

static void another_host_waits(unsigned i)
{
	ck_assert_int_eq(acquire(&b, 2 * i + 11, WIRE_EXCLUSIVE), STORE_WAIT);
	b.messages = 0;
}

static void the_lock_is_handed_over(unsigned i)
{
	a_lock_is_given_back(i);
	wait_until(b.messages > 0);
	ck_assert_int_eq(b.message.kind, STORE_MSG_GRANTED);
}

static void that_one_gives_it_back(unsigned i) { ck_assert_int_eq(release(&b, 2 * i + 11), STORE_OK); }

/* The loads of each step, over all rounds; each commits once. The one that waits looks at the beat of the host in its way, in a second load. */
static const struct {
	void (*step)(unsigned i);
	unsigned loads;
} steps[] = {
	{a_lock_is_taken, 1}, {another_host_waits, 2}, {the_lock_is_handed_over, 1}, {that_one_gives_it_back, 1},
	{a_lock_is_taken, 1}, {a_lock_is_given_back, 1},
};

TEST(a_lock_takes_a_statement_that_reads_and_one_that_commits)
{
	long long before;

	start_both();
	before = commits();
	for (unsigned i = 0; i < LOCKS; i++)
		for (int step = 0; step < ROWS(steps); step++) {
			loads = applies = 0;
			steps[step].step(i);
			ck_assert_msg(loads == steps[step].loads && applies == 1, "step %d: %u, %u", step, loads, applies);
		}
	ck_assert_int_ge(commits() - before, ROWS(steps) * LOCKS);
	ck_assert_int_le(commits() - before, ROWS(steps) * LOCKS + 3 * EXTRA);
}

/* ---- how long they take ---- */

static PGconn *plain;

static void plain_open(void)
{
	sql("drop table if exists one");
	sql("create table one (id int primary key, n bigint)");
	sql("insert into one values (1, 0)");
	sql("grant select, update on one to dflock");
	plain = PQconnectdb(pg.info);
	PQclear(PQexec(plain, "set synchronous_commit = on"));
}

static void plain_close(void)
{
	PQfinish(plain);
	sql("drop table one");
}

static void time_one_row(struct samples *s)
{
	int64_t since = now_ns();

	PGresult *result = PQexec(plain, "update one set n = n + 1 where id = 1");
	ck_assert_int_eq(PQresultStatus(result), PGRES_COMMAND_OK);
	PQclear(result);
	sample(s, since);
}

static void time_first_lock(struct samples *s, unsigned i)
{
	struct store_acquire one = want(1, WIRE_EXCLUSIVE);
	char name[32];
	bool done = false;
	int64_t since = now_ns();

	snprintf(name, sizeof(name), "first %u", i);
	one.name = name;
	store_acquire(a.store, &one, on_timed, &done);
	quick_until(done);
	sample(s, since);
	done = false;
	store_release(a.store, name, token(1), false, on_timed, &done);
	quick_until(done);
}

/* a gives back what b waits for: until b has heard that it has it. */
static void time_hand_over(struct samples *s, unsigned i)
{
	bool done = false;

	a_lock_is_taken(i);
	another_host_waits(i);
	int64_t since = now_ns();
	store_release(a.store, NAME, token(2 * i + 10), false, on_timed, &done);
	quick_until(b.messages > 0);
	sample(s, since);
	ck_assert_int_eq(b.message.kind, STORE_MSG_GRANTED);
	quick_until(done);
	that_one_gives_it_back(i);
}

/* In turn: whatever else the machine does meanwhile, it does to all three. */
static void time_all(const char *where)
{
	static struct samples row, first, over, warm;

	for (unsigned i = 0; i < rounds; i++)
		time_first_lock(&warm, i);
	median_us(&warm);
	for (unsigned i = 0; i < rounds; i++) {
		time_one_row(&row);
		time_first_lock(&first, i);
		time_hand_over(&over, i);
	}
	double row_us = median_us(&row), first_us = median_us(&first), over_us = median_us(&over);
	report("%s: one-row transaction %.0f us; first lock %.0f us, %.1f of it (at most 4, on a disk); hand-over %.0f us, %.1f of it "
	       "(at most 2.5)\n",
	       where, row_us, first_us, first_us / row_us, over_us, over_us / row_us);
}

TEST(a_lock_beside_a_transaction)
{
	choose_rounds();
	start_both();
	plain_open();
	char where[SUITE_PATH_BYTES];

	snprintf(where, sizeof(where), "%.*s", (int)(strrchr(pg.dir, '/') - pg.dir), pg.dir);
	time_all(where);
	plain_close();
}

/* ---- many clients, each with names of its own ---- */

static struct client {
	struct host host;
	char id[16], name[32];
	unsigned turn;
	int64_t since;
} clients[MANY];
static unsigned ended;
static struct samples acquires;

static void client_ask(struct client *c);
static void client_on_released(void *arg, const struct store_reply *reply)
{
	struct client *c = arg;

	ck_assert_int_eq(reply->status, STORE_OK);
	if (++c->turn < rounds / 2)
		client_ask(c);
	else
		ended++;
}

static void client_on(void *arg, const struct store_reply *reply)
{
	struct client *c = arg;

	ck_assert_int_eq(reply->status, STORE_OK);
	sample(&acquires, c->since);
	store_release(c->host.store, c->name, token(1), false, client_on_released, c);
}

static void client_ask(struct client *c)
{
	struct store_acquire w = want(1, WIRE_EXCLUSIVE);

	snprintf(c->name, sizeof(c->name), "%s-%u", c->id, c->turn % 10);
	w.name = c->name;
	c->since = now_ns();
	store_acquire(c->host.store, &w, client_on, c);
}

TEST(many_clients_with_names_of_their_own)
{
	choose_rounds();
	ended = 0;
	for (unsigned i = 0; i < MANY; i++) {
		clients[i] = (struct client){.turn = 0};
		snprintf(clients[i].id, sizeof(clients[i].id), "client-%u", i);
		start(&clients[i].host, clients[i].id);
		wait_until(clients[i].host.ups == 1);
	}
	assert_ok(store_open(clients[0].host.store, STORE_OPEN_FORCED, "", on_answer, &answer));
	int64_t since = now_ns();
	for (unsigned i = 0; i < MANY; i++)
		client_ask(&clients[i]);
	quick_until(ended == MANY);
	double seconds = (double)(now_ns() - since) / 1e9;
	report("%d clients, names of their own: %.0f pairs/s, median of an acquire %.0f us\n", MANY,
	       MANY * (rounds / 2) / seconds, median_us(&acquires));
	for (unsigned i = 0; i < MANY; i++)
		stop(&clients[i].host);
}

/* ---- what listeners cost ---- */

static const unsigned listeners[] = {0, 10, 100, 1000};
static PGconn *ears[1000];

TEST_EACH(hand_over_beside_listeners, ROWS(listeners))
{
	choose_rounds();
	rounds = rounds > 200 ? 200 : rounds;
	unsigned count = getenv("SPEED") || listeners[_i] < 100 ? listeners[_i] : 30;
	if (count >= 100) {
		sql("alter system set max_connections = 1200");
		pg_stop(&pg);
		pg_start(&pg);
	}
	start_both();
	plain_open();
	for (unsigned i = 0; i < count; i++) {
		char text[64];

		snprintf(text, sizeof(text), "listen dflock_of_nobody_%u", i);
		ears[i] = PQconnectdb(pg.admin);
		ck_assert_msg(PQstatus(ears[i]) == CONNECTION_OK, "%s", PQerrorMessage(ears[i]));
		PQclear(PQexec(ears[i], text));
	}
	char where[32];

	snprintf(where, sizeof(where), "%u listeners", count);
	time_all(where);
	for (unsigned i = 0; i < count; i++)
		PQfinish(ears[i]);
	plain_close();
	sql("alter system reset all");
}
