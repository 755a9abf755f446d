/*
 * For the tests of keeper/callers/serve.c and waiting.c: a keeper with one file, and two callers. Session, answers, queue and leases are real;
 * the store, the deadline, the probes and the room for leases are here.
 */
#ifndef DFLOCK_TESTS_UNIT_SERVE_FIXTURE_H
#define DFLOCK_TESTS_UNIT_SERVE_FIXTURE_H

#include <sys/socket.h>
#include <utlist.h>

#include "keeper/callers/serve.h"
#include "keeper/callers/deadlock.h"
#include "keeper/callers/lookup.h"
#include "keeper/clock.h"
#include "keeper/guard/table.h"
#include "keeper/leases/act.h"
#include "keeper/leases/answers.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/keys.h"
#include "keeper/leases/pagefile.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/lost.h"
#include "keeper/leases/probing.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/requests.h"
#include "keeper/leases/room.h"
#include "keeper/leases/recall.h"
#include "keeper/leases/waiters.h"
#include "tests/unit/said.h"
#include "tests/unit/suite.h"

#define PIN_MS        200
#define PROBE_MS      700
#define STORE_WAIT_MS 9000
#define DEAD_MS       60000
#define HOUR_MS       (3600 * 1000)

static uv_loop_t loop;
static struct config config;
static struct sessions sessions;
static struct keeper k;
static struct table no_calls; /* none is under way */
static struct file *file;
static struct lock *lock;
static struct lease *lease; /* the first one that there is */

/* --- the store, and until when leases are sure --- */

static bool up;
static int64_t sure_ms; /* from now on */

bool store_is_up(const struct store *store) { return up; }
void store_reach(struct store *store) {}
bool store_in_grace(const struct store *store) { return false; }
const char *store_server(const struct store *store) { return "S"; }
int64_t deadline_sure_until(struct member *keeper) { return clock_now_ns() + sure_ms * NS_PER_MS; }
void deadline_trouble(const struct member *keeper, char *out, size_t size) { snprintf(out, size, "store S: down"); }

/* --- leases --- */

static int begins; /* what lease_begin() says */
static uint64_t pinned_until;
static size_t named_dead;
static char dead_host[STORE_HOST_BYTES];
static bool probes_run, losing;

static inline struct lease *add_lease(enum lease_state state, enum wire_mode mode, int64_t from, int64_t to)
{
	const struct store_range range = {lock->space, mode, from, to};
	struct lease *made = lease_new(lock, &range, 0);

	ck_assert_ptr_nonnull(made);
	made->state = state;
	made->fence = 77;
	return made;
}

int lease_begin(struct lock *of, const struct store_range *range, uid_t uid, struct lease **out)
{
	ck_assert_ptr_eq(of, lock);
	ck_assert_uint_eq(uid, 500);
	say("begin");
	if (begins == 0)
		*out = add_lease(LEASE_ASKING, range->mode, range->from, range->to);
	return begins;
}

void lease_acquire(struct lease *of, const struct store_blocker *silent, size_t silent_count)
{
	named_dead = silent_count;
	snprintf(dead_host, sizeof(dead_host), "%s", silent_count ? silent[0].host : "");
	say("acquire");
}

void lease_used(struct lease *of) { say("used"); }

void leasepage_show(struct lease *of)
{
	ck_assert_int_eq(of->state, LEASE_OPEN);
	say("shown");
}

void leasepage_close_lock(struct lock *of)
{
	ck_assert_ptr_eq(of, lock);
	say("page: closed");
}

void table_pinned(struct table *table, int64_t until_ns)
{
	pinned_until = (uint64_t)until_ns;
	say("table: pin");
}

bool lock_stop_probes(struct lock *of, const struct store_range *range) { return !probes_run; }
void keys_say_taken(const struct lease *of, char *out, size_t size) { snprintf(out, size, "taken"); }
bool lost_has_holders(const struct lock *of) { return losing; }

bool recall_split(struct lease *of, const struct store_range *wanted, bool ask)
{
	say("split");
	return true;
}

/* --- room, answers of other hosts, and the rest of callers/ --- */

static bool full, complete;
static struct store_range *in_the_way;

int room_check(const struct keeper *keeper, uid_t uid) { return full ? -ENFILE : 0; }

void room_wait(struct waiter *waiter)
{
	waiter->roomless = true;
	say("waits for room");
}

void room_leave(struct waiter *waiter) { waiter->roomless = false; }
void room_why(const struct waiter *waiter, char *why, size_t size) { snprintf(why, size, "no room"); }
bool answers_complete(const struct lease *of) { return complete; }
const struct store_range *answers_first(const struct lease *of) { return in_the_way; }
bool deadlock_possible(const struct session *s) { return false; }
void deadlock_chase(struct session *s) { say("chase"); }
void lookup_test_shared(struct session *s) { say("test shared"); }

/* --- callers --- */

struct caller {
	struct session s;
	int end;
	struct wire_reply reply; /* the last */
};

static struct caller one, two;

static inline void begin_caller(struct caller *c)
{
	int ends[2];

	memset(c, 0, sizeof(*c));
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	c->end = ends[0];
	c->s = (struct session){.keeper = &k, .fd = ends[1], .peer = {.pid = 1, .uid = 500}};
	uv_timer_init(&loop, &c->s.timer);
	c->s.timer.data = &c->s;
}

