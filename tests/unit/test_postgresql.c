/* store/postgresql/: store.h against a PostgreSQL server of one's own: in the ordinary course, what is refused, what was lost. */
#include "tests/unit/postgresql_server.h"
#include "tests/unit/store_course.h"

/* ---- what is refused ---- */

static const struct {
	const char *sql, *line;
} wrongs[] = {
	{"update dflock.about set format = 2", "its schema is of a newer dflock"},
	{"drop schema dflock cascade",
	 "it has no schema dflock, or half of one: run `psql -d postgres -v role=dflock -f "},
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
	once.name = "cancelled";
	answer = (struct asked){.answers = 0};
	store_acquire(a.store, &once, on_answer, &answer);
	wait_until((sql("select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'"),
		    answer.answers > 0));
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

static const char *const changes[] = {"fsync = off"};

/* It would lose what it confirms from then on. */
TEST_EACH(a_setting_that_is_changed_later_ends_it, ROWS(changes))
{
	char text[200];

	start_both();
	snprintf(text, sizeof(text), "alter system set %s", changes[_i]);
	sql(text);
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

static const char *const encodings[] = {"SQL_ASCII", "LATIN1", "EUC_JP", "WIN1251"};

TEST_EACH(a_database_of_any_encoding, ROWS(encodings))
{
	char text[256], other[300];
	struct pg there = pg;

	snprintf(text, sizeof(text), "create database other encoding '%s' template template0 locale 'C'",
		 encodings[_i]);
	sql(text);
	snprintf(there.admin, sizeof(there.admin), "host=%s dbname=other user=postgres", pg.dir);
	snprintf(other, sizeof(other), "host=%s dbname=other user=dflock", pg.dir);
	pg_schema(&there);
	config.postgresql = other;
	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE, w.name = "\xe4\xff\x80 \xc3\xa4 'q\"\\{,}"), STORE_OK);
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE, w.name = "\xe4\xff\x80 \xc3\xa4 'q\"\\{,}"), STORE_WAIT);
	wait_until(a.messages == 1);
	ck_assert_str_eq(a.message.name, "\xe4\xff\x80 \xc3\xa4 'q\"\\{,}");
	change_hands();
	stop(&a);
	stop(&b);
	wait_until(sql_number("select count(*) from pg_stat_activity where datname = 'other'") == 0);
	sql("drop database other");
}

/* ---- what was lost ---- */

TEST(a_server_that_was_killed_keeps_what_it_said)
{
	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	uint64_t fence = answer.reply.fence;
	pg_stop(&pg);
	pg_start(&pg);
	wait_until(a.ups == 2 && b.ups == 2);
	ck_assert_uint_eq(a.changes, 1);
	assert_ok(store_confirm(a.store, NAME, token(1), fence, on_answer, &answer));
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_WAIT);
}

TEST(a_folder_from_before_is_another_memory)
{
	start_both();
	pg_stop(&pg);
	pg_shell(&pg, "cp -a data before");
	pg_start(&pg);
	wait_until(a.ups == 2 && b.ups == 2);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	for (unsigned i = 0; i < 300; i++) /* what a recovery writes is more than a lock */
		ck_assert_int_eq(beat(&a), STORE_OK);
	pg_stop(&pg);
	pg_shell(&pg, "rm -rf data");
	pg_shell(&pg, "mv before data");
	pg_start(&pg);
	wait_until(a.changes == 2 && a.ups == 3 && b.ups >= 3);
	ck_assert(store_in_grace(a.store));
	enum store_status status = acquire(&b, 2, WIRE_EXCLUSIVE);
	if (status == STORE_INCARNATION) { /* it was up before a had found that out */
		wait_until(b.changes == 2 && store_is_up(b.store));
		status = acquire(&b, 2, WIRE_EXCLUSIVE);
	}
	ck_assert_int_eq(status, STORE_GRACE);
}

/* It lacks one lock only, and no keeper that saw it lives: what one kept for the next one counts. */
TEST(the_next_keeper_knows_what_was_confirmed)
{
	uint64_t seen[2] = {0, 0};

	start_both();
	stop(&b);
	store_keep_seen(a.store, seen);
	pg_stop(&pg);
	pg_shell(&pg, "cp -a data before");
	pg_start(&pg);
	wait_until(a.ups == 2);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	stop(&a);
	pg_stop(&pg);
	pg_shell(&pg, "rm -rf data");
	pg_shell(&pg, "mv before data");
	pg_start(&pg);
	start(&b, "host-b");
	store_keep_seen(b.store, seen);
	wait_until(b.ups == 1);
	ck_assert(store_in_grace(b.store));
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_GRACE);
}
