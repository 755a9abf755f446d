/* store.h against a real server, with two stores in one loop: two hosts. Each test has a server of its own. */
#include <jansson.h>
#include <stdarg.h>

#include "store/link.h"
#include "store/scripts.h"
#include "store/store.h"
#include "tests/unit/redis_server.h"

#define NAME     "/var/lock/job one.lock"
#define TTL_MS   3000
#define LIMIT_MS 8000 /* for anything that is waited for */

struct host {
	struct store *store;
	const char *id;
	unsigned ups, downs, changes, messages, notes;
	char why[1024], old[STORE_INC_BYTES], now[STORE_INC_BYTES], note[512];
	struct store_message message; /* the last */
};

static uv_loop_t loop;
static uv_timer_t tick;
static struct redis_server server;
static struct config_store config;
static struct host a, b;

/* ---- waiting ---- */

static void on_tick(uv_timer_t *timer)
{
	(void)timer;
}

#define wait_until(condition)                                                                                          \
	do {                                                                                                           \
		int64_t limit = server_clock_ms() + LIMIT_MS;                                                          \
		while (!(condition)) {                                                                                 \
			ck_assert_msg(server_clock_ms() < limit, "waited in vain for %s (a: %s, b: %s)", #condition,   \
				      a.why, b.why);                                                                   \
			uv_run(&loop, UV_RUN_ONCE);                                                                    \
		}                                                                                                      \
	} while (0)

/* ---- a host ---- */

static void on_up(void *arg)
{
	((struct host *)arg)->ups++;
}

static void on_down(void *arg, const char *why)
{
	struct host *h = arg;

	h->downs++;
	snprintf(h->why, sizeof(h->why), "%s", why);
	ck_assert_ptr_null(strchr(why, '\n'));
	ck_assert_str_eq(store_last_error(h->store), why);
}

static void on_incarnation(void *arg, const char *old, const char *now)
{
	struct host *h = arg;

	h->changes++;
	snprintf(h->old, sizeof(h->old), "%s", old);
	snprintf(h->now, sizeof(h->now), "%s", now);
}

static void on_message(void *arg, const struct store_message *message)
{
	struct host *h = arg;

	h->messages++;
	h->message = *message;
}

static void on_note(void *arg, const char *line)
{
	struct host *h = arg;

	h->notes++;
	snprintf(h->note, sizeof(h->note), "%s", line);
}

static void start_ttl(struct host *h, const char *id, int64_t ttl_ms)
{
	static const struct store_callbacks callbacks = {.on_up = on_up,
							 .on_down = on_down,
							 .on_incarnation = on_incarnation,
							 .on_message = on_message,
							 .on_note = on_note};

	*h = (struct host){.id = id};
	h->store = store_new(&loop, &config, ttl_ms, id, &callbacks, h);
	ck_assert_ptr_nonnull(h->store);
}

static void start(struct host *h, const char *id)
{
	start_ttl(h, id, TTL_MS);
}

static void stop(struct host *h)
{
	if (h->store)
		store_free(h->store);
	h->store = NULL;
}

/* ---- asking, and waiting for the answer ---- */

struct asked {
	unsigned answers;
	struct store_reply reply;
	char error[1024];
};

static void on_answer(void *arg, const struct store_reply *reply)
{
	struct asked *asked = arg;

	asked->answers++;
	asked->reply = *reply;
	snprintf(asked->error, sizeof(asked->error), "%s", reply->error ? reply->error : "");
}

static struct asked answer; /* of the last question */

#define ask(call)                                                                                                      \
	({                                                                                                             \
		answer = (struct asked){.answers = 0};                                                                 \
		call;                                                                                                  \
		ck_assert_uint_eq(answer.answers, 0); /* never from inside the call */                                 \
		wait_until(answer.answers > 0);                                                                        \
		answer.reply.status;                                                                                   \
	})
#define assert_ok(call) ck_assert_msg(ask(call) == STORE_OK, "%s: %d %s", #call, answer.reply.status, answer.error)

