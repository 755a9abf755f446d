/* store/postgresql/: store.h against a PostgreSQL server of one's own: in the ordinary course, settings, what others write, statements, what was lost. */
#include <dlfcn.h>

#include "tests/unit/postgresql_server.h"
#include "tests/unit/store_course.h"

/* ---- settings that would break it ---- */

static const char *const settings[] = {
	"default_transaction_isolation = serializable",
	"default_transaction_isolation = 'repeatable read'",
	"default_transaction_deferrable = on",
	"client_min_messages = error",
	"array_nulls = off",
	"standard_conforming_strings = off",
	"synchronous_commit = off",
	"synchronous_commit = remote_apply",
	"search_path = hostile, pg_catalog",
	"enable_indexscan = off",
	"client_encoding = sjis",
	"bytea_output = escape",
};

static void change_hands(void)
{
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_WAIT);
	wait_until(a.messages >= 1);
	ck_assert_int_eq(release(&a, 1), STORE_OK);
	wait_until(b.messages >= 1);
	ck_assert_int_eq(b.message.kind, STORE_MSG_GRANTED);
}

static void cancel_wait(void)
{
	sql("alter system set synchronous_standby_names = 'nobody'");
	sql("select pg_reload_conf()");
	struct store_acquire once = want(7, WIRE_EXCLUSIVE);
	char name[32];
	once.name = name;
	unsigned n = 0;
	do { /* the server may not have read its settings so far */
		snprintf(name, sizeof(name), "cancelled %u", n++);
		answer = (struct asked){.answers = 0};
		store_acquire(a.store, &once, on_answer, &answer);
		wait_until((sql("select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'"),
			    answer.answers > 0));
	} while (answer.reply.status == STORE_OK);
	ck_assert_int_eq(answer.reply.status, STORE_UNREACHABLE);
	ck_assert_msg(strstr(answer.error, "a wait for a standby was cancelled") != NULL, "%s", answer.error);
	sql("alter system reset all");
	sql("select pg_reload_conf()");
}

/* Functions of others that would be taken before the system's own, since their arguments fit better. */
TEST_EACH(settings_of_the_role_do_not_matter, ROWS(settings))
{
	char text[200];

	sql("create schema if not exists hostile; grant usage on schema hostile to dflock");
	sql("create or replace function hostile.format(text, text) returns bigint language sql as 'select 1 / 0'");
	sql("create or replace function hostile.max(bigint) returns bigint language sql as 'select 1 / 0'");
	snprintf(text, sizeof(text), "alter role dflock set %s", settings[_i]);
	sql(text);
	start_both();
	change_hands();
	cancel_wait();
	wait_until(a.ups == 2);
	sql("alter role dflock reset all");
	sql("drop schema hostile cascade");
}

/* It would lose what it confirms from then on. */
TEST(a_setting_that_is_changed_later_ends_it)
{
	start_both();
	sql("alter system set fsync = off");
	sql("select pg_reload_conf()");
	wait_until(sql_number("select count(*) from pg_settings where name = 'fsync' and setting = 'off'") == 1);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_UNREACHABLE);
	wait_until(strstr(a.why, "fsync is off") != NULL);
	sql("alter system reset all");
	sql("select pg_reload_conf()");
	wait_until(a.ups == 2);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
}

/* ---- others ---- */

static void refuse_role(const char *text)
{
	PGconn *c = PQconnectdb(pg.admin);
	PQclear(PQexec(c, "set role nosy"));
	PGresult *result = PQexec(c, text);

	ck_assert_msg(PQresultStatus(result) == PGRES_FATAL_ERROR, "%s", text);
	ck_assert_str_eq(PQresultErrorField(result, PG_DIAG_SQLSTATE), "42501");
	PQclear(result);
	PQfinish(c);
}

/* Who may connect, and no more, reads nothing and writes nothing. */
TEST(others_have_no_part)
{
	sql("drop role if exists nosy");
	sql("create role nosy");
	start_both();
	refuse_role("select * from dflock.cell");
	refuse_role("select secret from dflock.about");
	refuse_role("select dflock.apply(null, '{}', '{}', '{}', '{}', '{}', null, '{}', '{}', '{}', '{}')");
	refuse_role("select dflock.forget()");
	refuse_role("select nextval('dflock.fence')");
	sql("drop role nosy");
}

/* What somebody else wrote there. */
static const char *const rows_of_others[] = {
	"insert into dflock.cell (key, name, value, version) select 'dflock:{0}:hosts', '=' || convert_to(repeat('x', 2600), 'UTF8'), '1', 7",
	"insert into dflock.cell (key, name, value, version) select 'dflock:{0}:hosts', '\\x3d41004200', '1', 7",
	"insert into dflock.cell (key, name, value, version) select 'dflock:{0}:lock:' || convert_to(repeat('x', 2600), 'UTF8'), '$', '1', 7",
	"insert into dflock.cell (key, name, value, version) select 'dflock:{0}:lock:odd', '$', '\\x00ff00ff', 7",
};

