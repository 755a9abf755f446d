/*
 * store/postgresql/: what a lock costs beside a one-row transaction of a plain client of libpq, in turn with it (make speed-postgresql).
 * PG_PLACE: where the server lies.
 */
#include "tests/unit/postgresql_server.h"
/* Behind it: tests. */
#include "bench/speed.h"

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
	unsigned count = listeners[_i];

	rounds = 200;
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
