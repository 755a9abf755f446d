/* A release that is prepared by the loop and fired by another thread: store.h, store/redis/link.h, store/redis/channel.h. */
#include "tests/unit/store_hosts.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define ROUNDS 400
#define MANY   40
#define MORE   8 /* questions of the loop in each round */

struct shooter {
	struct store_shot *shot;
	unsigned turns;
	atomic_bool over;
	bool fired;
	pthread_t thread;
};

static void *shoot(void *arg)
{
	struct shooter *s = arg;

	for (volatile unsigned i = 0; i < s->turns; i++)
		;
	s->fired = store_shot_fire(s->shot);
	atomic_store(&s->over, true);
	return NULL;
}

static void start_shooting(struct shooter *s, struct host *h, unsigned n, unsigned turns, struct asked *asked)
{
	*s = (struct shooter){.turns = turns};
	s->shot = store_prepare_release(h->store, NAME, token(n), false, on_answer, asked);
	ck_assert_ptr_nonnull(s->shot);
	ck_assert_int_eq(pthread_create(&s->thread, NULL, shoot, s), 0);
}

static bool end_shooting(struct shooter *s)
{
	pthread_join(s->thread, NULL);
	store_shot_free(s->shot);
	return s->fired;
}

/* The loop sends at the same time. Each answer belongs to its own question: a release is never answered GONE, and what
 * confirms nothing is answered nothing else. */
TEST(fired_while_the_loop_sends)
{
	unsigned seed = 4711;

	start_both();
	for (unsigned n = 1; n <= ROUNDS; n++) {
		struct asked released = {0}, gone[MORE] = {{0}};
		struct shooter s;

		ck_assert_int_eq(acquire(&a, n, WIRE_EXCLUSIVE), STORE_OK);
		start_shooting(&s, &a, n, rand_r(&seed) % 60000, &released);
		for (unsigned i = 0; i < MORE; i++)
			store_confirm(a.store, NAME, token(n + 1000000), 1, on_answer, &gone[i]);
		ck_assert(end_shooting(&s));
		wait_until(released.answers == 1);
		ck_assert_int_eq(released.reply.status, STORE_OK);
		for (unsigned i = 0; i < MORE; i++) {
			wait_until(gone[i].answers == 1);
			ck_assert_int_eq(gone[i].reply.status, STORE_GONE);
		}
	}
	ck_assert_uint_eq(a.downs, 0);
	ck_assert_int_eq(acquire(&b, 5000000, WIRE_EXCLUSIVE), STORE_OK); /* nothing is left */
	ck_assert_uint_eq(store_counts(a.store)->asked[SCRIPT_RELEASE], ROUNDS);
}

TEST(not_fired)
{
	uint64_t fence = start_with_lock();
	store_shot_free(store_prepare_release(a.store, NAME, token(1), false, on_answer, &answer));
	assert_ok(store_confirm(a.store, NAME, token(1), fence, on_answer, &answer));
	ck_assert_ptr_null(store_prepare_release(a.store, NAME, "no token", false, on_answer, &answer));
	ck_assert_ptr_null(store_prepare_release(a.store, "", token(1), false, on_answer, &answer));
}

TEST(the_store_is_away)
{
	struct asked released = {0};
	struct shooter s;

	start(&a, "host-a");
	ck_assert_ptr_null(store_prepare_release(a.store, NAME, token(1), false, on_answer, &released));
	wait_until(a.ups == 1);
	s.shot = store_prepare_release(a.store, NAME, token(1), false, on_answer, &released);
	redis_server_kill(&server);
	wait_until(a.downs == 1);
	ck_assert(!store_shot_fire(s.shot));
	store_shot_free(s.shot);
	for (int i = 0; i < 20; i++)
		uv_run(&loop, UV_RUN_ONCE);
	ck_assert_uint_eq(released.answers, 0);
}

/* It was sent, and the server never answers. No timer runs for it until the next command: that one finds it out. */
TEST_EACH(no_answer, 2)
{
	struct asked released = {0}, beaten = {0};
	struct shooter s;

	start_both();
	kill(server.pid, SIGSTOP);
	start_shooting(&s, &a, 1, 0, &released);
	ck_assert(end_shooting(&s));
	if (_i)
		store_beat(a.store, 0, 0, on_answer, &beaten);
	else
		kill(server.pid, SIGKILL);
	wait_until(released.answers == 1);
	ck_assert_int_eq(released.reply.status, STORE_UNREACHABLE);
	ck_assert_uint_eq(a.downs, 1);
	ck_assert(!_i || beaten.answers == 1);
	kill(server.pid, SIGCONT);
}

/* The socket takes no more: nothing is sent, whatever waits before it. */
TEST(no_room)
{
	static char big[60000];
	struct asked released = {0}, many[MANY] = {{0}};
	struct shooter s;

	config.connect_ms =
		20000; /* the server packs all these jobs again for each answer, on a machine that may be busy */
	start_both();
	kill(server.pid, SIGSTOP);
	memset(big, 'x', sizeof(big) - 1);
	for (unsigned i = 0; i < MANY; i++) {
		struct store_acquire w = want(i + 10, WIRE_EXCLUSIVE);

		w.job = big;
		store_acquire(a.store, &w, on_answer, &many[i]);
	}
	start_shooting(&s, &a, 1, 0, &released);
	ck_assert(!end_shooting(&s));
	kill(server.pid, SIGCONT);
	for (unsigned i = 0; i < MANY; i++)
		wait_until(many[i].answers == 1);
	ck_assert_uint_eq(released.answers + a.downs, 0);
}
