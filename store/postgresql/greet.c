/*
 * See postgresql.h: what a new session is given, and what the server must be.
 *
 * The settings of the role, the database and the server may be anything, and some would break what apply() relies on: another isolation level
 * (its snapshot would be older than its locks), a commit that does not wait, warnings that do not come (one of them says that a
 * standby has not confirmed), another search path (others' functions), arrays and strings that are read in another way. So the session
 * sets them, and nothing but the session can change them again; apply() looks all the same.
 *
 * A server that was restored from a backup has the identity that it had, and lacks transactions that it has confirmed. The numbers of
 * transactions grow, also over crashes: a server that has not come to a number that this host has seen confirmed is such a
 * one. Then its memory gets another name, for every host: all hosts begin a new incarnation.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/postgresql/postgresql.h"

#define FORMAT "1"

/* `anew`: there is one, which goes before. */
static void greet_needs_schema(struct postgresql *p, const char *what, bool anew)
{
	store_reject(p->store, "%s: %srun `psql -d %s -v role=%s -f " SCHEMA_INSTALLED "` on the server", what,
		     anew ? "stop all hosts, drop schema dflock cascade, and " : "", PQdb(p->conn), PQuser(p->conn));
}

/* A lock that does not come is no reason to wait for as long as others wait for this session's answer. */
void postgresql_greet(struct postgresql *p)
{
	int64_t ms = p->store->config->connect_ms, idle_ms = 2 * p->store->ttl_ms + ms;
	char sql[1500];

	snprintf(p->store->version, sizeof(p->store->version), "PostgreSQL %d", PQserverVersion(p->conn) / 10000);
	if (PQserverVersion(p->conn) < 140000) {
		store_reject(p->store, "it is %s: version 14 is the oldest that will do", p->store->version);
		return;
	}
	snprintf(
		sql, sizeof(sql),
		"set search_path = pg_catalog, pg_temp; set client_min_messages = warning; set array_nulls = on; "
		"set standard_conforming_strings = on; set default_transaction_isolation = 'read committed'; "
		"set default_transaction_deferrable = off; set row_security = on; "
		"set statement_timeout = %" PRId64 "; set lock_timeout = %" PRId64
		"; set idle_session_timeout = %" PRId64
		"; set tcp_keepalives_idle = 30; set tcp_keepalives_interval = 10; set tcp_keepalives_count = 3; "
		/* The plans are kept, and the table may grow by a million rows behind them. */
		"set plan_cache_mode = force_generic_plan; set jit = off; set max_parallel_workers_per_gather = 0; set enable_seqscan = off; "
		"set enable_hashjoin = off; set enable_mergejoin = off; "
		"select set_config('synchronous_commit', case current_setting('synchronous_commit') when 'remote_apply' "
		"then 'remote_apply' else 'on' end, false); "
		"select format from dflock.about",
		ms - ms / 4, ms / 4, idle_ms);
	postgresql_send(p, STEP_SET, sql, -1, NULL);
}

static void greet_hello(struct postgresql *p)
{
	char channel[2 * STORE_KEY_BYTES], *to = channel, sql[sizeof(channel) + 700];

	for (const char *c = STORE_HOST_CHANNEL; *c; c++)
		to += sprintf(to, "%02x", (unsigned char)*c);
	for (const char *c = p->store->host; *c; c++)
		to += sprintf(to, "%02x", (unsigned char)*c);
	/* Prepared once, a statement costs the server half of what it costs if it is read and planned each time. What a pooler has of an earlier
	 * session must not be in the way of the line that says so. */
	snprintf(
		sql, sizeof(sql),
		"deallocate all; prepare dflock_load(bytea[], bytea[], boolean, bigint) as select * from dflock.load($1, $2, $3, $4); "
		"prepare dflock_apply(text, bytea[], bytea[], bigint[], boolean[], bytea[], bigint, text[], text[], bigint[], boolean[]) "
		"as select dflock.apply($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11); "
		"select recovery::text, fsync, pid::text, system, timeline, memory, xids from dflock.hello('%s')",
		channel);
	postgresql_send(p, STEP_HELLO, sql, -1, NULL);
}