static const char *token(unsigned n)
{
	static char tokens[4][STORE_TOKEN_BYTES];
	static unsigned next;
	char *t = tokens[next++ % 4];

	snprintf(t, STORE_TOKEN_BYTES, "%032x", n);
	return t;
}

static struct store_acquire want(unsigned n, enum wire_mode mode)
{
	return (struct store_acquire){.name = NAME,
				      .file = "1:2",
				      .token = token(n),
				      .beat = true,
				      .range = {.space = WIRE_FLOCK, .mode = mode, .from = 0, .to = WIRE_EOF}};
}

#define acquire(h, n, mode, ...)                                                                                       \
	({                                                                                                             \
		struct store_acquire w = want(n, mode);                                                                \
		__VA_ARGS__;                                                                                           \
		ask(store_acquire((h)->store, &w, on_answer, &answer));                                                \
	})
#define release(h, n) ask(store_release((h)->store, NAME, token(n), on_answer, &answer))
#define beat(h)       ask(store_beat((h)->store, on_answer, &answer))

/* With hiredis's format: a string is one word, whatever is in it. */
static void command(const char *format, ...)
{
	redisContext *c = redis_server_connect(&server);
	va_list args;

	va_start(args, format);
	redisReply *reply = redisvCommand(c, format, args);
	va_end(args);
	ck_assert_msg(reply && reply->type != REDIS_REPLY_ERROR, "%s: %s", format, reply ? reply->str : c->errstr);
	freeReplyObject(reply);
	redisFree(c);
}

/* ---- around each test ---- */

static void set_up(void)
{
	signal(SIGPIPE, SIG_IGN);
	redis_server_start(&server);
	config = (struct config_store){.socket = server.socket, .connect_ms = 2000};
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	uv_timer_init(&loop, &tick);
	uv_timer_start(&tick, on_tick, 2, 2);
	a = b = (struct host){.id = ""};
}

static void tear_down(void)
{
	stop(&a);
	stop(&b);
	uv_close((uv_handle_t *)&tick, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0); /* every handle was closed */
	redis_server_kill(&server);
}

static void make_folder(void)
{
	redis_server_prepare(&server);
}

static void remove_folder(void)
{
	redis_server_remove(&server);
}

static void start_both(void)
{
	start(&a, "host-a");
	start(&b, "host-b");
	wait_until(a.ups == 1 && b.ups == 1);
	assert_ok(store_open(a.store, STORE_OPEN_FORCED, "", on_answer, &answer));
}

/* ---- the ordinary course ---- */

START_TEST(coming_up)
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
END_TEST

START_TEST(a_lease_changes_hands)
{
	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	uint64_t fence = answer.reply.fence;
	ck_assert_int_eq(answer.reply.mode, WIRE_EXCLUSIVE);
	ck_assert_int_eq(acquire(&b, 2, WIRE_SHARED, w.range.from = 5, w.range.to = 7), STORE_WAIT);
	ck_assert_uint_eq(answer.reply.blocker_count, 1);
	ck_assert_str_eq(answer.reply.blockers[0].host, "host-a");
	ck_assert(!answer.reply.blockers[0].waiter);
	ck_assert_uint_gt(answer.reply.blockers[0].beat, 1600000000000);
	ck_assert_int_lt(answer.reply.blockers[0].age_ms, LIMIT_MS);
	wait_until(a.messages == 1);
	ck_assert_int_eq(a.message.kind, STORE_MSG_RECALL);
	ck_assert_str_eq(a.message.name, NAME);
	ck_assert_str_eq(a.message.token, token(1));
	ck_assert_str_eq(a.message.asker, "host-b");
	ck_assert_str_eq(a.message.asker_token, token(2));
	ck_assert_int_eq(a.message.range.mode, WIRE_SHARED);
	ck_assert_int_eq(a.message.range.space, WIRE_FLOCK);
	ck_assert_int_eq(a.message.range.from, 5);
	ck_assert_int_eq(a.message.range.to, 7);
	ck_assert(!a.message.ask);
	ck_assert_int_eq(release(&a, 1), STORE_OK);
	wait_until(b.messages == 1);
	ck_assert_int_eq(b.message.kind, STORE_MSG_GRANTED);
	ck_assert_str_eq(b.message.token, token(2));
	ck_assert_uint_eq(b.message.fence, fence + 1);
	assert_ok(store_confirm(b.store, NAME, token(2), fence + 1, on_answer, &answer));
	ck_assert_uint_eq(answer.reply.fence, fence + 1);
	ck_assert_int_eq(answer.reply.mode, WIRE_SHARED);
	ck_assert_int_eq(ask(store_confirm(b.store, NAME, token(2), fence, on_answer, &answer)), STORE_GONE);
	ck_assert_int_eq(ask(store_shrink(a.store, NAME, token(1), on_answer, &answer)), STORE_GONE);
}
END_TEST

