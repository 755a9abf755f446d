/*
 * store/postgresql/: how many statements and commits a lock takes, and what it costs beside a one-row transaction of a plain client of libpq, in
 * turn with it. With SPEED=1 in the environment (make speed-postgresql) it prints what it measured; in the suite it only shows that
 * this runs. PG_PLACE: where the server lies.
 */
#include <dlfcn.h>

#include "tests/unit/postgresql_server.h"
/* Behind it: tests. */
#include "tests/unit/store_speed.h"

/* ---- statements and commits ---- */

static unsigned loads, applies;

/* In place of libpq's. */
int PQsendQueryPrepared(PGconn *conn, const char *name, int count, const char *const *values, const int *lengths,
			const int *formats, int format)
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

static void a_lock_is_given_back(unsigned i) { ck_assert_int_eq(release(&a, 2 * i + 10), STORE_OK); }

static void the_lock_is_handed_over(unsigned i)
{
	a_lock_is_given_back(i);
	wait_until(b.messages > 0);
	ck_assert_int_eq(b.message.kind, STORE_MSG_GRANTED);
}

/* The loads of each step, over all rounds; each commits once. The one that waits looks at the beat of the host in its way, in a second load. */
static const struct {
	void (*step)(unsigned i);
	unsigned loads;
} steps[] = {
	{a_lock_is_taken, 1},        {another_host_waits, 2}, {the_lock_is_handed_over, 1},
	{that_one_gives_it_back, 1}, {a_lock_is_taken, 1},    {a_lock_is_given_back, 1},
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
			ck_assert_msg(loads == steps[step].loads && applies == 1, "step %d: %u, %u", step, loads,
				      applies);
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

TEST(a_lock_beside_a_transaction)
{
	choose_rounds();
	start_both();
	plain_open();
	char where[SUITE_PATH_BYTES];

	snprintf(where, sizeof(where), "%.*s", (int)(strrchr(pg.dir, '/') - pg.dir), pg.dir);
	time_all(where, "one-row transaction", time_one_row);
	plain_close();
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
	time_all(where, "one-row transaction", time_one_row);
	for (unsigned i = 0; i < count; i++)
		PQfinish(ears[i]);
	plain_close();
	sql("alter system reset all");
}