enum { RECOVERY, FSYNC, PID, SYSTEM, TIMELINE, MEMORY, XIDS };

void postgresql_remember(struct postgresql *p, const char *memory)
{
	snprintf(p->identity, sizeof(p->identity), "%.24s%.32s", p->system, memory);
	store_see_memory(p->store, p->identity);
}

/* NULL: it will do. */
static const char *greet_wrong(const struct postgresql *p, const PGresult *result)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", PQbackendPID(p->conn));
	if (PQntuples(result) != 1)
		return "its function dflock.hello() says nothing: make the schema anew";
	if (strcmp(PQgetvalue(result, 0, RECOVERY), "false") != 0)
		return "it is a standby, which may only be read: set the address of the primary";
	if (strcmp(PQgetvalue(result, 0, FSYNC), "on") != 0)
		return "fsync is off, so that it would lose locks with its power: switch it on";
	if (strcmp(PQgetvalue(result, 0, PID), pid) != 0)
		return "a pooler is between, which does not pass on messages: set the address of the server itself";
	return NULL;
}

static bool greet_on_hello(struct postgresql *p, const PGresult *result)
{
	const char *wrong = greet_wrong(p, result);

	if (wrong) {
		store_reject(p->store, "%s", wrong);
		return false;
	}
	snprintf(p->system, sizeof(p->system), "%.16s%.8s", PQgetvalue(result, 0, SYSTEM),
		 PQgetvalue(result, 0, TIMELINE));
	postgresql_remember(p, PQgetvalue(result, 0, MEMORY));
	if (strtoull(PQgetvalue(result, 0, XIDS), NULL, 10) <= p->store->seen[STORE_SEEN_NUMBER]) {
		postgresql_send(p, STEP_FORGET, "select dflock.forget()", 0, NULL);
		return false;
	}
	return true;
}

bool postgresql_greeted(struct postgresql *p, enum postgresql_step step, const PGresult *result)
{
	if (step == STEP_HELLO)
		return greet_on_hello(p, result);
	if (step == STEP_SET) {
		if (PQntuples(result) != 1)
			greet_needs_schema(p, "its table dflock.about has not one row", true);
		else if (atoi(PQgetvalue(result, 0, 0)) > atoi(FORMAT))
			store_reject(p->store, "its schema is of a newer dflock: install that version on this host");
		else if (strcmp(PQgetvalue(result, 0, 0), FORMAT) != 0)
			greet_needs_schema(p, "its schema is of an older dflock", true);
		else
			greet_hello(p);
		return false;
	}
	postgresql_remember(p, PQgetvalue(result, 0, 0));
	return true;
}

void postgresql_explain(struct postgresql *p, const PGresult *result)
{
	static const struct {
		const char *code, *what;
		bool away; /* it has not answered: it is not reachable */
	} known[] = {
		{"42501", "the role lacks a right, which `dflock doctor --acl` prints", false},
		{"25006", "it may only be read: set the address of the primary, and no default_transaction_read_only",
		 false},
		{"53100", "its disk is full", false},
		{"DF001", "its settings will not do", false},
		{"57014", "a statement took too long, or somebody cancelled it", true},
		{"57", "the server ends", true},
		{"08", "the connection broke", true},
	};
	const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	if (code && (strcmp(code, "42P01") == 0 || strcmp(code, "3F000") == 0)) {
		greet_needs_schema(p, "it has no schema dflock, or half of one", false);
		return;
	}
	if (code && (strcmp(code, "42883") == 0 || strcmp(code, "42703") == 0 || strcmp(code, "42804") == 0)) {
		greet_needs_schema(p, "it has half a schema", true);
		return;
	}
	for (size_t i = 0; code && i < sizeof(known) / sizeof(*known); i++)
		if (strncmp(code, known[i].code, strlen(known[i].code)) == 0) {
			postgresql_fail(p, !known[i].away, known[i].what, PQresultErrorMessage(result));
			return;
		}
	postgresql_fail(p, code != NULL, code ? "the server says" : "the connection broke",
			PQresultErrorMessage(result));
}