TEST_EACH(rows_that_no_rule_wrote_stop_nothing, ROWS(rows_of_others))
{
	start_both();
	sql(rows_of_others[_i]);
	change_hands();
	ask(store_hosts(b.store, on_hosts, &answer));
	ask(store_dump(a.store, &on_dump, &answer));
	wait_until(store_is_up(a.store) && store_is_up(b.store)); /* a host without a good name is nonsense */
	ck_assert_int_eq(beat(&a), STORE_OK);
}

TEST(a_lock_that_something_else_wrote_is_one_error)
{
	start_both();
	sql("insert into dflock.cell (key, name, value, version) values (convert_to('dflock:{0}:lock:" NAME
	    "', 'UTF8'), '$', 'x', 7)");
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_ERROR);
	ck_assert_ptr_nonnull(strstr(answer.error, "something else wrote"));
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE, w.name = "other"), STORE_OK);
	ck_assert_uint_eq(a.ups, 1);
}

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
static int64_t commits(void) { return sql_number("select pg_snapshot_xmax(pg_current_snapshot())"); }

static void a_lock_is_taken(unsigned i) { ck_assert_int_eq(acquire(&a, 2 * i + 10, WIRE_EXCLUSIVE), STORE_OK); }

static void another_host_waits(unsigned i)
{
	ck_assert_int_eq(acquire(&b, 2 * i + 11, WIRE_EXCLUSIVE), STORE_WAIT);
	b.messages = 0;
}

static void that_one_gives_it_back(unsigned i) { ck_assert_int_eq(release(&b, 2 * i + 11), STORE_OK); }

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
	start_both();
	int64_t before = commits();
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

/* ---- what was lost ---- */

static void copy_folder(void)
{
	pg_stop(&pg);
	pg_shell(&pg, "cp -a data before");
	pg_start(&pg);
}

static void take_the_copy(void)
{
	pg_stop(&pg);
	pg_shell(&pg, "rm -rf data");
	pg_shell(&pg, "mv before data");
	pg_start(&pg);
}

TEST(a_folder_from_before_is_another_memory)
{
	start_both();
	copy_folder();
	wait_until(a.ups == 2 && b.ups == 2);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	for (unsigned i = 0; i < 300; i++) /* what a recovery writes is more than a lock */
		ck_assert_int_eq(beat(&a), STORE_OK);
	take_the_copy();
	wait_until(a.changes == 2 && a.ups == 3 && b.ups >= 3);
	ck_assert(store_in_grace(a.store));
	enum store_status status = acquire(&b, 2, WIRE_EXCLUSIVE);
	if (status == STORE_INCARNATION) { /* it was up before a had found that out */
		wait_until(b.changes == 2 && store_is_up(b.store));
		status = acquire(&b, 2, WIRE_EXCLUSIVE);
	}
	ck_assert_int_eq(status, STORE_GRACE);
}

/* As an operator may do while a host runs that was forgotten: $0 is a file, $1 the server. */
static const struct {
	const char *before, *anew;
} schemas[] = {
	{"true", "psql -q -1 -v ON_ERROR_STOP=1 -v role=dflock -c \"drop schema dflock cascade\" "
		 "-f store/postgresql/schema.sql \"$1\""},
	{"pg_dump -n dflock -f \"$0\" \"$1\"",
	 "psql -q -1 -v ON_ERROR_STOP=1 -c \"drop schema dflock cascade\" -f \"$0\" \"$1\" >/dev/null"},
};

static void schema_shell(const char *command)
{
	char whole[1024];

	snprintf(whole, sizeof(whole), "PGOPTIONS='-c client_min_messages=error' sh -c '%s' %s/dump '%s'", command,
		 pg.dir, pg.admin);
	ck_assert_int_eq(system(whole), 0);
}

/* Nobody's connection ends by it. Messages come to other channels from then on. */
TEST_EACH(a_schema_that_was_made_anew_is_another_memory, ROWS(schemas))
{
	start_both();
	schema_shell(schemas[_i].before);
	ck_assert_int_eq(acquire(&a, 5, WIRE_EXCLUSIVE), STORE_OK);
	schema_shell(schemas[_i].anew);
	ck_assert_int_ne(acquire(&b, 6, WIRE_EXCLUSIVE), STORE_OK);
	beat(&a);
	wait_until(a.changes == 2 && b.changes == 2 && store_is_up(a.store) && store_is_up(b.store));
	assert_ok(store_open(a.store, STORE_OPEN_FORCED, "", on_answer, &answer));
	change_hands();
}

/* It lacks one lock only, and no keeper that saw it lives: what one kept for the next one counts. */
TEST(the_next_keeper_knows_what_was_confirmed)
{
	uint64_t seen[2] = {0, 0};

	start_both();
	stop(&b);
	store_keep_seen(a.store, seen);
	copy_folder();
	wait_until(a.ups == 2);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	stop(&a);
	take_the_copy();
	start(&b, "host-b");
	store_keep_seen(b.store, seen);
	wait_until(b.ups == 1);
	ck_assert(store_in_grace(b.store));
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_GRACE);
}
