/* store/postgresql/: a server that stops, a network that is cut, a host that is stopped at each step, a full disk. */
#include "tests/unit/own_mounts.h"
#include "tests/unit/postgresql_server.h"

#define SHORT_MS 1000

static struct config_store config_b; /* b's own, where a goes through a proxy */
static struct proxy proxy;

/* a through the proxy, b without. store_new() keeps a pointer to the configuration. */
static void start_proxied(void)
{
	config_b = config;
	proxy_start(&proxy, &pg);
	config.postgresql = proxy.info;
	start(&a, "host-a");
	static const struct store_callbacks callbacks = {
		.on_up = on_up, .on_down = on_down, .on_incarnation = on_incarnation, .on_message = on_message};
	b = (struct host){.id = "host-b"};
	b.store = store_new(&loop, &config_b, TTL_MS, b.id, &callbacks, &b);
	wait_until(a.ups == 1 && b.ups == 1);
	assert_ok(store_open(a.store, STORE_OPEN_FORCED, "", on_answer, &answer));
}

/* How long an answer takes. */
static int64_t took_ms;
#define timed(call)                                                                                                    \
	({                                                                                                             \
		int64_t since = server_clock_ms();                                                                     \
		int status = (int)(call);                                                                              \
		took_ms = server_clock_ms() - since;                                                                   \
		status;                                                                                                \
	})

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

/* ---- a network that is cut ---- */

TEST(a_network_that_passes_nothing_on)
{
	config.connect_ms = SHORT_MS;
	start_proxied();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	proxy_tell(&proxy, PROXY_HOLD, 0);
	ck_assert_int_eq(timed(acquire(&a, 3, WIRE_EXCLUSIVE, w.name = "other")), STORE_UNREACHABLE);
	ck_assert_int_le(took_ms, SHORT_MS + SHORT_MS / 2);
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_WAIT);
	proxy_tell(&proxy, PROXY_PASS, 0); /* what was held comes late */
	wait_until(store_is_up(a.store));
	ck_assert_int_eq(acquire(&a, 3, WIRE_EXCLUSIVE, w.name = "other"), STORE_OK);
	ck_assert_int_eq(acquire(&b, 4, WIRE_EXCLUSIVE, w.name = "other"), STORE_WAIT);
	proxy_end(&proxy);
}

/* The server has granted, and the host has not heard of it: asked again, it is the same lease. */
TEST(an_answer_that_is_lost)
{
	config.connect_ms = SHORT_MS;
	start_proxied();
	proxy_tell(&proxy, PROXY_DEAF, 0);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_UNREACHABLE);
	proxy_tell(&proxy, PROXY_CUT, 0);
	proxy_tell(&proxy, PROXY_PASS, 0);
	wait_until(store_is_up(a.store));
	int status = acquire(&b, 2, WIRE_EXCLUSIVE);
	int again = acquire(&a, 1, WIRE_EXCLUSIVE);
	ck_assert_int_eq(status == STORE_OK ? again : status, STORE_WAIT);
	ck_assert_int_eq(status == STORE_OK ? STORE_OK : again, STORE_OK);
	proxy_end(&proxy);
}

/* ---- at each step ---- */

#define STEPS 12

static void on_other(void *arg, const struct store_reply *reply)
{
	struct asked *asked = arg;

	asked->answers++;
	asked->reply = *reply;
}

/* The host is stopped when it has had so many pieces; another one has the lock meanwhile, more than once. */
TEST_EACH(a_host_that_is_stopped_at_each_step, STEPS)
{
	struct asked of_a = {.answers = 0};
	struct store_acquire one = want(1, WIRE_EXCLUSIVE);
	uint64_t fence;

	start_proxied();
	proxy_tell(&proxy, PROXY_COUNT, _i / 2);
	store_acquire(a.store, &one, on_other, &of_a);
	for (int64_t until = server_clock_ms() + 60; server_clock_ms() < until && !of_a.answers;)
		uv_run(&loop, UV_RUN_ONCE);
	int status = acquire(&b, 2, WIRE_EXCLUSIVE);
	fence = answer.reply.fence;
	if (status == STORE_OK && _i % 2) {
		ck_assert_int_eq(release(&b, 2), STORE_OK);
		ck_assert_int_eq(acquire(&b, 3, WIRE_EXCLUSIVE), STORE_OK);
		ck_assert_uint_gt(answer.reply.fence, fence);
		fence = answer.reply.fence;
		ck_assert_int_eq(release(&b, 3), STORE_OK);
	}
	proxy_tell(&proxy, PROXY_PASS, 0);
	wait_until(of_a.answers > 0);
	if (status == STORE_WAIT || _i % 2)
		ck_assert_int_eq(of_a.reply.status, STORE_OK);
	else
		ck_assert_int_eq(of_a.reply.status, STORE_WAIT);
	if (status == STORE_OK && _i % 2)
		ck_assert_uint_gt(of_a.reply.fence, fence);
	proxy_end(&proxy);
}

