/*
 * For the tests of keeper/leases/act.c and recall.c, and of keeper/callers/serve.c and waiting.c: a keeper with one file, and two callers.
 * Leases, queue, sessions and these files are real; the table, the page, the requests of the store, the probes and the room are here, and
 * write down what they are told. SPACE: that of the lock.
 */
#ifndef DFLOCK_TESTS_UNIT_LEASE_FIXTURE_H
#define DFLOCK_TESTS_UNIT_LEASE_FIXTURE_H

#include <sys/socket.h>
#include <utlist.h>

#include "keeper/callers/deadlock.h"
#include "keeper/callers/lookup.h"
#include "keeper/callers/serve.h"
#include "keeper/clock.h"
#include "keeper/guard/table.h"
#include "keeper/leases/act.h"
#include "keeper/leases/answers.h"
#include "keeper/leases/confirm.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/hidden.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/keys.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/lost.h"
#include "keeper/leases/pagefile.h"
#include "keeper/leases/probing.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/recall.h"
#include "keeper/leases/reopen.h"
#include "keeper/leases/requests.h"
#include "keeper/leases/room.h"
#include "keeper/leases/waiters.h"
#include "tests/unit/said.h"
#include "tests/unit/suite.h"

#define TTL_MS        1000
#define LINGER_MS     100
#define PIN_MS        200
#define PROBE_MS      700
#define STORE_WAIT_MS 9000
#define DEAD_MS       60000
#define HOUR_MS       (3600 * 1000)
#define HOUR_NS       (HOUR_MS * NS_PER_MS)
#define SLOT          5
#define FENCE         77

static uv_loop_t loop;
static struct config config;
static struct sessions sessions;
static struct keeper k;
static struct table no_calls; /* none is under way */
static struct file *file;
static struct lock *lock;
static struct lease *lease; /* the first one that there is */

/* What the modules that are here say when they are asked. */
static struct {
	bool down;                 /* the store */
	bool cannot_take;          /* a lease that was granted */
	bool in_use, needs_more;   /* by the kernel; a probe that waits does not do */
	bool probes_run;           /* in any range */
	bool losing, full;         /* holders of a lost lease; the room */
	int begins;                /* lease_begin() */
	int64_t sure_ms;           /* from now on */
	enum early_end early;      /* what the probe's thread has done */
	bool all_answered;         /* the hosts that were asked */
	struct store_range *first; /* of their answers */
} now;

/* What they were told, apart from words. */
static uint64_t pinned_until;
static size_t named_dead;
static char dead_host[STORE_HOST_BYTES];

/* --- the table of leases, the page, and the parent --- */

void table_share(struct table *table, uint32_t slot)
{
	ck_assert_uint_eq(slot, SLOT);
	say("table: shared");
}

void table_return(struct table *table, uint32_t slot) { say("table: returned"); }
void table_doubt(struct table *table, uint32_t slot) { say("table: unsure"); }
void table_hold(struct table *table, uint32_t slot) { say("table: held"); }

void table_lose(struct table *table, uint32_t slot, enum table_why why)
{
	ck_assert_uint_eq(slot, SLOT);
	ck_assert_int_eq(why, TABLE_WHY_TAKEN);
	say("table: lost");
}

uint64_t table_generation(const struct table *table, uint32_t slot) { return slot; }
void table_view(const struct table *table, uint32_t slot, struct table_view *view) { ck_abort_msg("no deeds here"); }
void table_vacate(struct table *table, uint32_t slot) { say(slot == TABLE_NO_SLOT ? "table: no slot" : "table: free"); }

void table_pinned(struct table *table, int64_t until_ns)
{
	pinned_until = (uint64_t)until_ns;
	say("table: pin");
}

void leasepage_show(struct lease *of)
{
	ck_assert_int_eq(of->state, LEASE_OPEN);
	say("shown");
}

void leasepage_close(struct lease *of)
{
	ck_assert_int_eq(of->state, LEASE_OPEN); /* first of all */
	say("page: closed");
}

