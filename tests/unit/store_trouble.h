/* Trouble that every server may have, whatever it is: a network that is cut, a host that is stopped at each step. Whoever includes this says what
 * is the server's own: */
#ifndef DFLOCK_TESTS_UNIT_STORE_TROUBLE_H
#define DFLOCK_TESTS_UNIT_STORE_TROUBLE_H

#include "tests/unit/proxy.h"
#include "tests/unit/store_hosts.h"

#define SHORT_MS 1000

static struct proxy proxy;
/* Starts `proxy` in front of the server, and has `config` lead through it. */
static void trouble_proxy(void);
static void turn_proxy(void) { proxy_turn(&proxy); }
/* What nobody wants any more is removed from the server, at once. */
static void trouble_clean(void);
static struct config_store config_b; /* b's own, where a goes through a proxy */

/* a through the proxy, b without. store_new() keeps a pointer to the configuration. */
static void start_proxied(void)
{
	config_b = config;
	trouble_proxy();
	each_tick = turn_proxy;
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

/* ---- a network that is cut ---- */

/* A host that asks for something hears of it in time, and one that asks for nothing finds out by itself. */
TEST_EACH(a_network_that_passes_nothing_on, 2)
{
	config.connect_ms = SHORT_MS;
	start_proxied();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	proxy_tell(&proxy, PROXY_HOLD, 0);
	if (_i)
		wait_until(a.downs == 1);
	ck_assert_int_eq(timed(acquire(&a, 3, WIRE_EXCLUSIVE, w.name = "other")), STORE_UNREACHABLE);
	ck_assert_int_le(took_ms, _i ? SHORT_MS : SHORT_MS + SHORT_MS / 2);
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_WAIT);
	proxy_tell(&proxy, PROXY_PASS, 0); /* what was held comes late */
	wait_until(store_is_up(a.store));
	ck_assert_int_eq(acquire(&a, 3, WIRE_EXCLUSIVE, w.name = "other"), STORE_OK);
	ck_assert_int_eq(acquire(&b, 4, WIRE_EXCLUSIVE, w.name = "other"), STORE_WAIT);
	ck_assert_uint_eq(a.changes, 1);
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

/*
 * The host is stopped when it has had so many pieces; another one has the lock meanwhile, once or twice. In half of the rounds what nobody
 * wants is removed then: that it is not there has no version.
 */
TEST_EACH(a_host_that_is_stopped_at_each_step, 2 * STEPS)
{
	struct asked of_a = {.answers = 0};
	struct store_acquire one = want(1, WIRE_EXCLUSIVE);
	bool again = _i % 2, cleans = _i >= STEPS;
	uint64_t fence = 0;

	start_proxied();
	proxy_tell(&proxy, PROXY_COUNT, _i % STEPS / 2);
	store_acquire(a.store, &one, on_other, &of_a);
	for (int64_t until = server_clock_ms() + 60; server_clock_ms() < until && !of_a.answers;)
		uv_run(&loop, UV_RUN_ONCE);
	proxy_tell(&proxy, PROXY_HOLD, 0); /* also if the machine was busy */
	bool had = acquire(&b, 2, WIRE_EXCLUSIVE) == STORE_OK;
	if (had)
		fence = answer.reply.fence;
	if (had && (again || cleans))
		ck_assert_int_eq(release(&b, 2), STORE_OK);
	if (had && cleans)
		trouble_clean();
	if (had && again) {
		ck_assert_int_eq(acquire(&b, 3, WIRE_EXCLUSIVE), STORE_OK);
		ck_assert_uint_gt(answer.reply.fence, fence);
		fence = answer.reply.fence;
	}
	if (had && again && !cleans)
		ck_assert_int_eq(release(&b, 3), STORE_OK);
	proxy_tell(&proxy, PROXY_PASS, 0);
	wait_until(of_a.answers > 0);
	ck_assert_int_eq(of_a.reply.status, had && again == cleans ? STORE_WAIT : STORE_OK); /* b still has it */
	if (of_a.reply.status == STORE_OK)
		ck_assert_uint_gt(of_a.reply.fence, fence);
	proxy_end(&proxy);
}

static void start_with_another_ttl(void)
{
	start_proxied();
	stop(&a);
	start_ttl(&a, "host-c", 2 * TTL_MS);
	wait_until(a.downs == 1);
}

/* A host that changes ttl_ms is stopped at each step. Another one has a lock meanwhile, for the first time: of the two, one is refused. */
TEST_EACH(a_change_of_ttl_that_is_stopped_at_each_step, 2 * STEPS)
{
	struct asked of_a = {.answers = 0};

	start_with_another_ttl();
	proxy_tell(&proxy, PROXY_COUNT, _i);
	store_open(a.store, STORE_OPEN_FORCED, "", on_other, &of_a);
	wait_until(proxy.way == PROXY_HOLD || of_a.answers);
	bool had = acquire(&b, 2, WIRE_EXCLUSIVE) == STORE_OK;
	proxy_tell(&proxy, PROXY_PASS, 0);
	wait_until(of_a.answers > 0);
	ck_assert_msg(had != (of_a.reply.status == STORE_OK), "%d %d %s", had, of_a.reply.status, a.why);
	proxy_end(&proxy);
}

/* The connection breaks at the nth piece, also of connecting, or before an answer that grants: each time what was asked is asked again. */
TEST(a_connection_that_breaks_at_each_step)
{
	uint64_t fence = 0;

	start_proxied();
	for (int n = 0; n < 14; n++) {
		unsigned t = (unsigned)n + 10;
		int status = STORE_UNREACHABLE;

		proxy_tell(&proxy, PROXY_COUNT_CUT, n);
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

#endif
