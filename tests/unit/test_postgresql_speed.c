/*
 * store/postgresql/: what a lock costs beside a one-row transaction of a plain client of libpq, in the same run. With SPEED=1 in the environment
 * (make speed-postgresql) it prints what it measured; in the suite it only shows that this runs. PG_PLACE: where the server lies.
 */
#include "tests/unit/postgresql_server.h"

#define MANY 8

static unsigned rounds;
static double samples[4096];
static unsigned sample_count;

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void sample(int64_t since_ns)
{
	if (sample_count < 4096)
		samples[sample_count++] = (double)(now_ns() - since_ns) / 1000;
}

static int by_size(const void *x, const void *y)
{
	double d = *(const double *)x - *(const double *)y;

	return d < 0 ? -1 : d > 0;
}

static double median_us(void)
{
	qsort(samples, sample_count, sizeof(*samples), by_size);
	double m = samples[sample_count / 2];
	sample_count = 0;
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

static double one_row_us(void)
{
	PGconn *c = PQconnectdb(pg.info);

	PQclear(PQexec(c, "set synchronous_commit = on"));
	for (unsigned i = 0; i < rounds; i++) {
		int64_t since = now_ns();

		PGresult *result = PQexec(c, "update one set n = n + 1 where id = 1");
		ck_assert_int_eq(PQresultStatus(result), PGRES_COMMAND_OK);
		PQclear(result);
		sample(since);
	}
	PQfinish(c);
	return median_us();
}

static void make_one(void)
{
	sql("drop table if exists one");
	sql("create table one (id int primary key, n bigint)");
	sql("insert into one values (1, 0)");
	sql("grant select, update on one to dflock");
}

static void on_timed(void *arg, const struct store_reply *reply)
{
	ck_assert_int_eq(reply->status, STORE_OK);
	*(bool *)arg = true;
}

static double first_lock_us(void)
{
	for (unsigned i = 0; i < rounds; i++) {
		struct store_acquire one = want(1, WIRE_EXCLUSIVE);
		char name[32];
		bool done = false;
		int64_t since = now_ns();

		snprintf(name, sizeof(name), "first %u", i);
		one.name = name;
		store_acquire(a.store, &one, on_timed, &done);
		quick_until(done);
		sample(since);
		done = false;
		store_release(a.store, name, token(1), false, on_timed, &done);
		quick_until(done);
	}
	return median_us();
}

/* a gives back what b waits for: until b has heard that it has it. */
static double hand_over_us(void)
{
	for (unsigned i = 0; i < rounds; i++) {
		bool done = false;

		ck_assert_int_eq(acquire(&a, 2 * i + 10, WIRE_EXCLUSIVE), STORE_OK);
		ck_assert_int_eq(acquire(&b, 2 * i + 11, WIRE_EXCLUSIVE), STORE_WAIT);
		b.messages = 0;
		int64_t since = now_ns();
		store_release(a.store, NAME, token(2 * i + 10), false, on_timed, &done);
		quick_until(b.messages > 0);
		sample(since);
		ck_assert_int_eq(b.message.kind, STORE_MSG_GRANTED);
		ck_assert_int_eq(release(&b, 2 * i + 11), STORE_OK);
	}
	return median_us();
}

TEST(a_lock_beside_a_transaction)
{
	choose_rounds();
	make_one();
	start_both();
	first_lock_us(); /* warm */
	double row = one_row_us(), first = first_lock_us(), over = hand_over_us(), row_again = one_row_us();
	row = row < row_again ? row : row_again;
	report("one-row transaction %.0f us; first lock %.0f us (%.1f of it); hand-over %.0f us (%.1f of it)\n", row,
	       first, first / row, over, over / row);
	sql("drop table one");
}

/* ---- many clients, each with names of its own ---- */

static struct client {
	struct host host;
	char id[16], name[32];
	unsigned turn;
	int64_t since;
} clients[MANY];
static unsigned ended;

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
	sample(c->since);
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
	       MANY * (rounds / 2) / seconds, median_us());
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
	make_one();
	start_both();
	for (unsigned i = 0; i < count; i++) {
		char text[64];

		snprintf(text, sizeof(text), "listen dflock_of_nobody_%u", i);
		ears[i] = PQconnectdb(pg.admin);
		ck_assert_msg(PQstatus(ears[i]) == CONNECTION_OK, "%s", PQerrorMessage(ears[i]));
		PQclear(PQexec(ears[i], text));
	}
	first_lock_us();
	double row = one_row_us(), first = first_lock_us(), over = hand_over_us();
	report("%u listeners: one-row transaction %.0f us, first lock %.0f us, hand-over %.0f us\n", count, row, first,
	       over);
	for (unsigned i = 0; i < count; i++)
		PQfinish(ears[i]);
	sql("drop table one");
	sql("alter system reset all");
}
