/* store.h against a server that lost its memory, refuses, or is not what it should be. */
#include "tests/unit/store_hosts.h"

/* ---- the store loses its memory ---- */

TEST(flushall)
{
	char old[STORE_INC_BYTES];

	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	snprintf(old, sizeof(old), "%s", a.now);
	command("FLUSHALL");
	ck_assert_int_eq(beat(&a), STORE_INCARNATION);
	wait_until(a.changes == 2);
	ck_assert(store_in_grace(a.store));
	ck_assert_str_eq(a.old, old);
	ck_assert_str_eq(store_incarnation(a.store), a.now);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_GRACE);
	/* The record is there again; but b's leases went too, and it must hear of it. */
	ck_assert_int_eq(beat(&b), STORE_INCARNATION);
	wait_until(b.changes == 2);
	ck_assert_int_eq(beat(&b), STORE_OK);
	ck_assert_str_eq(a.now, b.now);
	assert_ok(store_open(b.store, STORE_OPEN_WATCHED, "", on_answer, &answer));
	ck_assert_int_eq(acquire(&b, 1, WIRE_EXCLUSIVE), STORE_OK);
}

TEST(restart)
{
	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	uint64_t fence = answer.reply.fence;
	redis_server_kill(&server);
	wait_until(a.downs == 1 && b.downs == 1);
	ck_assert(!store_is_up(a.store));
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_UNREACHABLE);
	redis_server_start(&server);
	wait_until(a.ups == 2 && b.ups == 2);
	ck_assert_uint_eq(a.changes, 2);
	ck_assert_str_ne(a.old, a.now);
	ck_assert_int_eq(ask(store_confirm(a.store, NAME, token(1), fence, on_answer, &answer)), STORE_GONE);
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_GRACE);
	assert_ok(store_open(b.store, STORE_OPEN_WATCHED, "", on_answer, &answer));
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_OK);
	ck_assert_uint_gt(answer.reply.fence, fence);
}

TEST(another_server_behind_the_connection)
{
	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	/* The connection survives this, the replication id does not. */
	command("REPLICAOF 127.0.0.1 1");
	command("REPLICAOF NO ONE");
	while (acquire(&b, 2, WIRE_EXCLUSIVE) == STORE_UNREACHABLE)
		wait_until(store_is_up(b.store));
	wait_until(b.changes == 2);
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_GRACE);
}

TEST(scripts_forgotten)
{
	start_both();
	command("SCRIPT FLUSH");
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	ck_assert_int_eq(beat(&b), STORE_OK);
	assert_ok(store_dump(a.store, &on_dump, &answer));
	json_decref(dumped);
	dumped = NULL;
	ck_assert_uint_eq(a.downs, 0);
}

TEST(another_ttl)
{
	start(&a, "host-a");
	wait_until(a.ups == 1);
	start_ttl(&b, "host-b", TTL_MS + 1000);
	wait_until(b.downs == 1);
	ck_assert_ptr_nonnull(strstr(b.why, "ttl_ms = 3000, this keeper is configured with 4000"));
	ck_assert_int_eq(beat(&b), STORE_UNREACHABLE);
	ck_assert_int_eq(ask(store_open(b.store, STORE_OPEN_WATCHED, "", on_answer, &answer)), STORE_UNREACHABLE);
	ck_assert_uint_eq(b.ups, 0);
	assert_ok(store_open(b.store, STORE_OPEN_FORCED, "", on_answer, &answer)); /* the operator says so */
	ck_assert_uint_eq(b.ups, 1);
	ck_assert(!store_in_grace(b.store));
	/* That began another incarnation, by which the other host finds out. */
	ck_assert_int_eq(ask(store_open(a.store, STORE_OPEN_WATCHED, "", on_answer, &answer)), STORE_INCARNATION);
	wait_until(a.downs == 1);
	ck_assert_ptr_nonnull(strstr(a.why, "ttl_ms = 4000, this keeper is configured with 3000"));
}

/* ---- refusals ---- */

