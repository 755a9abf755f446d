/* store/zookeeper/: store.h against an ensemble of three ZooKeepers. */
#include <dlfcn.h>
#include <sched.h>
#include <stdatomic.h>

#include "tests/unit/zookeeper_server.h"
/* In front of the tests that these have. */
#include "tests/unit/store_course.h"
#include "tests/unit/store_race.h"

static void tell_b(unsigned times)
{
	for (unsigned i = 0; i < times; i++)
		store_tell(a.store, "host-b", &(struct store_message){.kind = STORE_MSG_TWICE});
	assert_ok(store_beat(a.store, 0, 0, on_answer, &answer));
}

/* ---- many hosts at once ---- */

static const unsigned races[] = {RACERS, 4}; /* names */

/* Nodes that have just become empty go at once, and are made anew. */
static unsigned cleaned;
static void clean(unsigned n)
{
	struct zookeeper *zk = racers[n % RACERS].host.store->at;

	cleaned += zk->cleaned;
	zk->cleaned = 0;
	zk_clean(zk, ZK_LOCK, 0);
}

TEST_EACH(nodes_that_have_nothing_go_meanwhile, ROWS(races))
{
	ck_assert_uint_eq(race(races[_i], 200, clean), 0);
	ck_assert(races[_i] < RACERS || cleaned > 0); /* a name that many want is hardly ever free */
}

static void clean_all(int64_t older_ms)
{
	static const enum zk_kind kinds[] = {ZK_LOCK, ZK_HOST, ZK_MAILBOX, ZK_RULE, ZK_TEXT};
	struct zookeeper *zk = a.store->at;

	for (unsigned i = 0; i < 15; i++) {
		zk_clean(zk, kinds[i % 5], older_ms);
		wait_until(!zk->clean);
	}
}

TEST(nodes_that_have_nothing_go)
{
	uint64_t fence = 0;
	char name[32];

	start_both();
	struct zookeeper *zk = a.store->at;
	uv_timer_stop(&a.store->ping); /* else it cleans by itself, soon */
	for (unsigned i = 0; i < 60; i++) {
		snprintf(name, sizeof(name), "lock %u", i);
		ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE, w.name = name), STORE_OK);
		fence = answer.reply.fence;
		if (i)
			assert_ok(store_release(a.store, name, token(1), false, on_answer, &answer));
	}
	tell_b(3);
	assert_ok(store_leave(b.store, on_answer, &answer));
	stop(&b);
	uint64_t later = zk->clean_ns;
	clean_all(60000);
	ck_assert_uint_eq(names_in("/locks"), 60);
	ck_assert_uint_eq(zk->clean_ns, later);
	clean_all(0);
	ck_assert_uint_eq(zk->clean_ns, 0); /* there was much to remove */
	ck_assert_uint_eq(names_in("/locks"), 1);
	ck_assert_uint_eq(names_in("/names"), 1);
	ck_assert_uint_eq(names_in("/hosts"), 1);
	ck_assert_uint_eq(names_in("/messages"), 1);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE, w.name = "lock 7"), STORE_OK);
	ck_assert_uint_gt(answer.reply.fence, fence);
}

/* Nobody locks these names again, so no rule looks at their rests. */
TEST(rests_that_are_over_keep_no_node)
{
	char name[32];

	start_both();
	for (unsigned i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "lock %u", i);
		ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE, w.name = name, w.rest_ms = i ? 1 : 600000), STORE_OK);
		assert_ok(store_release(a.store, name, token(1), false, on_answer, &answer));
	}
	wait_until((clean_all(0), names_in("/locks")) == 1);
	acquire(&a, 2, WIRE_EXCLUSIVE, w.name = "lock 0");
	ck_assert_int_gt(answer.reply.rest_ms, 0);
}

