/*
 * Two stores of store.h in one loop, on a real server: two hosts. run_tests() gives each test a server of its own.
 */
#ifndef DFLOCK_TESTS_UNIT_STORE_HOSTS_H
#define DFLOCK_TESTS_UNIT_STORE_HOSTS_H

#include <jansson.h>
#include <stdarg.h>

#include "keeper/callers/picture.h"
#include "store/redis/link.h"
#include "store/scripts.h"
#include "store/store.h"
#include "tests/unit/redis_server.h"

#define NAME     "/var/lock/job one.lock"
#define TTL_MS   3000
#define LIMIT_MS 8000 /* limit of each wait */

struct host {
	struct store *store;
	const char *id;
	unsigned ups, downs, changes, messages, notes, keys;
	char why[1024], old[STORE_INC_BYTES], now[STORE_INC_BYTES], note[512];
	struct store_message message; /* the last */
	char key[STORE_KEY_BYTES];    /* ditto */
};

static uv_loop_t loop;
static uv_timer_t tick;
static struct redis_server server;
static struct config_store config;
static struct host a, b;

/* A zombie has ended, too: it may be the child of another process, which runs the tests. */
static inline bool has_ended(pid_t pid)
{
	char file[32], state = 'Z';

	if (pid <= 0)
		return true;
	waitpid(pid, NULL, WNOHANG);
	snprintf(file, sizeof(file), "/proc/%d/stat", (int)pid);
	FILE *f = fopen(file, "r");
	if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = 'Z';
	if (f)
		fclose(f);
	return state == 'Z';
}

/* ---- waiting ---- */

static void (*each_tick)(void); /* what a test does besides, in each turn of the loop */

static inline void on_tick(uv_timer_t *timer)
{
	if (each_tick)
		each_tick();
}

#define wait_within(ms, condition)                                                                                     \
	do {                                                                                                           \
		int64_t limit = server_clock_ms() + (ms);                                                              \
		while (!(condition)) {                                                                                 \
			ck_assert_msg(server_clock_ms() < limit, "waited in vain for %s (a: %s, b: %s)", #condition,   \
				      a.why, b.why);                                                                   \
			uv_run(&loop, UV_RUN_ONCE);                                                                    \
		}                                                                                                      \
	} while (0)
#define wait_until(condition) wait_within(LIMIT_MS, condition)
/* For what the server itself must do before: an election, or its start. */
#define wait_longer_until(condition) wait_within(40000, condition)

/* ---- a host ---- */

static inline void on_up(void *arg) { ((struct host *)arg)->ups++; }

static inline void on_down(void *arg, const char *why)
{
	struct host *h = arg;

	h->downs++;
	snprintf(h->why, sizeof(h->why), "%s", why);
	ck_assert_ptr_null(strchr(why, '\n'));
	ck_assert_str_eq(store_last_error(h->store), why);
}

static inline void on_incarnation(void *arg, const char *old, const char *now)
{
	struct host *h = arg;

	h->changes++;
	snprintf(h->old, sizeof(h->old), "%s", old);
	snprintf(h->now, sizeof(h->now), "%s", now);
}

static inline void on_message(void *arg, const struct store_message *message)
{
	struct host *h = arg;

	h->messages++;
	h->message = *message;
}

static inline void on_key(void *arg, const char *key)
{
	struct host *h = arg;

	h->keys++;
	snprintf(h->key, sizeof(h->key), "%s", key);
}

static inline void on_note(void *arg, const char *line)
{
	struct host *h = arg;

	h->notes++;
	snprintf(h->note, sizeof(h->note), "%s", line);
}

static inline void start_ttl(struct host *h, const char *id, int64_t ttl_ms)
{
	static const struct store_callbacks callbacks = {.on_up = on_up,
							 .on_down = on_down,
							 .on_incarnation = on_incarnation,
							 .on_message = on_message,
							 .on_key = on_key,
							 .on_note = on_note};

	*h = (struct host){.id = id};
	h->store = store_new(&loop, &config, ttl_ms, id, &callbacks, h);
	ck_assert_ptr_nonnull(h->store);
}