START_TEST(a_question)
{
	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE, w.ask = true), STORE_WAIT);
	wait_until(a.messages == 1);
	ck_assert(a.message.ask);
	ck_assert_int_eq(acquire(&b, 4, WIRE_EXCLUSIVE, w.file = "1:4"), STORE_WAIT);
	ck_assert_uint_gt(answer.reply.arrival, 1);
	ck_assert_int_eq(acquire(&b, 3, WIRE_EXCLUSIVE, w.ask = true, w.file = "1:3"), STORE_BUSY);
	ck_assert_uint_eq(answer.reply.blocker_count, 2);
	ck_assert(answer.reply.blockers[1].waiter);
	wait_until(a.messages == 2);
	store_tell_in_use(a.store, a.message.asker, a.message.name, a.message.asker_token, &a.message.range);
	wait_until(b.messages == 1);
	ck_assert_int_eq(b.message.kind, STORE_MSG_IN_USE);
	ck_assert_str_eq(b.message.token, token(4));
	ck_assert_str_eq(b.message.name, NAME);
	ck_assert_str_eq(b.message.holder, "host-a");
}
END_TEST

START_TEST(a_dead_host)
{
	struct store_blocker seen;

	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_WAIT);
	seen = answer.reply.blockers[0];
	ck_assert_int_eq(beat(&a), STORE_OK);
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE, w.dead = &seen, w.dead_count = 1), STORE_WAIT);
	ck_assert_uint_gt(answer.reply.blockers[0].beat, seen.beat);
	seen = answer.reply.blockers[0];
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE, w.dead = &seen, w.dead_count = 1), STORE_OK);
	assert_ok(store_leave(b.store, on_answer, &answer));
}
END_TEST

START_TEST(offsets_and_arguments)
{
	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE,
				 w.range = (struct store_range){WIRE_RECORD, WIRE_EXCLUSIVE, WIRE_EOF - 1, WIRE_EOF}),
			 STORE_OK);
	ck_assert_int_eq(
		acquire(&b, 2, WIRE_SHARED, w.range = (struct store_range){WIRE_RECORD, WIRE_SHARED, 0, WIRE_EOF - 1}),
		STORE_OK);
	ck_assert_int_eq(
		acquire(&b, 3, WIRE_SHARED, w.range = (struct store_range){WIRE_RECORD, WIRE_SHARED, 0, WIRE_EOF}),
		STORE_WAIT);
	wait_until(a.messages == 1);
	ck_assert_int_eq(a.message.range.to, WIRE_EOF);
	ck_assert_int_eq(acquire(&a, 4, WIRE_SHARED, w.range.to = 0), STORE_ERROR);
	ck_assert_int_eq(acquire(&a, 4, WIRE_SHARED, w.token = "short"), STORE_ERROR);
	ck_assert_int_eq(acquire(&a, 4, WIRE_SHARED, w.name = ""), STORE_ERROR);
	ck_assert_int_eq(acquire(&a, 4, WIRE_SHARED, w.file = "a b"), STORE_ERROR);
	ck_assert_ptr_nonnull(strstr(answer.error, "file"));
}
END_TEST

/* ---- sweeping and dumping ---- */

static unsigned host_rows;
static struct store_blocker host_row[8];

