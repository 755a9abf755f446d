/*
 * PostgreSQL servers of a test's own, each with a Unix socket in its folder, run by an ordinary user; and the engine against them. All
 * that these servers may call is theirs: they end with the process that started them.
 */
#ifndef DFLOCK_TESTS_UNIT_POSTGRESQL_SERVER_H
#define DFLOCK_TESTS_UNIT_POSTGRESQL_SERVER_H

#define STORE_HOSTS_OTHER_SERVER
#include <glob.h>
#include <libpq-fe.h>

#include "tests/unit/store_hosts.h"

struct pg {
	char dir[SUITE_PATH_BYTES], info[256],
		admin[256]; /* for the least of roles; for the one that has made the server */
	pid_t parent;       /* who has started it; 0: it does not run */
};
static struct pg pg; /* the server of the suite */

/* Where the programs of the server are, of the first version that is found: they are in nobody's PATH. */
static inline const char *pg_bin(void)
{
	static char folder[64];
	glob_t found;

	if (!*folder) {
		ck_assert_int_eq(glob("/usr/lib/postgresql/*/bin", 0, NULL, &found), 0);
		snprintf(folder, sizeof(folder), "%s", found.gl_pathv[0]);
		globfree(&found);
	}
	return folder;
}

/* As an ordinary user, whom the folder belongs to: the server refuses root. */
__attribute__((format(printf, 2, 3))) static inline void pg_shell(const struct pg *s, const char *format, ...)
{
	char command[1024], whole[1400];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	snprintf(whole, sizeof(whole), "cd %s && PATH=%s:$PATH %s %s >>log 2>&1", s->dir, pg_bin(),
		 getuid() ? "" : "setpriv --reuid=65534 --regid=65534 --clear-groups", command);
	ck_assert_msg(system(whole) == 0, "%s: see %s/log", whole, s->dir);
}

static inline pid_t pg_run(const struct pg *s)
{
	char program[96];
	const char *const argv[] = {program,
				    "-Ddata",
				    "-k",
				    s->dir,
				    "--listen_addresses=",
				    "--autovacuum=off",
				    "--dynamic_shared_memory_type=mmap",
				    NULL};

	snprintf(program, sizeof(program), "%s/postgres", pg_bin());
	return server_run(s->dir, getuid() ? 0 : 65534, SIGQUIT, argv);
}

/* Until it takes connections. It does not begin while a process of an earlier one lives, which may have been forked when that was killed. */
static inline void pg_start(struct pg *s)
{
	pid_t pid = pg_run(s);

	s->parent = getpid();
	for (int64_t limit = server_clock_ms() + 40000; PQping(s->admin) != PQPING_OK;) {
		ck_assert_msg(server_clock_ms() < limit, "see %s/log", s->dir);
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
		if (waitpid(pid, NULL, WNOHANG) == pid)
			pid = pg_run(s);
	}
}

static inline pid_t pg_pid(const struct pg *s)
{
	char path[128];
	int pid = 0;

	snprintf(path, sizeof(path), "%s/data/postmaster.pid", s->dir);
	FILE *f = fopen(path, "r");
	if (f && fscanf(f, "%d", &pid) != 1)
		pid = 0;
	if (f)
		fclose(f);
	return pid;
}

/* As a crash: nothing is written at its end. */
static inline void pg_stop(struct pg *s)
{
	pid_t pid = pg_pid(s);

	ck_assert_int_eq(kill(pid, SIGQUIT), 0);
	for (int64_t limit = server_clock_ms() + 30000; !has_ended(pid);)
		ck_assert(server_clock_ms() < limit);
	s->parent = 0;
}

static inline PGresult *pg_ask(const struct pg *s, const char *text)
{
	PGconn *c = PQconnectdb(s->admin);
	PQclear(PQexec(c, "set client_min_messages = warning"));
	PGresult *result = PQexec(c, text);

	ck_assert_msg(PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK, "%s: %s",
		      text, PQerrorMessage(c));
	PQfinish(c);
	return result;
}

static inline void sql(const char *text) { PQclear(pg_ask(&pg, text)); }

static inline int64_t sql_number(const char *text)
{
	PGresult *result = pg_ask(&pg, text);
	int64_t n = PQntuples(result) ? strtoll(PQgetvalue(result, 0, 0), NULL, 10) : -1;

	PQclear(result);
	return n;
}

static inline void pg_name(struct pg *s)
{
	ck_assert(getuid() != 0 || chown(s->dir, 65534, 65534) == 0);
	snprintf(s->info, sizeof(s->info), "host=%s dbname=postgres user=dflock", s->dir);
	snprintf(s->admin, sizeof(s->admin), "host=%s dbname=postgres user=postgres", s->dir);
}

static inline void pg_prepare(struct pg *s)
{
	suite_make_folder(s->dir, getenv("PG_PLACE") ? getenv("PG_PLACE") : "/dev/shm");
	pg_name(s);
}

static inline void pg_remove(struct pg *s)
{
	char command[256];

	if (PQping(s->admin) == PQPING_OK)
		pg_stop(s);
	snprintf(command, sizeof(command), "rm -rf %s", s->dir);
	ck_assert_int_eq(system(command), 0);
}

static inline void pg_schema(const struct pg *s)
{
	char command[512];

	PQclear(pg_ask(s, "drop schema if exists dflock cascade"));
	snprintf(command, sizeof(command),
		 "psql -q -v ON_ERROR_STOP=1 -v role=dflock -f store/postgresql/schema.sql '%s'", s->admin);
	ck_assert_int_eq(system(command), 0);
}

/* ---- around each test ---- */

static inline void pg_make_server(void)
{
	pg_prepare(&pg);
	pg_shell(&pg, "initdb -D data -U postgres --auth=trust --no-sync --locale=C -E UTF8");
	pg_start(&pg);
	sql("create role dflock login");
}

static inline void pg_remove_server(void) { pg_remove(&pg); }

static inline void pg_begin(void)
{
	if (PQping(pg.admin) != PQPING_OK) /* it ended with a test that had one of its own */
		pg_start(&pg);
	sql("alter system reset all"); /* a test that has failed may have left one, for which this would wait */
	sql("select pg_reload_conf()");
	pg_schema(&pg);
	hosts_begin((struct config_store){.postgresql = pg.info, .connect_ms = 5000});
}

static inline void pg_end(void)
{
	hosts_end();
	if (pg.parent == getpid()) /* it would end with this test: be sure that it has */
		pg_stop(&pg);
}
FIXTURE_ONCE(pg_make_server, pg_remove_server)
FIXTURE(pg_begin, pg_end)

#endif
