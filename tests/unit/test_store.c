/* store.h against a real Redis server: in the ordinary course, when that stops or loses its memory, and when it is freed meanwhile. What is
 * refused, and the line that says why: test_reply.c, test_fit.c, faults/test_store_refused.py. */
#include "tests/unit/store_course.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>

static bool in_turn; /* the two addresses change their places with each look-up */

/* In place of libc's: a name with two addresses, at the first of which no server listens. */
int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
	static __typeof__(&getaddrinfo) next;
	static unsigned asked;
	int ret;

	if (!next)
		next = (__typeof__(next))(uintptr_t)dlsym(RTLD_NEXT, "getaddrinfo");
	if (!host || strcmp(host, "two.invalid") != 0)
		return next(host, service, hints, out);
	bool turned = in_turn && asked++ % 2;
	ret = next(turned ? "127.0.0.1" : "127.0.0.2", service, hints, out);
	return ret ? ret : next(turned ? "127.0.0.2" : "127.0.0.1", service, hints, &(*out)->ai_next);
}

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
	assert_ok(store_try_write(b.store, on_answer, &answer));
	command("EVAL %s 0",
		"return redis.call('EXISTS', 'dflock:{0}:try') == 0 or redis.error_reply('something was left')");
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

/* redis_key_format was changed: both formats of a key have one channel of the server's. */
TEST(a_key_of_another_format)
{
	start_both();
	command("CONFIG SET notify-keyspace-events Kgx");
	store_watch_key(a.store, "string jobs");
	wait_until(a.keys == 1);
	store_watch_key(a.store, "redisson jobs");
	wait_until(a.keys == 3);
	store_unwatch_key(a.store, "string jobs");
	for (unsigned keys = 4; keys <= 5; keys++) {
		command("SET jobs x");
		command("DEL jobs");
		wait_until(a.keys == keys);
		ck_assert_str_eq(a.key, "redisson jobs");
		ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE),
				 STORE_OK); /* the first connection is a round trip on */
	}
}

TEST(a_connection_for_messages_that_is_lost)
{
	start_both();
	command("CONFIG SET notify-keyspace-events Kgx");
	store_watch_key(a.store, "redisson jobs");
	wait_until(a.keys == 2); /* two channels */
	command("CLIENT KILL TYPE pubsub");
	wait_until(a.ups == 2 && b.ups == 2 && a.keys == 4);
	ck_assert_uint_eq(a.downs, 1);
	command("PUBLISH redisson_lock__channel:{jobs} 0");
	wait_until(a.keys == 5);
	command("SET jobs x PX 20");
	wait_until(a.keys == 6); /* it expired */
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_WAIT);
	wait_until(a.messages == 1);
}

/* ---- a server that stops, or loses its memory ---- */

TEST(a_stopped_server)
{
	config.connect_ms = 150;
	start_both();
	struct asked lost[3] = {0};
	kill(server.pid, SIGSTOP);
	store_beat(a.store, 0, 0, on_answer, &lost[0]);
	struct store_acquire again = want(1, WIRE_EXCLUSIVE);
	store_acquire(a.store, &again, on_answer, &lost[1]);
	store_dump(a.store, &on_dump, &lost[2]);
	wait_until(a.downs == 1);
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(lost[i].answers, 1);
	ck_assert_int_eq(lost[1].reply.status, STORE_UNREACHABLE);
	ck_assert_ptr_nonnull(strstr(lost[1].error, "no answer within 150 ms"));
	ck_assert_ptr_nonnull(strstr(a.why, "no answer within 150 ms"));
	wait_until(b.downs == 1); /* it asked nothing, but the messages' connection is tried */
	kill(server.pid, SIGCONT);
	wait_until(a.ups == 2 && b.ups == 2);
	ck_assert_uint_eq(a.changes, 1);                            /* the same store as before */
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK); /* again, with the same token */
}

/* Nobody asks for anything. */
TEST(a_server_that_becomes_a_replica)
{
	start(&a, "host-a");
	wait_until(a.ups == 1);
	command("REPLICAOF 127.0.0.1 1");
	wait_until(a.downs == 1);
	ck_assert_msg(strstr(a.why, "it is a replica (role:slave): set the address of the master") != NULL, "%s",
		      a.why);
	command("REPLICAOF NO ONE");
	wait_until(a.ups == 2);
}

