/* What a lock costs beside a plain client's transaction, whatever server it is: prints what it measured. The servers are those of tests/unit. */
#ifndef DFLOCK_BENCH_SPEED_H
#define DFLOCK_BENCH_SPEED_H

#include "tests/unit/store_hosts.h"

#define MANY 8

static unsigned rounds = 1000;

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

#define quick_until(condition)                                                                                         \
	while (!(condition))                                                                                           \
	uv_run(&loop, UV_RUN_ONCE)

static void on_timed(void *arg, const struct store_reply *reply)
{
	ck_assert_msg(reply->status == STORE_OK, "%d %s", reply->status, reply->error ? reply->error : "");
	*(bool *)arg = true;
}

/* ---- the steps of a lock ---- */

static void a_lock_is_taken(unsigned i)
{
	ck_assert_int_eq(acquire(&a, 2 * i + 10, WIRE_EXCLUSIVE), STORE_OK);
}

static void another_host_waits(unsigned i)
{
	ck_assert_int_eq(acquire(&b, 2 * i + 11, WIRE_EXCLUSIVE), STORE_WAIT);
	b.messages = 0;
}

static void that_one_gives_it_back(unsigned i)
{
	ck_assert_int_eq(release(&b, 2 * i + 11), STORE_OK);
}

/* ---- how long they take ---- */

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
	a.messages = 0;
	another_host_waits(i);
	/* It has been asked for the lock, as a holder that is waited for has long been, and whatever its engine makes of that is over. */
	quick_until(a.messages > 0);
	ck_assert_int_eq(beat(&a), STORE_OK);
	int64_t since = now_ns();
	store_release(a.store, NAME, token(2 * i + 10), false, on_timed, &done);
	quick_until(b.messages > 0);
	sample(s, since);
	ck_assert_int_eq(b.message.kind, STORE_MSG_GRANTED);
	quick_until(done);
	that_one_gives_it_back(i);
}

/* In turn: whatever else the machine does meanwhile, it does to all three. `time_plain`: what a plain client of the server does. */
static void time_all(const char *where, const char *plain_name, void (*time_plain)(struct samples *s))
{
	static struct samples plain_took, first, over, warm;

	for (unsigned i = 0; i < rounds; i++)
		time_first_lock(&warm, i);
	median_us(&warm);
	for (unsigned i = 0; i < rounds; i++) {
		time_plain(&plain_took);
		time_first_lock(&first, i);
		time_hand_over(&over, i);
	}
	double plain_us = median_us(&plain_took), first_us = median_us(&first), over_us = median_us(&over);
	printf("%s: %s %.0f us; first lock %.0f us, %.1f of it (at most 4, on a disk); hand-over %.0f us, %.1f of it "
	       "(at most 2.5)\n",
	       where, plain_name, plain_us, first_us, first_us / plain_us, over_us, over_us / plain_us);
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
	printf("%d clients, names of their own: %.0f pairs/s, median of an acquire %.0f us\n", MANY,
	       MANY * (rounds / 2) / seconds, median_us(&acquires));
	for (unsigned i = 0; i < MANY; i++)
		stop(&clients[i].host);
}

#endif
