/* store/postgresql/: what store_trouble.h has, a server that stops, and rows that go. */
#include "tests/unit/postgresql_server.h"
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

static struct pg small;

static const char *trouble_disk(void)
{
	suite_make_folder(small.dir, "/dev/shm");
	ck_assert_int_eq(mount("none", small.dir, "tmpfs", 0, "size=100m,mode=0777"), 0);
	ck_assert(getuid() != 0 || chown(small.dir, 65534, 65534) == 0);
	snprintf(small.info, sizeof(small.info), "host=%s dbname=postgres user=dflock", small.dir);
	snprintf(small.admin, sizeof(small.admin), "host=%s dbname=postgres user=postgres", small.dir);
	pg_shell(&small, "initdb -D data -U postgres --auth=trust --no-sync --locale=C -E UTF8 --wal-segsize=1");
	pg_start(&small);
	PQclear(pg_ask(&small, "create role dflock login"));
	pg_schema(&small);
	config.postgresql = small.info;
	return small.dir;
}

static void trouble_mend(void)
{
	if (PQping(small.admin) != PQPING_OK && pg_ended(pg_pid(&small)))
		pg_start(&small);
}

static void trouble_disk_end(void) { pg_stop(&small); }

/* ---- a server that does not answer ---- */

TEST(a_server_that_is_stopped)
{
	uint64_t fence;

	config.connect_ms = SHORT_MS;
	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	fence = answer.reply.fence;
	pg_signal(&pg, SIGSTOP);
	ck_assert_int_eq(timed(acquire(&b, 2, WIRE_EXCLUSIVE)), STORE_UNREACHABLE);
	ck_assert_int_le(took_ms, SHORT_MS + SHORT_MS / 2);
	wait_until(a.downs == 1); /* nobody has asked it for anything */
	wait_until(strstr(a.why, "no connection within") && strstr(b.why, "no connection within"));
	ck_assert_int_eq(timed(acquire(&b, 2, WIRE_EXCLUSIVE)), STORE_UNREACHABLE);
	ck_assert_int_le(took_ms, SHORT_MS);
	pg_signal(&pg, SIGCONT);
	wait_until(store_is_up(a.store) && store_is_up(b.store));
	ck_assert_uint_eq(a.changes, 1);
	assert_ok(store_confirm(a.store, NAME, token(1), fence, on_answer, &answer));
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_WAIT);
}

/* ---- cleaning ---- */

TEST(rows_of_names_that_nobody_wants_any_more_go)
{
	char name[32];

	start_both();
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