/* More than goes into one multi: a server closes the connection at one that is too large. */
TEST(full_mailboxes_of_many_hosts_go)
{
	static char paths[64][600];
	static zoo_op_t ops[64];
	static zoo_op_result_t results[64];
	struct zookeeper *zk;

	start_both();
	ck_assert_int_eq(beat(&a), STORE_OK);
	ck_assert_int_eq(beat(&b), STORE_OK);
	zk = a.store->at;
	for (int i = 0; i < 60; i++) {
		snprintf(paths[0], sizeof(paths[0]), "%s/messages/gone-%d", path, i);
		ck_assert_int_eq(
			other_call(zoo_acreate(other, paths[0], "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, other_on_string, NULL)),
			ZOK);
		for (int n = 0; n < 64; n++) {
			snprintf(paths[n], sizeof(paths[0]), "%s/messages/gone-%d/%0400d~%010d", path, i, 0, n);
			zoo_create_op_init(&ops[n], paths[n], "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
		}
		ck_assert_int_eq(other_call(zoo_amulti(other, 64, ops, results, other_on_void, NULL)), ZOK);
		uv_run(&loop, UV_RUN_NOWAIT); /* else the hosts' connections would count as silent before long */
	}
	for (int i = 0; i < 40 && names_in("/messages") > 2; i++) {
		zk_clean(zk, ZK_MAILBOX, 0);
		wait_until(!zk->clean);
	}
	ck_assert_msg(a.downs == 0, "%s", a.why);
	ck_assert_uint_eq(names_in("/messages"), 2);
}

/* ---- very many names ---- */

#define MANY_NAMES 8500

/* As locks that nobody has any more. */
static void make_names(void)
{
	static char paths[500][64];
	static zoo_op_t ops[500];
	static zoo_op_result_t results[500];

	for (int i = 0; i < MANY_NAMES; i++) {
		snprintf(paths[i % 500], sizeof(paths[0]), "%s/locks/lock %d", path, i);
		zoo_create_op_init(&ops[i % 500], paths[i % 500], "dflock 1\nfence 1\n7\n", 19, &ZOO_OPEN_ACL_UNSAFE, 0,
				   NULL, 0);
		if (i % 500 != 499)
			continue;
		ck_assert_int_eq(other_call(zoo_amulti(other, 500, ops, results, other_on_void, NULL)), ZOK);
		uv_run(&loop, UV_RUN_NOWAIT);
	}
}

TEST_EACH(all_names_are_looked_at, 2)
{
	struct store_acquire w = want(1, WIRE_EXCLUSIVE);
	struct asked opened = {.answers = 0};

	start(&a, "host-a");
	start(&b, "host-b");
	wait_until(a.ups == 1 && b.ups == 1);
	beat(&b); /* a host that has no node yet writes the record, too */
	ck_assert_uint_eq(names_in("/hosts"), 1);
	struct zookeeper *zk = a.store->at;
	make_names();
	store_open(a.store, STORE_OPEN_NEW, "", on_answer, &opened);
	const struct zk_node *node = NULL;
	wait_until(zk->first && (node = zk_find(zk, zk->first, ZK_LOCK, "lock 7")) && node->loaded);
	if (_i) { /* a lease is put back, of a name that has just been looked at */
		assert_ok(store_reclaim(b.store, "lock 7", w.file, w.token, 5, &w.range, NULL, on_answer, &answer));
		ck_assert_uint_eq(opened.answers, 0);
	}
	wait_longer_until(opened.answers > 0);
	ck_assert_msg(opened.reply.status == (_i ? STORE_ERROR : STORE_OK), "%s", opened.error);
	ck_assert(!_i || strstr(opened.error, "leases of 1 lock (lock 7 of host-b)"));
}

/* Rules are for people: their nodes go when their time is over. */
TEST(texts_of_rules_go)
{
	static const int64_t keeps_ms[] = {1, 60000};
	struct store_posting posting = {.digest = "0123456789abcdef", .text = "x"};

	start_both();
	ck_assert_int_eq(beat(&a), STORE_OK); /* else its node and its messages are cleaned, too */
	for (int i = 0; i < 2; i++) {
		posting.place = i ? "q" : "p";
		posting.keep_ms = keeps_ms[i];
		assert_ok(store_post_rules(a.store, &posting, on_answer, &answer));
		posting.digest = "1123456789abcdef";
	}
	ck_assert_uint_eq(names_in("/texts"), 2);
	wait_until((clean_all(0), names_in("/texts")) ==
		   1);              /* a host's clock is behind for as long as an answer takes */
	for (int i = 0; i < 2; i++) /* each looks at the places of others, too */
		assert_ok(store_post_rules(a.store, &posting, on_answer, &answer));
	wait_until((clean_all(0), names_in("/rules")) == 1);
	ck_assert_uint_eq(names_in("/texts"), 1);
}

/* ---- connections ---- */

TEST(a_session_that_has_expired_costs_a_connection)
{
	config.connect_ms = 1500; /* the session lasts as long */
	uint64_t fence = start_with_lock();
	zookeeper_close(other);
	for (int64_t limit = server_clock_ms() + 20000; connections() > 0;) { /* the loop does not run */
		ck_assert(server_clock_ms() < limit);
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	}
	other_start();
	wait_longer_until(a.ups == 2 && b.ups == 2);
	ck_assert_uint_eq(a.changes, 1);
	assert_ok(store_confirm(a.store, NAME, token(1), fence, on_answer, &answer));
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_WAIT);
	wait_until(a.messages == 1);
}

static int server_with(const struct host *h)
{
	const char *port = strrchr(store_server(h->store), ':');

	for (int i = 0; i < SERVERS; i++)
		if (port && atoi(port + 1) == servers[i].port)
			return i;
	ck_abort_msg("%s", store_server(h->store));
}

TEST(a_server_that_stops_answering)
{
	config.connect_ms = 2500;
	start_both();
	int stopped = server_with(&a);
	stop_server(stopped);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_UNREACHABLE);
	ck_assert_msg(strstr(answer.error, "no answer within 2500 ms") || strstr(answer.error, "timeout"), "%s",
		      answer.error);
	wait_longer_until(a.ups == 2);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	kill(servers[stopped].pid, SIGCONT);
	wait_longer_until(store_is_up(b.store));
	ck_assert_uint_eq(a.changes, 1);
	ck_assert_uint_eq(b.changes, 1);
	wait_for_all();
}

TEST(servers_that_are_not_there)
{
	char names[256];

	snprintf(names, sizeof(names), "127.0.0.1:1,[::1]:1,localhost:%d%s", servers[1].port, path);
	config.zookeeper = names;
	start(&a, "host-a");
	wait_until(a.ups == 1);
	stop(&a);
	config.zookeeper = "127.0.0.1:1/dflock";
	refused(&a, "cannot connect to 127.0.0.1:1: Connection refused");
}

/* ---- a name server that is silent ---- */

static atomic_uint look_ups;
static atomic_bool names_answer;

/* In place of libc's. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
	static __typeof__(&getaddrinfo) next;

	if (!next)
		next = (__typeof__(next))(uintptr_t)dlsym(RTLD_NEXT, "getaddrinfo");
	if (name && strcmp(name, "silent.example") == 0) {
		atomic_fetch_add(&look_ups, 1);
		while (!atomic_load(&names_answer))
			sched_yield();
		return EAI_AGAIN;
	}
	return next(name, service, hints, found);
}

/* libuv has two threads for them. Those of other stores wait behind whatever waits for these. */
TEST(look_ups_that_hang_do_not_queue)
{
	config.zookeeper = "silent.example:1/dflock";
	config.connect_ms = 100;
	start(&a, "host-a");
	wait_until(a.store->retry_ms >= 2000);
	stop(&a);
	atomic_store(&names_answer, true);
	wait_until(loop.active_reqs.count == 0);
	ck_assert_uint_le(atomic_load(&look_ups), 2);
}

/* ---- messages ---- */

TEST(messages_for_a_host_that_is_away_have_an_end)
{
	uint64_t seat[2] = {0};

	start(&a, "host-a");
	start(&b, "host-b");
	store_keep_seat(b.store, seat);
	wait_until(a.ups == 1 && b.ups == 1);
	stop(&b);
	tell_b(70);
	ck_assert_uint_eq(names_in("/messages/host-b"), 64);
	start(&b, "host-b");
	store_keep_seat(b.store, seat);
	wait_until(b.ups == 1);
	tell_b(70);
	wait_until(b.messages == 70);
	wait_until(names_in("/messages/host-b") == 0);
}

static int32_t other_version;
static void other_on_version(int rc, const struct Stat *stat, const void *arg)
{
	other_version = rc == ZOK ? stat->version : -1;
	other_on_void(rc, arg);
}

static int32_t version_of(const char *below)
{
	other_call(zoo_aexists(other, at(below), 0, other_on_version, NULL));
	return other_version;
}

/* It has no other node, so its mailbox is nobody's if it is old. */
TEST(a_host_that_asks_for_nothing_keeps_its_mailbox)
{
	start(&a, "host-a");
	wait_until(a.ups == 1);
	((struct zookeeper *)a.store->at)->clean_ns = 0;
	wait_until(version_of("/messages/host-a") > 0);
	ck_assert_uint_eq(names_in("/hosts"), 0);
}

/* ---- what is looked at before it is asked for ---- */

static const char *lock_node(void) { return at("/locks/%2fvar%2flock%2fjob one.lock"); }

static void write_into_the_lock(void)
{
	ck_assert_int_eq(
		other_call(zoo_aset(other, lock_node(), "dflock 1\nlock 7\nhello\n", 22, -1, other_on_stat, NULL)),
		ZOK);
}

static unsigned looks(void)
{
	const struct zookeeper *zk = a.store->at;
	unsigned count = 0;

	for (int i = 0; i < ZK_SEEN; i++)
		count += zk->seen[i].data != NULL;
	return count;
}

static void b_waits_for_a(void)
{
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	ck_assert_uint_eq(looks(), 0);
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_WAIT);
	wait_until(looks() == 2); /* at the lock and the record */
	b.messages = 0;
}