static void on_hosts(void *arg, enum store_status status, const struct store_blocker *hosts, size_t count)
{
	struct asked *asked = arg;

	ck_assert_uint_le(count, 8);
	host_rows = (unsigned)count;
	if (count)
		memcpy(host_row, hosts, count * sizeof(*hosts));
	asked->reply.status = status;
	asked->answers++;
}

START_TEST(sweeping)
{
	char name[32];

	start_both();
	for (unsigned i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "lock %u", i);
		ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE, w.name = name), STORE_OK);
	}
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE, w.name = "lock 7"), STORE_WAIT);
	assert_ok(store_hosts(b.store, on_hosts, &answer));
	ck_assert_uint_eq(host_rows, 2);
	struct store_blocker silent = host_row[strcmp(host_row[0].host, "host-a") != 0];
	ck_assert_int_eq(beat(&a), STORE_OK);
	ck_assert_int_eq(ask(store_sweep(b.store, &silent, on_answer, &answer)), STORE_GONE);
	assert_ok(store_hosts(b.store, on_hosts, &answer));
	silent = host_row[strcmp(host_row[0].host, "host-a") != 0];
	assert_ok(store_sweep(b.store, &silent, on_answer, &answer));
	wait_until(b.messages == 1); /* granted */
	assert_ok(store_hosts(b.store, on_hosts, &answer));
	ck_assert_uint_eq(host_rows, 1);
	for (unsigned i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "lock %u", i);
		ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE, w.name = name), STORE_OK);
	}
}
END_TEST

static json_t *dumped;

static void on_dump(void *arg, const char *json, size_t len, const char *error)
{
	struct asked *asked = arg;

	json_decref(dumped);
	dumped = json ? json_loadb(json, len, 0, NULL) : NULL;
	asked->reply.status = json ? STORE_OK : STORE_ERROR;
	snprintf(asked->error, sizeof(asked->error), "%s", error ? error : "");
	asked->answers++;
}

START_TEST(dumping)
{
	json_t *open, *lease, *waiter;
	const char *incarnation, *name, *mode;
	json_int_t ttl, fence, to;

	start_both();
	assert_ok(store_dump(a.store, on_dump, &answer));
	ck_assert_uint_eq(json_array_size(json_object_get(dumped, "locks")), 0);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE, w.name = "\xe4 name"), STORE_OK);
	uint64_t granted = answer.reply.fence;
	ck_assert_int_eq(acquire(&b, 2, WIRE_SHARED, w.name = "\xe4 name"), STORE_WAIT);
	assert_ok(store_dump(a.store, on_dump, &answer));
	ck_assert_int_eq(json_unpack(dumped, "{s:s, s:o, s:I, s:I, s:{s:{s:I}}, s:[{s:s, s:[o], s:[o]}]}",
				     "incarnation", &incarnation, "open", &open, "ttl_ms", &ttl, "fence", &fence,
				     "hosts", "host-b", "beat", &to, "locks", "name", &name, "leases", &lease,
				     "waiters", &waiter),
			 0);
	ck_assert_str_eq(incarnation, store_incarnation(a.store));
	ck_assert(json_is_true(open));
	ck_assert_int_eq(ttl, TTL_MS);
	ck_assert_uint_eq((uint64_t)fence, granted);
	ck_assert_str_eq(name, "\\xe4 name");
	ck_assert_int_eq(json_unpack(lease, "{s:I, s:I, s:s}", "to", &to, "fence", &fence, "mode", &mode), 0);
	ck_assert_int_eq(to, WIRE_EOF);
	ck_assert_uint_eq((uint64_t)fence, granted);
	ck_assert_str_eq(mode, "exclusive");
	ck_assert_str_eq(json_string_value(json_object_get(waiter, "host")), "host-b");
	ck_assert_ptr_null(json_object_get(waiter, "fence"));
	json_decref(dumped);
	dumped = NULL;
}
END_TEST

/* ---- the store loses its memory ---- */

START_TEST(flushall)
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
END_TEST

START_TEST(restart)
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
END_TEST