/* Rows are removed while the host is stopped: that a cell is not there has no version then. */
TEST_EACH(a_host_that_is_stopped_while_rows_are_cleaned, STEPS)
{
	struct asked of_a = {.answers = 0};
	struct store_acquire one = want(1, WIRE_EXCLUSIVE);
	uint64_t fence = 0;

	start_proxied();
	proxy_tell(&proxy, PROXY_COUNT, _i / 2);
	store_acquire(a.store, &one, on_other, &of_a);
	for (int64_t until = server_clock_ms() + 60; server_clock_ms() < until && !of_a.answers;)
		uv_run(&loop, UV_RUN_ONCE);
	if (acquire(&b, 2, WIRE_EXCLUSIVE) == STORE_OK) {
		fence = answer.reply.fence;
		ck_assert_int_eq(release(&b, 2), STORE_OK);
		sql("update dflock.about set clean_at = '2000-01-01', clean_from = 0");
		ck_assert_int_gt(sql_number("select dflock.clean(100000, 1)"), 0);
		ck_assert_int_eq(sql_number("select count(*) from dflock.cell where value is null"), 0);
		if (_i % 2) /* the same again */
			ck_assert_int_eq(acquire(&b, 3, WIRE_EXCLUSIVE), STORE_OK);
	}
	proxy_tell(&proxy, PROXY_PASS, 0);
	wait_until(of_a.answers > 0);
	ck_assert_int_eq(of_a.reply.status, fence && _i % 2 ? STORE_WAIT : STORE_OK);
	if (of_a.reply.status == STORE_OK)
		ck_assert_uint_gt(of_a.reply.fence, fence);
	proxy_end(&proxy);
}

/* The connection breaks at the nth piece, also of connecting: each time what was asked is asked again. */
TEST(a_connection_that_breaks_at_each_step)
{
	uint64_t fence = 0;

	start_proxied();
	for (int n = 0; n < 25; n++) {
		unsigned t = (unsigned)n + 10;
		int status = STORE_UNREACHABLE;

		proxy_tell(&proxy, PROXY_COUNT_CUT, n % 14);
		for (int i = 0; i < 4; i++) {
			wait_until(store_is_up(a.store));
			status = acquire(&a, t, WIRE_EXCLUSIVE);
			ck_assert(status == STORE_OK || status == STORE_UNREACHABLE);
			if (status == STORE_OK && i > 1)
				break;
		}
		ck_assert_int_eq(status, STORE_OK);
		ck_assert_uint_gt(answer.reply.fence, fence);
		fence = answer.reply.fence;
		ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE, w.ask = true), STORE_WAIT);
		ck_assert_int_eq(release(&b, 2), STORE_OK);
		for (status = STORE_UNREACHABLE; status != STORE_OK; status = release(&a, t))
			wait_until(store_is_up(a.store));
	}
	proxy_end(&proxy);
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

/* ---- a full disk ---- */

static void fill(const struct pg *s, bool full)
{
	char path[128], bytes[4096] = "";

	snprintf(path, sizeof(path), "%s/filler", s->dir);
	if (!full) {
		ck_assert_int_eq(unlink(path), 0);
		return;
	}
	int fd = open(path, O_WRONLY | O_CREAT, 0600);
	while (write(fd, bytes, sizeof(bytes)) == sizeof(bytes))
		;
	close(fd);
}

/* The server may end by it: it stops when its log has no room. */
TEST(a_full_disk)
{
	struct pg small = {.parent = 0};
	uint64_t fence = 0;
	unsigned refused_count = 0;
	char name[32];

	own_mounts();
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
	config.connect_ms = SHORT_MS;
	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	fence = answer.reply.fence;
	fill(&small, true);
	for (unsigned i = 0; i < 20000 && refused_count < 3; i++) {
		snprintf(name, sizeof(name), "lock %u", i);
		refused_count += acquire(&b, 2, WIRE_EXCLUSIVE, w.name = name) != STORE_OK;
	}
	ck_assert_uint_eq(refused_count, 3);
	fill(&small, false);
	if (PQping(small.admin) != PQPING_OK && pg_ended(pg_pid(&small)))
		pg_start(&small);
	wait_until(store_is_up(a.store) && store_is_up(b.store));
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