TEST_EACH(a_release_uses_what_was_looked_at_unless_it_has_changed, 2)
{
	start_both();
	b_waits_for_a();
	if (_i) /* nobody tells a that b has given up */
		ck_assert_int_eq(release(&b, 2), STORE_OK);
	wait_until(looks() == 2); /* b may have asked again, and a looks anew */
	ck_assert_int_eq(release(&a, 1), STORE_OK);
	ck_assert_uint_eq(looks(), 0);
	ck_assert_int_eq(acquire(&b, _i ? 3 : 2, WIRE_EXCLUSIVE), STORE_OK);
	ck_assert_uint_eq(b.messages, !_i);
	ck_assert(_i || b.message.kind == STORE_MSG_GRANTED);
}

/* Everything that a release reads was looked at, and somebody else's text is nobody's lock. */
TEST(what_was_looked_at_may_be_somebody_elses)
{
	start_with_lock();
	zk_look_ahead(a.store->at, NAME);
	wait_until(looks() == 2);
	write_into_the_lock();
	assert_ok(store_beat(a.store, 0, 0, on_answer, &answer)); /* its server may be a follower: now it knows */
	zk_look_ahead(a.store->at, NAME);
	assert_ok(store_beat(a.store, 0, 0, on_answer, &answer)); /* behind both looks */
	ck_assert_int_eq(release(&a, 1), STORE_ERROR);
	ck_assert_ptr_nonnull(strstr(answer.error, "dflock did not write"));
}