START_TEST(another_server_behind_the_connection)
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
END_TEST

START_TEST(scripts_forgotten)
{
	start_both();
	command("SCRIPT FLUSH");
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	ck_assert_int_eq(beat(&b), STORE_OK);
	assert_ok(store_dump(a.store, on_dump, &answer));
	json_decref(dumped);
	dumped = NULL;
	ck_assert_uint_eq(a.downs, 0);
}
END_TEST

START_TEST(another_ttl)
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
	ck_assert_int_eq(ask(store_open(a.store, STORE_OPEN_WATCHED, "", on_answer, &answer)), STORE_ERROR);
	ck_assert_ptr_nonnull(strstr(answer.error, "ttl_ms = 4000"));
}
END_TEST

/* ---- refusals ---- */

START_TEST(errors_of_a_request)
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
END_TEST

START_TEST(writes_that_would_be_refused)
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
	command("CONFIG SET min-replicas-to-write 0");
	assert_ok(store_try_write(a.store, on_answer, &answer));
	ck_assert_uint_eq(a.downs, 0);
	command("EVAL %s 0",
		"return redis.call('EXISTS', 'dflock:{0}:try') == 0 or redis.error_reply('something was left')");
}
END_TEST

static void refused(struct host *h, const char *line)
{
	start(h, "host-x");
	wait_until(h->downs == 1);
	ck_assert_msg(strstr(h->why, line) != NULL, "\"%s\" does not say \"%s\"", h->why, line);
	stop(h);
}

START_TEST(servers_that_will_not_do)
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
END_TEST

START_TEST(passwords)
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
END_TEST

START_TEST(a_user_with_few_rights)
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
	assert_ok(store_dump(a.store, on_dump, &answer));
	json_decref(dumped);
	dumped = NULL;
}
END_TEST

START_TEST(names_and_ports)
{
	config = (struct config_store){.address = {.host = "localhost", .port = 1}, .connect_ms = 60000};
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
END_TEST

/* ---- silence and nonsense ---- */

START_TEST(a_stopped_server)
{
	config.connect_ms = 150;
	start_both();
	struct asked lost[3] = {0};
	kill(server.pid, SIGSTOP);
	store_beat(a.store, on_answer, &lost[0]);
	struct store_acquire again = want(1, WIRE_EXCLUSIVE);
	store_acquire(a.store, &again, on_answer, &lost[1]);
	store_dump(a.store, on_dump, &lost[2]);
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
END_TEST

START_TEST(messages_connection_lost)
{
	start_both();
	command("CLIENT KILL TYPE pubsub");
	wait_until(a.downs == 1 && b.downs == 1);
	wait_until(a.ups == 2 && b.ups == 2);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_WAIT);
	wait_until(a.messages == 1);
}
END_TEST

START_TEST(nonsense_in_messages)
{
	start_both();
	command("PUBLISH dflock:{0}:host:host-a hello");
	command("PUBLISH dflock:{0}:host:host-a %s", "recall 1 2 3");
	command("PUBLISH dflock:{0}:host:host-a %b", "inuse 00000000000000000000000000000001 flock shared 0 1 host-b x\0y",
		(size_t)59);
	command("PUBLISH dflock:{0}:host:host-a %s", "granted 00000000000000000000000000000001 5 0-0 name");
	command("PUBLISH dflock:{0}:host:host-a %s", "inuse 00000000000000000000000000000001 flock shared 0 1 host-b name");
	wait_until(a.messages == 1);
	ck_assert_int_eq(a.message.kind, STORE_MSG_IN_USE);
	ck_assert_str_eq(a.message.name, "name");
	ck_assert_uint_eq(a.notes, 1);
	ck_assert_ptr_nonnull(strstr(a.note, "malformed"));
}
END_TEST

/* A server in the same loop that answers whatever comes with the same bytes, or (NULL) as one that is right in all but
 * that each connection reaches another one. */
static uv_pipe_t fake, fake_client[64];
static unsigned fake_clients;
static const char *fake_says, *fake_greets;

static void fake_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
	static char bytes[65536];

	(void)handle, (void)suggested;
	*buf = uv_buf_init(bytes, sizeof(bytes) - 1);
}

