/* store.h against a real server, in the ordinary course. */
#include "tests/unit/store_course.h"

/* ---- the ordinary course ---- */

TEST(coming_up)
{
	start(&a, "host-a");
	ck_assert(!store_is_up(a.store));
	ck_assert_str_eq(store_incarnation(a.store), "");
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_UNREACHABLE);
	ck_assert_str_ne(answer.error, "");
	wait_until(a.ups == 1);
	ck_assert(store_is_up(a.store));
	ck_assert_uint_eq(a.changes, 1);
	ck_assert_str_eq(a.old, "");
	ck_assert_str_eq(a.now, store_incarnation(a.store));
	ck_assert_uint_eq(a.downs, 0);
	ck_assert(store_in_grace(a.store));
	ck_assert_int_ge(atoi(store_version(a.store)), 6);
	ck_assert_ptr_nonnull(strstr(store_server(a.store), server.socket));
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_GRACE);
	assert_ok(store_open(a.store, STORE_OPEN_WATCHED, "", on_answer, &answer));
	ck_assert(!store_in_grace(a.store));
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	start(&b, "host-b"); /* a second one finds it open */
	wait_until(b.ups == 1);
	ck_assert(!store_in_grace(b.store));
}

static struct store_key_news told; /* the first */

static void on_beat_answer(void *arg, const struct store_reply *reply)
{
	if (reply->key_count)
		told = reply->keys[0];
	on_answer(arg, reply);
}

TEST(a_lease_with_a_key)
{
	start_both();
	command("CONFIG SET notify-keyspace-events Kgx");
	command("SET jobs other PX 60000");
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE, w.key = "string jobs"), STORE_TAKEN);
	ck_assert_str_eq(answer.reply.client, "other");
	ck_assert_int_gt(answer.reply.taken_ms, 50000);
	ck_assert_uint_gt(answer.reply.arrival, 0);
	store_watch_key(a.store, "string jobs");
	wait_until(a.keys == 1); /* the subscription stands */
	store_watch_key(a.store, "string jobs");
	command("PEXPIRE jobs 50000"); /* nothing that frees it */
	command("DEL jobs");
	wait_until(a.keys == 2);
	ck_assert_str_eq(a.key, "string jobs");
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE, w.key = "string jobs"), STORE_OK);
	store_unwatch_key(a.store, "string jobs");
	command("DEL jobs");
	ck_assert_int_eq(ask(store_beat(a.store, 0, 1, on_beat_answer, &answer)), STORE_OK);
	ck_assert_uint_eq(answer.reply.key_count, 1);
	ck_assert_int_eq(told.state, STORE_KEY_BACK);
	ck_assert_str_eq(told.token, token(1));
	ck_assert_uint_eq(a.keys, 2);
	ck_assert_int_eq(ask(store_beat(a.store, 0, 1, on_answer, &answer)), STORE_OK);
	ck_assert_uint_eq(answer.reply.key_count, 0);
	ck_assert_int_eq(acquire(&a, 3, WIRE_SHARED, w.key = "string jobs"), STORE_ERROR);
	ck_assert_int_eq(acquire(&a, 3, WIRE_EXCLUSIVE, w.key = "list jobs"), STORE_ERROR);
}

TEST(a_watch_outlives_its_connection)
{
	start_both();
	command("CONFIG SET notify-keyspace-events Kgx");
	store_watch_key(a.store, "redisson jobs");
	wait_until(a.keys == 2); /* two channels */
	command("CLIENT KILL TYPE pubsub");
	wait_until(a.ups == 2 && a.keys == 4);
	command("PUBLISH redisson_lock__channel:{jobs} 0");
	wait_until(a.keys == 5);
	command("SET jobs x PX 20");
	wait_until(a.keys == 6); /* it expired */
}