TEST(no_look_serves_after_a_change_of_ones_own)
{
	unsigned asked;

	start_both();
	b_waits_for_a();
	asked = a.messages + a.ups;
	ck_assert_int_eq(acquire(&a, 3, WIRE_EXCLUSIVE), STORE_WAIT);
	/* b may ask again, and then a looks anew; and a new connection forgets all looks. */
	ck_assert(looks() == 1 || a.messages + a.ups != asked);
}

/* ---- what was lost ---- */

TEST(a_tree_that_somebody_removed_is_another_memory)
{
	uint64_t fence = start_with_lock();
	other_remove(path);
	ck_assert_int_eq(beat(&a), STORE_UNREACHABLE);
	beat(&b);
	wait_until(a.changes == 2 && b.changes == 2);
	ck_assert(store_in_grace(a.store));
	assert_ok(store_open(a.store, STORE_OPEN_FORCED, "", on_answer, &answer));
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_OK);
	ck_assert_uint_gt(answer.reply.fence, fence);
}

TEST(what_knows_of_a_lock_may_be_removed)
{
	start_with_lock();
	stop(&a);
	stop(&b);
	start_ttl(&a, "host-c", TTL_MS + 1000); /* another ttl_ms is another incarnation, which is written there */
	wait_until(a.downs == 1);
	ck_assert_int_eq(
		other_call(zoo_adelete(other, at("/names/%2fvar%2flock%2fjob one.lock"), -1, other_on_void, NULL)),
		ZOK);
	for (int64_t last = server_clock_ms() + 20000;
	     ask(store_open(a.store, STORE_OPEN_FORCED, "", on_answer, &answer)) != STORE_OK;)
		ck_assert_msg(server_clock_ms() < last, "%s", answer.error);
	ck_assert_int_eq(acquire(&a, 2, WIRE_EXCLUSIVE), STORE_WAIT);
	ck_assert_uint_eq(names_in("/names"), 1);
}