void leasepage_close_lock(struct lock *of) { say("page: all of the lock closed"); }
void lost_end_holders(struct keeper *keeper) { say("holders end"); }
bool lost_has_holders(const struct lock *of) { return now.losing; }
const char *keys_why_lost(const struct lease *of) { return "key"; }
void keys_say_taken(const struct lease *of, char *out, size_t size) { snprintf(out, size, "taken"); }

void lost_report(struct lease *of, enum table_why which, const char *why)
{
	ck_assert_str_ne(why, "");
	say("reported");
}

/* --- the store, and until when leases are sure --- */

bool store_is_up(const struct store *store) { return !now.down; }
void store_reach(struct store *store) {}
bool store_in_grace(const struct store *store) { return false; }
const char *store_server(const struct store *store) { return "S"; }
int64_t deadline_sure_until(struct member *m) { return clock_now_ns() + now.sure_ms * NS_PER_MS; }
void deadline_trouble(const struct member *m, char *out, size_t size) { snprintf(out, size, "store S: down"); }
void deadline_asked(struct member *m) {}

static inline struct lease *add_lease(enum lease_state state, const struct store_range *range, uid_t uid)
{
	struct lease *made = lease_new(lock, range, uid);
	ck_assert_ptr_nonnull(made);
	made->state = state;
	made->slot = SLOT;
	made->fence = FENCE;
	return made;
}

int lease_begin(struct lock *of, const struct store_range *range, uid_t uid, struct lease **out)
{
	ck_assert_ptr_eq(of, lock);
	say("begin");
	if (now.begins == 0)
		*out = add_lease(LEASE_ASKING, range, uid);
	return now.begins;
}

void lease_acquire(struct lease *of, const struct store_blocker *silent, size_t silent_count)
{
	named_dead = silent_count;
	snprintf(dead_host, sizeof(dead_host), "%s", silent_count ? silent[0].host : "");
	say("acquire");
}

bool lease_take(struct lease *of)
{
	say("take");
	return !now.cannot_take;
}

void lease_send_release(struct lease *of) { say("release"); }

void lease_send_shrink(struct lease *of)
{
	ck_assert_int_eq(of->range.mode, WIRE_SHARED);
	say("shrink");
}

void lease_send_confirm(struct lease *of) { say("confirm"); }
void confirm_send_waiting(struct keeper *keeper) {}

void store_tell(struct store *store, const char *host, const struct store_message *m)
{
	ck_assert_int_eq(m->kind, STORE_MSG_IN_USE);
	say("asker told");
}

bool answers_complete(const struct lease *of) { return now.all_answered; }
const struct store_range *answers_first(const struct lease *of) { return now.first; }
void answers_forget(struct lease *of) {}

/* --- what the kernel says --- */

static struct probe *a_probe = (struct probe *)said; /* only compared */

/* The kernel is asked by a probe alone; but it may show a lock at the beginning of the lease. */
int lock_in_the_way(const struct lease *of, const struct store_range *wanted, struct store_range *out)
{
	*out = of->range;
	return now.in_use ? 1 : -1;
}

void lease_start_probe(struct lease *of)
{
	ck_assert_int_eq(of->state, LEASE_PROBING);
	of->probed.probe = a_probe;
	say("probe");
}

void lease_stop_probe(struct lease *of) { say("stop probe"); }
bool lock_stop_probes(struct lock *of, const struct store_range *range) { return !now.probes_run; }
bool probe_waits_for_more(const struct lease *of) { return now.needs_more; }
bool lease_is_in_use(const struct lease *of) { return now.in_use; }
void hidden_due(struct lease *of) { say("holders looked at"); }
void early_arm(struct lease *of) {}

enum early_end early_disarm(struct lease *of)
{
	enum early_end end = now.early;
	now.early = EARLY_NOT;
	return end;
}

/* --- room, and the rest of the keeper --- */

int room_check(const struct keeper *keeper, uid_t uid) { return now.full ? -ENFILE : 0; }