static void fake_write(uv_stream_t *stream, const char *text)
{
	uv_buf_t out = uv_buf_init((char *)text, (unsigned)strlen(text));

	int n = uv_try_write(stream, &out, 1);
	ck_assert(n == (int)out.len || n == UV_EPIPE); /* it may have had enough */
}

static void fake_answer(uv_stream_t *stream, const char *asked, size_t len)
{
	static const char load[] = "\r\nLOAD\r\n";
	static size_t matched, loaded; /* the scripts come in several pieces */
	char info[128], text[160];

	if (len < 64 && strstr(asked, "INFO")) {
		snprintf(info, sizeof(info),
			 "redis_version:7.0.15\r\nrun_id:%tx\r\nmaxmemory_policy:noeviction\r\nrole:master\r\n",
			 (uv_pipe_t *)stream - fake_client);
		snprintf(text, sizeof(text), "$%zu\r\n%s\r\n", strlen(info), info);
		fake_write(stream, text);
	} else if (len < 64 && strstr(asked, "SETNAME")) {
		fake_write(stream, "+OK\r\n");
	}
	for (size_t i = 0; i < len; i++) {
		matched = asked[i] == load[matched] ? matched + 1 : asked[i] == load[0];
		if (load[matched])
			continue;
		matched = 0;
		loaded++;
	}
	for (; loaded >= SCRIPTS; loaded -= SCRIPTS)
		for (int i = 0; i < SCRIPTS; i++)
			fake_write(stream, "$40\r\n0123456789012345678901234567890123456789\r\n");
}

static void fake_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
	if (n < 0)
		uv_close((uv_handle_t *)stream, NULL);
	else if (n > 0 && fake_says)
		fake_write(stream, fake_says);
	else if (n > 0)
		fake_answer(stream, (buf->base[n] = '\0', buf->base), (size_t)n);
}

static void fake_accept(uv_stream_t *stream, int status)
{
	ck_assert_int_eq(status, 0);
	ck_assert_uint_lt(fake_clients, 64);
	uv_pipe_t *client = &fake_client[fake_clients++];
	uv_pipe_init(&loop, client, 0);
	ck_assert_int_eq(uv_accept(stream, (uv_stream_t *)client), 0);
	uv_read_start((uv_stream_t *)client, fake_alloc, fake_read);
	if (fake_greets)
		fake_write((uv_stream_t *)client, fake_greets);
}

static void start_fake(void)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/other.sock", server.dir);
	unlink(path);
	uv_pipe_init(&loop, &fake, 0);
	ck_assert_int_eq(uv_pipe_bind(&fake, path), 0);
	ck_assert_int_eq(uv_listen((uv_stream_t *)&fake, 16, fake_accept), 0);
	config.socket = path;
	config.connect_ms = 200;
	fake_says = fake_greets = NULL;
	fake_clients = 0;
}

START_TEST(garbage)
{
	static const struct {
		const char *says, *line;
	} cases[] = {
		{"HTTP/1.1 400 Bad Request\r\n\r\n", "is not Redis's protocol"},
		{"+OK\r\n", "INFO does not show"},
		{"*2147483647\r\n", "is not Redis's protocol"},
		{"$99999999999999999999\r\n", "is not Redis's protocol"},
		{"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", "is not Redis's protocol"},
		{"+OK\r\n+OK\r\n+OK\r\n+OK\r\n", ""},
		{"-ERR max number of clients reached\r\n", "maxclients"},
		{"$26\r\nredis_version:5.0.7\r\nrun_i\r\n", "INFO does not show run_id"},
		{"$38\r\nredis_version:5.0.7\r\nrun_id:0123456789\r\n", "needs Redis 6.2"},
		{"*0\r\n", "INFO does not show"},
		{"$-1\r\n", "INFO does not show"},
		{"$5\r\nhell", "no answer within"},
	};

	start_fake();
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		fake_says = cases[i].says;
		refused(&a, cases[i].line);
	}
	uv_close((uv_handle_t *)&fake, NULL);
}
END_TEST