static inline void start(struct host *h, const char *id) { start_ttl(h, id, TTL_MS); }

static inline void stop(struct host *h)
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

static inline void on_answer(void *arg, const struct store_reply *reply)
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

static inline const char *token(unsigned n)
{
	static char tokens[4][STORE_TOKEN_BYTES];
	static unsigned next;
	char *t = tokens[next++ % 4];

	snprintf(t, STORE_TOKEN_BYTES, "%032x", n);
	return t;
}

static inline struct store_acquire want(unsigned n, enum wire_mode mode)
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
#define release(h, n) ask(store_release((h)->store, NAME, token(n), false, on_answer, &answer))
#define beat(h)       ask(store_beat((h)->store, 0, 0, on_answer, &answer))

/* With hiredis's format: a string is one word, whatever is in it. */
static inline void command(const char *format, ...)
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

static inline void hosts_begin(struct config_store with)
{
	signal(SIGPIPE, SIG_IGN);
	config = with;
	config.shards = 1;
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	uv_timer_init(&loop, &tick);
	uv_timer_start(&tick, on_tick, 2, 2);
	a = b = (struct host){.id = ""};
}

static inline void hosts_end(void)
{
	stop(&a);
	stop(&b);
	uv_close((uv_handle_t *)&tick, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0); /* every handle was closed */
}

static inline void set_up(void)
{
	redis_server_start(&server);
	hosts_begin((struct config_store){.socket = server.socket, .connect_ms = 2000});
}

static inline void tear_down(void)
{
	hosts_end();
	redis_server_kill(&server);
}

static inline void make_folder(void) { redis_server_prepare(&server); }
static inline void remove_folder(void) { redis_server_remove(&server); }

static inline void start_both(void)
{
	start(&a, "host-a");
	start(&b, "host-b");
	wait_until(a.ups == 1 && b.ups == 1);
	assert_ok(store_open(a.store, STORE_OPEN_FORCED, "", on_answer, &answer));
}

/* a has the lock; returns its fence. */
static inline uint64_t start_with_lock(void)
{
	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	return answer.reply.fence;
}

/* ---- what answers bring ---- */

static unsigned host_rows;
static struct store_blocker host_row[8];

static inline void on_hosts(void *arg, enum store_status status, const struct store_blocker *hosts, size_t count)
{
	struct asked *asked = arg;

	ck_assert_uint_le(count, 8);
	host_rows = (unsigned)count;
	if (count)
		memcpy(host_row, hosts, count * sizeof(*hosts));
	asked->reply.status = status;
	asked->answers++;
}

/* As the keeper does for status. */
static json_t *dumped;

static inline void on_dump_record(void *arg, const struct store_picture *record)
{
	json_decref(dumped);
	dumped = json_object();
	picture_add_record(dumped, record);
}

static inline void on_dump_name(void *arg, const char *name, const struct store_entry *entries, size_t count,
				const struct store_aside *aside)
{
	picture_add_name(dumped, "", 0, name, entries, count, aside);
}

static inline void on_dump_end(void *arg, const char *error)
{
	struct asked *asked = arg;

	if (!error)
		picture_close(dumped);
	asked->reply.status = error ? STORE_ERROR : STORE_OK;
	snprintf(asked->error, sizeof(asked->error), "%s", error ? error : "");
	asked->answers++;
}

static const struct store_dump on_dump = {on_dump_record, on_dump_name, on_dump_end};

static inline void refused(struct host *h, const char *line)
{
	start(h, "host-x");
	wait_until(h->downs == 1);
	ck_assert_msg(strstr(h->why, line) != NULL, "\"%s\" does not say \"%s\"", h->why, line);
	stop(h);
}
#ifndef STORE_HOSTS_OTHER_SERVER /* a suite with a server of its own */
FIXTURE_ONCE(make_folder, remove_folder)
FIXTURE(set_up, tear_down)
#endif

#endif