TEST(a_lock_that_somebody_removed_is_found_out)
{
	start_with_lock();
	for (unsigned round = 1; round < 3; round++) {
		ck_assert_int_eq(other_call(zoo_adelete(other, lock_node(), -1, other_on_void, NULL)), ZOK);
		ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_INCARNATION);
		wait_until(b.changes == 1 + round);
		ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_GRACE);
		beat(&a);
		wait_until(a.changes == 1 + round);
		assert_ok(store_open(a.store, STORE_OPEN_FORCED, "", on_answer, &answer));
		ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_OK);
	}
}

/* ---- what somebody else wrote ---- */

TEST(what_will_not_do_is_refused)
{
	start_both();
	stop(&a);
	stop(&b);
	ck_assert_int_eq(other_call(zoo_aset(other, at("/store"), "hello", 5, -1, other_on_stat, NULL)), ZOK);
	refused(&a, "was not written by this version of dflock");
	other_remove(at("/messages"));
	refused(&a, "a part is missing: remove the rest");
}

TEST(a_node_that_somebody_changed)
{
	struct ACL only_read = {ZOO_PERM_READ, {"world", "anyone"}};
	struct ACL_vector acl = {1, &only_read};

	start_with_lock();
	write_into_the_lock();
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_ERROR);
	ck_assert_msg(strstr(answer.error,
			     "dflock did not write /dflock/locks/%2fvar%2flock%2fjob one.lock: remove it") != NULL,
		      "%s", answer.error);
	ck_assert_int_eq(beat(&b), STORE_OK);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE, w.name = "other"), STORE_OK);
	ck_assert_int_eq(other_call(zoo_aset_acl(other, at("/locks/other"), -1, &acl, other_on_void, NULL)), ZOK);
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE, w.name = "other"), STORE_UNREACHABLE);
	ck_assert_msg(strstr(answer.error, "the ACL of /dflock/locks/other forbids") != NULL, "%s", answer.error);
	ck_assert_str_eq(store_trouble(b.store), "cannot be used");
}