TEST_EACH(a_memory_that_is_lost, 2)
{
	char old[STORE_INC_BYTES];

	uint64_t fence = start_with_lock();
	snprintf(old, sizeof(old), "%s", a.now);
	if (_i) {
		redis_server_kill(&server);
		wait_until(a.downs == 1 && b.downs == 1);
		ck_assert(!store_is_up(a.store));
		ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_UNREACHABLE);
		redis_server_start(&server);
		wait_until(a.ups == 2 && b.ups == 2);
	} else {
		command("FLUSHALL");
		ck_assert_int_eq(beat(&a), STORE_INCARNATION);
		wait_until(a.changes == 2);
		ck_assert_int_eq(beat(&b),
				 STORE_INCARNATION); /* its leases went too, though the record is there again */
		wait_until(b.changes == 2);
	}
	ck_assert(store_in_grace(a.store));
	ck_assert_str_eq(a.old, old);
	ck_assert_str_eq(store_incarnation(a.store), a.now);
	ck_assert_str_eq(a.now, b.now);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_GRACE);
	ck_assert_int_eq(ask(store_confirm(a.store, NAME, token(1), fence, on_answer, &answer)), STORE_GONE);
	assert_ok(store_open(b.store, STORE_OPEN_WATCHED, "", on_answer, &answer));
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_OK);
	ck_assert_uint_gt(answer.reply.fence, fence);
}

TEST(names_and_ports)
{
	static char *const hosts[] = {"localhost", "127.0.0.1", "::1"};

	config = (struct config_store){.address = {.port = 1}, .shards = 1, .connect_ms = 60000};
	for (int i = 0; i < ROWS(hosts); i++) {
		config.address.host = hosts[i];
		refused(&a, i < 2 ? "connection refused" : "");
	}
	config.address.host = "no such host.invalid";
	refused(&a, "cannot look up");
	start(&a, "host-a");
	uv_run(&loop, UV_RUN_NOWAIT); /* it is freed while the lookup is under way */
}

/* A port of 127.0.0.1 where connections are taken, and nothing is answered. */
static int silent_port(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, len), 0);
	ck_assert_int_eq(listen(fd, 16), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &len), 0);
	return ntohs(address.sin_port);
}

/* Of a server, and of a sentinel. Each address gets its turn, in whichever order DNS says them. */
TEST_EACH(a_name_with_two_addresses, 4)
{
	struct config_address two = {.host = (char *)"two.invalid", .port = silent_port()};

	config = (struct config_store){.shards = 1, .connect_ms = 300};
	in_turn = _i & 2;
	if (_i & 1) {
		config.sentinels[0] = two;
		config.sentinel_count = 1;
		config.master = "m";
		config.replicas = 1;
	} else {
		config.address = two;
	}
	start(&a, "host-a");
	wait_until(strstr(store_last_error(a.store), "connection refused"));
	wait_until(strstr(store_last_error(a.store), "no answer within 300 ms"));
}

/* ---- freed ---- */

TEST(freed_while_it_would_open)
{
	struct asked lost = {0};

	start(&a, "host-a");
	wait_until(a.ups == 1);
	start_ttl(&b, "host-b", TTL_MS + 1000);
	wait_until(b.downs == 1);
	ck_assert_ptr_nonnull(strstr(b.why, "ttl_ms = 3000, this keeper is configured with 4000"));
	store_open(b.store, STORE_OPEN_FORCED, "", on_answer, &lost);
	stop(&b);
	ck_assert_uint_eq(lost.answers, 1);
	ck_assert_int_eq(lost.reply.status, STORE_UNREACHABLE);
}

TEST(freed_with_questions_open)
{
	struct asked lost[4] = {0};

	start_both();
	store_beat(a.store, 0, 0, on_answer, &lost[0]);
	store_hosts(a.store, on_hosts, &lost[1]);
	store_dump(a.store, &on_dump, &lost[2]);
	struct store_acquire bad = want(1, WIRE_EXCLUSIVE);
	bad.name = "";
	store_acquire(a.store, &bad, on_answer, &lost[3]);
	stop(&a);
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(lost[i].answers, 1);
	ck_assert_int_eq(lost[0].reply.status, STORE_UNREACHABLE);
	start(&a, "host-a");
	store_beat(a.store, 0, 0, on_answer, &lost[0]);
	stop(&a); /* before the loop ran at all */
	ck_assert_uint_eq(lost[0].answers, 2);
}