static inline void end_caller(struct caller *c)
{
	if (c->s.waiter.lock)
		session_stop_waiting(&c->s);
	uv_close((uv_handle_t *)&c->s.timer, NULL);
	close(c->end);
	close(c->s.fd);
}

static inline void ask(struct caller *c, enum wire_op op, enum wire_mode mode, unsigned flags, int64_t from, int64_t to)
{
	c->s.request = (struct wire_request){
		.op = op, .space = lock->space, .mode = mode, .flags = flags, .from = from, .to = to};
	c->s.received_ns = clock_now_ns();
	c->s.request.sent_ns = c->s.received_ns;
	serve_begin(&c->s, lock);
	queue_settle(&k);
}

static inline void ask_all(struct caller *c, unsigned flags) { ask(c, WIRE_LOCK, WIRE_EXCLUSIVE, flags, 0, WIRE_EOF); }

/* Its answer; 0: none has come. */
static inline int verdict(struct caller *c)
{
	ssize_t n = recv(c->end, &c->reply, sizeof(c->reply), MSG_DONTWAIT);

	ck_assert(n == sizeof(c->reply) || (n < 0 && errno == EAGAIN));
	return n < 0 ? 0 : c->reply.verdict;
}

static inline void check_refused(struct caller *c, const char *why)
{
	ck_assert_int_eq(verdict(c), WIRE_REFUSED);
	ck_assert_str_eq(c->reply.reason, why);
	ck_assert_ptr_null(c->s.waiter.lock);
}

#define CALLBACK_MS 90 /* for one callback; the waits that are told apart differ by more */

/* It waits, in silence, and its timer rings after so many ms. */
static inline void check_waits(struct caller *c, int64_t ms)
{
	int64_t due = (int64_t)uv_timer_get_due_in(&c->s.timer);

	ck_assert_int_eq(verdict(c), 0);
	ck_assert_int_eq(c->s.state, SESSION_WAITING);
	if (ms) /* the loop looks at the clock once more after the callback, which valgrind makes slow */
		ck_assert_msg(due <= ms && due > ms - CALLBACK_MS, "due in %lld ms", (long long)due);
	else
		ck_assert(!uv_is_active((uv_handle_t *)&c->s.timer));
}

static inline void check_pinned(struct caller *c)
{
	ck_assert_int_eq(verdict(c), WIRE_GRANTED);
	ck_assert_int_eq(c->s.state, SESSION_PINNED);
	ck_assert_uint_eq(c->reply.fence, 77);
	ck_assert_int_eq(c->reply.until_ns, c->s.waiter.pin_until_ns);
	ck_assert_uint_eq(pinned_until, (uint64_t)c->s.waiter.pin_until_ns);
}

/* Its timer runs out now. */
static inline void ring(struct caller *c)
{
	uv_timer_set_repeat(&c->s.timer, 1);
	ck_assert_int_eq(uv_timer_again(&c->s.timer), 0);
	uv_timer_set_repeat(&c->s.timer, 0);
	while (uv_is_active((uv_handle_t *)&c->s.timer) && uv_timer_get_due_in(&c->s.timer) <= 1)
		uv_run(&loop, UV_RUN_NOWAIT); /* which does not wait for the next one */
}

static inline void serve_again(void)
{
	waiters_serve(lock);
	queue_settle(&k);
}

static inline void told(struct caller *c, unsigned news)
{
	queue_tell(&c->s.waiter, news);
	queue_settle(&k);
}

/* --- a keeper with one file --- */

static inline void on_step(struct lease *of, enum lease_cue event) { say(lease_cue_name(event)); }
static inline void on_nothing(struct keeper *keeper) {}
static inline unsigned on_reap(struct keeper *keeper) { return 0; }

static inline void prepare(void)
{
	static const struct queue_work work = {.step = on_step, .send = on_nothing, .reap = on_reap};
	static const struct queue_news news = {.told = serve_told, .leases_freed = on_nothing};
	const struct stat st = {.st_dev = 1, .st_ino = 2};

	uv_loop_init(&loop);
	config = (struct config){.lease = {.ttl_ms = 30000,
					   .pin_ms = PIN_MS,
					   .probe_ms = PROBE_MS,
					   .store_wait_ms = STORE_WAIT_MS,
					   .dead_ms = DEAD_MS}};
	sessions = (struct sessions){0};
	k = (struct keeper){.member_count = 1,
			    .members[0].keeper = &k,
			    .loop = &loop,
			    .config = &config,
			    .table = &no_calls,
			    .sessions = &sessions,
			    .members[0].first = &k.members[0],
			    .members[0].tried = true};
	k.queue.work = &work;
	k.queue.news = &news;
	ck_assert_int_eq(file_get(&k.members[0], &st, true, "/srv/x", "x", -1, &file), 0);
	lock = &file->locks[WIRE_FLOCK];
	begin_caller(&one);
	begin_caller(&two);
	up = true;
	sure_ms = HOUR_MS;
	begins = 0;
	losing = probes_run = full = complete = false;
	in_the_way = NULL;
	pinned_until = 0;
	said[0] = '\0';
}

static inline void clean(void)
{
	struct lease *l, *next;

	end_caller(&one);
	end_caller(&two);
	HASH_ITER (hh, k.leases, l, next) {
		free(l->asking.blockers);
		lease_free(l);
	}
	file_free(file);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static inline struct lease *all_of(enum lease_state state)
{
	lease = add_lease(state, WIRE_EXCLUSIVE, 0, WIRE_EOF);
	return lease;
}
FIXTURE(prepare, clean)

#endif