TEST(the_acl_of_the_root_stands_for_all_below)
{
	struct ACL only = {ZOO_PERM_ALL, {"digest", "dflock:aImgGgd6+9CnBEovfQoCMeWumcM="}}; /* secret */
	struct ACL_vector acl = {1, &only};

	ck_assert_int_eq(other_call(zoo_acreate(other, path, "", 0, &acl, 0, other_on_string, NULL)), ZOK);
	refused(&a, "the ACL of /dflock forbids what dflock needs");
	config.password = "secret";
	start_with_lock();
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_WAIT);
	wait_until(a.messages == 1);
	for (const char *const *node =
		     (const char *const[]){"/store", "/locks", "/hosts/host-a", "/messages/host-b", NULL};
	     *node; node++)
		ck_assert_int_eq(other_call(zoo_aset(other, at(*node), "", 0, -1, other_on_stat, NULL)), ZNOAUTH);
	ck_assert_int_eq(other_call(zoo_aset(other, lock_node(), "", 0, -1, other_on_stat, NULL)), ZNOAUTH);
	ck_assert_int_eq(other_call(zoo_add_auth(other, "digest", "dflock:secret", 13, other_on_void, NULL)), ZOK);
	/* Another one, from which the keeper learns it soon. */
	struct ACL both[] = {only, {ZOO_PERM_ALL, {"world", "anyone"}}};
	struct ACL_vector wider = {2, both};
	ck_assert_int_eq(other_call(zoo_aset_acl(other, path, -1, &wider, other_on_void, NULL)), ZOK);
	wait_until(((struct zookeeper *)a.store->at)->acl.count == 2);
	ck_assert_int_eq(acquire(&a, 3, WIRE_EXCLUSIVE, w.name = "other"), STORE_OK);
	zookeeper_close(other);
	other_start();
	ck_assert_int_eq(other_call(zoo_aset(other, at("/locks/other"), "", 0, -1, other_on_stat, NULL)), ZOK);
	ck_assert_int_eq(other_call(zoo_aset(other, at("/store"), "", 0, -1, other_on_stat, NULL)), ZNOAUTH);
	ck_assert_int_eq(other_call(zoo_add_auth(other, "digest", "dflock:secret", 13, other_on_void, NULL)), ZOK);
	other_remove(path); /* nobody else could */
}

/* Nobody may make a node beside it, or make it. */
TEST(a_root_that_is_there_is_not_made)
{
	struct ACL only_read = {ZOO_PERM_READ | ZOO_PERM_ADMIN, {"world", "anyone"}},
		   all = {ZOO_PERM_ALL, {"world", "anyone"}};
	struct ACL_vector closed = {1, &only_read}, open = {1, &all};

	ck_assert_int_eq(other_call(zoo_acreate(other, path, "", 0, &open, 0, other_on_string, NULL)), ZOK);
	ck_assert_int_eq(other_call(zoo_aset_acl(other, "/", -1, &closed, other_on_void, NULL)), ZOK);
	start(&a, "host-a");
	for (int64_t limit = server_clock_ms() + LIMIT_MS; !a.ups && !a.downs && server_clock_ms() < limit;)
		uv_run(&loop, UV_RUN_ONCE);
	ck_assert_int_eq(other_call(zoo_aset_acl(other, "/", -1, &open, other_on_void, NULL)), ZOK);
	ck_assert_msg(a.ups == 1, "%s", a.why);
}

/* ---- servers that end: the last tests, since each one after them must start these servers again ---- */

static void kill_the_leader(unsigned n)
{
	int first = leader();

	kill_server(first);
	ck_assert_int_ne(leader(), first);
	start_server(first);
}

TEST(a_leader_that_is_killed)
{
	ck_assert_uint_ge(race(1, 1, kill_the_leader), 1);
	wait_for_all();
}

TEST(a_server_that_ends_is_said_to_have_closed)
{
	start(&a, "host-a");
	wait_until(a.ups == 1);
	int ended = server_with(&a);
	kill_server(ended);
	wait_until(a.downs == 1);
	ck_assert_msg(strstr(a.why, ": the server closed the connection") != NULL, "%s", a.why);
	start_server(ended);
	wait_for_all();
}

/* `change` is done to the folder of each server, as $0. */
static void restart_all(const char *change)
{
	char command[256];

	for (int i = 0; i < SERVERS; i++)
		kill_server(i);
	for (int i = 0; i < SERVERS; i++) {
		snprintf(command, sizeof(command), "cd %s && sh -c '%s' %d", dir, change, i);
		ck_assert_int_eq(system(command), 0);
		start_server(i);
	}
	wait_for_all();
}