void room_wait(struct waiter *waiter)
{
	waiter->roomless = true;
	say("waits for room");
}

void room_leave(struct waiter *waiter) { waiter->roomless = false; }
void room_why(const struct waiter *waiter, char *why, size_t size) { snprintf(why, size, "no room"); }
void room_remove(struct lease *of) { say("freed"); }
void room_used(struct lease *of) {}
void reopen_forget(struct file *of) { say("file freed"); }
bool deadlock_possible(const struct session *s) { return false; }
void deadlock_chase(struct session *s) { say("chase"); }
void lookup_test_shared(struct session *s) { say("test shared"); }

/* --- callers --- */

static struct caller {
	struct session s;
	int end;
	struct wire_reply reply; /* the last */
} one, two;

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

/* Its answer; 0: none has come. */
static inline int verdict(struct caller *c)
{
	ssize_t n = recv(c->end, &c->reply, sizeof(c->reply), MSG_DONTWAIT);
	ck_assert(n == sizeof(c->reply) || (n < 0 && errno == EAGAIN));
	return n < 0 ? 0 : c->reply.verdict;
}

/* A waiter that is none of the two callers' is a test's own. */
static inline void on_told(struct waiter *waiter, unsigned news, const char *why)
{
	if (waiter == &one.s.waiter || waiter == &two.s.waiter) {
		serve_told(waiter, news, why);
		return;
	}
	ck_assert_uint_eq(news, WAITER_SERVE);
	say("caller served");
}

/* --- a keeper with one file --- */

static inline void on_in_use(const struct lease *of) { say("in use"); }
static inline void on_freed(struct keeper *keeper) {}

static inline void prepare(void)
{
	static const struct queue_news news = {.told = on_told, .in_use = on_in_use, .leases_freed = on_freed};
	const struct stat st = {.st_dev = 1, .st_ino = 2};

	uv_loop_init(&loop);
	config = (struct config){.lease = {.ttl_ms = TTL_MS,
					   .linger_ms = LINGER_MS,
					   .pin_ms = PIN_MS,
					   .probe_ms = PROBE_MS,
					   .store_wait_ms = STORE_WAIT_MS,
					   .dead_ms = DEAD_MS}};
	sessions = (struct sessions){0};
	k = (struct keeper){.member_count = 1,
			    .members[0] = {.keeper = &k, .first = &k.members[0], .tried = true},
			    .loop = &loop,
			    .config = &config,
			    .table = &no_calls,
			    .sessions = &sessions};
	act_start(&k);
	k.queue.news = &news;
	ck_assert_int_eq(file_get(&k.members[0], &st, true, "/srv/x", "x", -1, &file), 0);
	lock = &file->locks[SPACE];
	begin_caller(&one);
	begin_caller(&two);
	memset(&now, 0, sizeof(now));
	now.sure_ms = HOUR_MS;
	pinned_until = 0;
	said[0] = '\0';
}

static inline void clean(void)
{
	struct lease *l, *next;
	end_caller(&one);
	end_caller(&two);
	HASH_ITER (hh, k.leases, l, next)
		l->probed.probe = NULL;
	act_free_all(&k);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}
FIXTURE(prepare, clean)

static inline struct lease *lease_in(enum lease_state state, int64_t from, int64_t to)
{
	const struct store_range range = {lock->space, WIRE_EXCLUSIVE, from, to};
	return add_lease(state, &range, 0);
}

static inline void happens(struct lease *to, enum lease_cue event)
{
	queue_raise(to, event);
	queue_settle(&k);
}

/* Another host waits for all of it. */
static inline void recall(struct lease *of, enum wire_mode mode)
{
	lease_recall(of, &(struct store_message){.range = {lock->space, mode, of->range.from, of->range.to}});
	queue_settle(&k);
}

/* The time until its timer rings, in ms; 0: it does not run. */
static inline int64_t timer_ms(const struct lease *of)
{
	return uv_is_active((const uv_handle_t *)&of->timer) ? (int64_t)uv_timer_get_due_in(&of->timer) : 0;
}

#endif