TEST(errors_of_a_request)
{
	start_both();
	command("LPUSH dflock:{0}:lock:%s x", NAME);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_ERROR);
	ck_assert_ptr_nonnull(strstr(answer.error, "give dflock a database of its own"));
	command("DEL dflock:{0}:lock:%s", NAME);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	command("CONFIG SET maxmemory 1mb");
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_ERROR);
	ck_assert_ptr_nonnull(strstr(answer.error, "maxmemory"));
	if (atoi(store_version(a.store)) >= 7) {
		ck_assert_int_eq(beat(&a), STORE_OK);
		ck_assert_int_eq(release(&a, 1), STORE_OK);
	}
	ck_assert(store_is_up(a.store));
}

TEST(writes_that_would_be_refused)
{
	start(&a, "host-a");
	wait_until(a.ups == 1);
	assert_ok(store_try_write(a.store, on_answer, &answer));
	command("CONFIG SET maxmemory 1mb");
	ck_assert_int_eq(ask(store_try_write(a.store, on_answer, &answer)), STORE_ERROR);
	ck_assert_ptr_nonnull(strstr(answer.error, "raise its maxmemory"));
	command("CONFIG SET maxmemory 0");
	command("CONFIG SET min-replicas-to-write 1");
	ck_assert_int_eq(ask(store_try_write(a.store, on_answer, &answer)), STORE_ERROR);
	ck_assert_ptr_nonnull(strstr(answer.error, "replicas"));
	if (atoi(store_version(a.store)) >= 7)
		ck_assert_ptr_nonnull(strstr(store_risk(a.store), "if it has fewer than 1 replicas"));
	command("CONFIG SET min-replicas-to-write 0");
	assert_ok(store_try_write(a.store, on_answer, &answer));
	ck_assert_uint_eq(a.downs, 0);
	command("EVAL %s 0",
		"return redis.call('EXISTS', 'dflock:{0}:try') == 0 or redis.error_reply('something was left')");
}

TEST(servers_that_will_not_do)
{
	command("CONFIG SET maxmemory-policy allkeys-lru");
	refused(&a, "set it to noeviction");
	command("CONFIG SET maxmemory-policy volatile-lru");
	command("REPLICAOF 127.0.0.1 1");
	refused(&a, "it is a replica");
	command("REPLICAOF NO ONE");
	config.database = 99;
	refused(&a, "correct database");
	config.database = 3;
	start(&a, "host-a");
	wait_until(a.ups == 1);
}

TEST(passwords)
{
	config.password = "wrong";
	refused(&a, "remove password_file");
	command("CONFIG SET requirepass secret");
	refused(&a, "correct user and password_file");
	config.password = NULL;
	refused(&a, "set user and password_file");
	config.password = "secret";
	start(&a, "host-a");
	wait_until(a.ups == 1);
	stop(&a);
	config.user = "dflock";
	refused(&a, "correct user and password_file");
}

TEST(a_user_with_few_rights)
{
	command("ACL SETUSER poor on >x ~other:* +@all");
	command("ACL SETUSER mute on >x ~dflock:* resetchannels +@all");
	command("ACL SETUSER dflock on >x ~dflock:* resetchannels &dflock:* +@all -@dangerous +info");
	config.password = "x";
	config.user = "mute";
	refused(&a, "ACL SETUSER");
	config.user = "poor";
	refused(&a, "ACL SETUSER");
	config.user = "dflock";
	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_WAIT);
	ck_assert_int_eq(release(&a, 1), STORE_OK);
	wait_until(b.messages == 1);
	assert_ok(store_dump(a.store, &on_dump, &answer));
	json_decref(dumped);
	dumped = NULL;
}

TEST(names_and_ports)
{
	config = (struct config_store){.address = {.host = "localhost", .port = 1}, .shards = 1, .connect_ms = 60000};
	refused(&a, "connection refused");
	config.address.host = "127.0.0.1";
	refused(&a, "connection refused");
	config.address.host = "::1";
	start(&a, "host-x");
	ck_assert_str_eq(store_server(a.store), "[::1]:1");
	wait_until(a.downs == 1);
	stop(&a);
	config.address.host = "no such host.invalid";
	refused(&a, "cannot look up");
	start(&a, "host-a");
	uv_run(&loop, UV_RUN_NOWAIT); /* it is freed while the lookup is under way */
}