TEST(an_ensemble_that_was_killed_keeps_what_it_said)
{
	uint64_t fence = start_with_lock();
	restart_all("true");
	wait_longer_until(a.ups == 2 && b.ups == 2);
	ck_assert_uint_eq(a.changes, 1);
	assert_ok(store_confirm(a.store, NAME, token(1), fence, on_answer, &answer));
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_WAIT);
}

static struct kept {
	uint64_t seat[2], seen[2];
} kept[2];

static void start_one_kept(int i)
{
	struct host *h = i ? &b : &a;

	start(h, i ? "host-b" : "host-a");
	store_keep_seat(h->store, kept[i].seat);
	store_keep_seen(h->store, kept[i].seen);
	wait_longer_until(h->ups >= 1);
}

static void start_kept(void)
{
	start_one_kept(0);
	start_one_kept(1);
}

static void copy_folders(void)
{
	char command[256];

	snprintf(command, sizeof(command), "cd %s && for i in 0 1 2; do cp -a $i $i.before; done", dir);
	ck_assert_int_eq(system(command), 0);
}

static void take_the_copies(void) { restart_all("rm -rf $0 && mv $0.before $0"); }

/* Copied while they ran: the next leader's numbers are larger than all that was seen. The keeper finds out, or the next one does. */
TEST_EACH(folders_from_before_are_another_memory, 2)
{
	start_kept();
	assert_ok(store_open(a.store, STORE_OPEN_FORCED, "", on_answer, &answer));
	copy_folders();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	for (unsigned i = 0; i < 100; i++) /* the servers' own steps count, too */
		ck_assert_int_eq(beat(&a), STORE_OK);
	if (_i) {
		stop(&a);
		stop(&b);
	}
	take_the_copies();
	if (_i) {
		start_kept();
	} else {
		wait_longer_until(a.changes == 2 && store_is_up(a.store) && store_is_up(b.store));
		beat(&b); /* b may have been back before a wrote the new memory: then this beat tells b */
		wait_longer_until(b.changes == 2 && store_is_up(b.store));
	}
	ck_assert(store_in_grace(a.store));
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_GRACE);
}

/* The backup has no node of host-a. host-c, which has seen nothing of the ensemble, comes before host-a and makes a node. */
TEST(a_host_that_came_after_the_backup_finds_it_out)
{
	start_one_kept(1);
	assert_ok(store_open(b.store, STORE_OPEN_FORCED, "", on_answer, &answer));
	copy_folders();
	start_one_kept(0);
	ck_assert_int_eq(beat(&a), STORE_OK);
	wait_until(kept[0].seen[STORE_SEEN_NUMBER]);
	stop(&a);
	stop(&b);
	take_the_copies();
	start(&b, "host-c");
	wait_longer_until(b.ups == 1);
	ck_assert_int_eq(beat(&b), STORE_OK);
	ck_assert(!store_in_grace(b.store));
	start_one_kept(0);
	ck_assert(store_in_grace(a.store));
}

TEST(a_host_whose_node_was_cleaned_away_takes_that_for_no_backup)
{
	start_kept();
	assert_ok(store_open(a.store, STORE_OPEN_FORCED, "", on_answer, &answer));
	ck_assert_int_eq(beat(&a), STORE_OK);
	ck_assert_int_eq(beat(&b), STORE_OK);
	assert_ok(store_leave(b.store, on_answer, &answer));
	stop(&b);
	clean_all(0);
	ck_assert_uint_eq(names_in("/hosts"), 1);
	start_one_kept(1);
	ck_assert(!store_in_grace(b.store));
	assert_ok(store_leave(b.store, on_answer, &answer)); /* it has none, and makes none */
	stop(&b);
	start_one_kept(1);
	ck_assert(!store_in_grace(b.store));
	/* Another id of a host has seen nothing. */
	stop(&a);
	start(&a, "host-c");
	store_keep_seen(a.store, kept[0].seen);
	wait_until(a.ups == 1);
	ck_assert(!store_in_grace(a.store));
}