START_TEST(two_servers_behind_one_address)
{
	start_fake();
	refused(&a, "reached two servers");
	uv_close((uv_handle_t *)&fake, NULL);
}
END_TEST

static char link_why[256];

static void on_link_connected(void *arg)
{
	(void)arg;
}

static void on_link_broken(void *arg, const char *why)
{
	(void)arg;
	snprintf(link_why, sizeof(link_why), "%s", why);
}

START_TEST(an_answer_that_nobody_asked_for)
{
	const struct link_events events = {.connected = on_link_connected, .broken = on_link_broken};
	char why[128];

	start_fake();
	fake_greets = "+OK\r\n";
	struct link_target target = {.path = config.socket};
	struct link *link = link_open(&loop, &target, LIMIT_MS, &events, NULL, why, sizeof(why));
	ck_assert_ptr_nonnull(link);
	wait_until(*link_why);
	ck_assert_ptr_nonnull(strstr(link_why, "to no question"));
	link_close(link);
	uv_close((uv_handle_t *)&fake, NULL);
}
END_TEST

START_TEST(freed_while_it_would_open)
{
	struct asked lost = {0};

	start(&a, "host-a");
	wait_until(a.ups == 1);
	start_ttl(&b, "host-b", TTL_MS + 1000);
	wait_until(b.downs == 1);
	store_open(b.store, STORE_OPEN_FORCED, "", on_answer, &lost);
	stop(&b);
	ck_assert_uint_eq(lost.answers, 1);
	ck_assert_int_eq(lost.reply.status, STORE_UNREACHABLE);
}
END_TEST

START_TEST(freed_with_questions_open)
{
	struct asked lost[4] = {0};

	start_both();
	store_beat(a.store, on_answer, &lost[0]);
	store_hosts(a.store, on_hosts, &lost[1]);
	store_dump(a.store, on_dump, &lost[2]);
	struct store_acquire bad = want(1, WIRE_EXCLUSIVE);
	bad.name = "";
	store_acquire(a.store, &bad, on_answer, &lost[3]);
	stop(&a);
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(lost[i].answers, 1);
	ck_assert_int_eq(lost[0].reply.status, STORE_UNREACHABLE);
	start(&a, "host-a");
	store_beat(a.store, on_answer, &lost[0]);
	stop(&a); /* before the loop ran at all */
	ck_assert_uint_eq(lost[0].answers, 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store");
	TCase *t = tcase_create("store");

	tcase_set_timeout(t, 60);
	tcase_add_unchecked_fixture(t, make_folder, remove_folder);
	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, coming_up);
	tcase_add_test(t, a_lease_changes_hands);
	tcase_add_test(t, a_question);
	tcase_add_test(t, a_dead_host);
	tcase_add_test(t, offsets_and_arguments);
	tcase_add_test(t, sweeping);
	tcase_add_test(t, dumping);
	tcase_add_test(t, flushall);
	tcase_add_test(t, restart);
	tcase_add_test(t, another_server_behind_the_connection);
	tcase_add_test(t, scripts_forgotten);
	tcase_add_test(t, another_ttl);
	tcase_add_test(t, errors_of_a_request);
	tcase_add_test(t, writes_that_would_be_refused);
	tcase_add_test(t, servers_that_will_not_do);
	tcase_add_test(t, passwords);
	tcase_add_test(t, a_user_with_few_rights);
	tcase_add_test(t, names_and_ports);
	tcase_add_test(t, a_stopped_server);
	tcase_add_test(t, messages_connection_lost);
	tcase_add_test(t, nonsense_in_messages);
	tcase_add_test(t, garbage);
	tcase_add_test(t, two_servers_behind_one_address);
	tcase_add_test(t, an_answer_that_nobody_asked_for);
	tcase_add_test(t, freed_while_it_would_open);
	tcase_add_test(t, freed_with_questions_open);
	suite_add_tcase(suite, t);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
