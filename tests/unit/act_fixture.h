/*
 * For the tests of keeper/leases/act.c and recall.c: a keeper with one file. The queue, the leases and the callers are real; the table, the
 * page, the requests of the store and the probes are here, and write down what they are told.
 */
#ifndef DFLOCK_TESTS_UNIT_ACT_FIXTURE_H
#define DFLOCK_TESTS_UNIT_ACT_FIXTURE_H

#include <utlist.h>

#include "keeper/leases/act.h"
#include "keeper/clock.h"
#include "keeper/guard/table.h"
#include "keeper/leases/answers.h"
#include "keeper/leases/confirm.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/keys.h"
#include "keeper/leases/pagefile.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/lost.h"
#include "keeper/leases/probing.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/recall.h"
#include "keeper/leases/reopen.h"
#include "keeper/leases/requests.h"
#include "keeper/leases/room.h"
#include "keeper/leases/hidden.h"
#include "keeper/leases/waiters.h"
#include "tests/unit/said.h"
#include "tests/unit/suite.h"

#define LINGER_MS 100
#define TTL_MS    1000
#define LONG_NS   (3600 * 1000 * NS_PER_MS)
#define SLOT      5

static uv_loop_t loop;
static struct config config;
static struct keeper k;
static struct table no_calls; /* none is under way */
static struct file *file;
static struct lock *lock;

/* --- the early release --- */

static enum early_end early; /* what the probe's thread has done */

void early_arm(struct lease *lease) {}

enum early_end early_disarm(struct lease *lease)
{
	enum early_end end = early;

	early = EARLY_NOT;
	return end;
}

/* --- the table of leases --- */

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
void table_vacate(struct table *table, uint32_t slot) { say(slot == TABLE_NO_SLOT ? "table: no slot" : "table: free"); }

/* --- the page, and the parent --- */

void leasepage_close(struct lease *lease)
{
	ck_assert_int_eq(lease->state, LEASE_OPEN); /* first of all */
	say("page: closed");
}

void leasepage_close_lock(struct lock *of) { say("page: all of the lock closed"); }
void lost_end_holders(struct keeper *keeper) { say("holders end"); }
const char *keys_why_lost(const struct lease *lease) { return "key"; }

void lost_report(struct lease *lease, enum table_why which, const char *why)
{
	ck_assert_str_ne(why, "");
	say("reported");
}

/* --- the store --- */

static bool takes;

void lease_acquire(struct lease *lease, const struct store_blocker *silent, size_t silent_count)
{
	ck_assert(!silent && !silent_count);
	say("acquire");
}

bool lease_take(struct lease *lease)
{
	say("take");
	return takes;
}

void lease_send_release(struct lease *lease) { say("release"); }

void lease_send_shrink(struct lease *lease)
{
	ck_assert_int_eq(lease->range.mode, WIRE_SHARED);
	say("shrink");
}

void lease_send_confirm(struct lease *lease) { say("confirm"); }
void confirm_send_waiting(struct keeper *keeper) {}
void deadline_asked(struct member *m) {}

/* --- what others want, and what the kernel says --- */

static bool in_use, needs_more;

/* The kernel is asked by a probe alone; but it may show a lock at the beginning of the lease. */
int lock_in_the_way(const struct lease *lease, const struct store_range *wanted, struct store_range *out)
{
	*out = lease->range;
	return in_use ? 1 : -1;
}

void store_tell(struct store *store, const char *host, const struct store_message *m)
{
	ck_assert_int_eq(m->kind, STORE_MSG_IN_USE);
	say("asker told");
}

int lease_begin(struct lock *of, const struct store_range *range, uid_t uid, struct lease **out)
{
	*out = lease_new(of, range, uid);
	(*out)->slot = SLOT;
	return 0;
}

static struct probe *a_probe = (struct probe *)said; /* only compared */

void lease_start_probe(struct lease *lease)
{
	ck_assert_int_eq(lease->state, LEASE_PROBING);
	lease->probed.probe = a_probe;
	say("probe");
}

void lease_stop_probe(struct lease *lease) { say("stop probe"); }
bool probe_waits_for_more(const struct lease *lease) { return needs_more; }
bool lease_is_in_use(const struct lease *lease) { return in_use; }
void hidden_due(struct lease *lease) { say("holders looked at"); }

/* --- what ends with a lease --- */

void answers_forget(struct lease *lease) {}
void room_remove(struct lease *lease) { say("freed"); }
void room_used(struct lease *lease) {}
void reopen_forget(struct file *of) { say("file freed"); }

/* --- a keeper with one file --- */

static inline void on_told(struct waiter *waiter, unsigned news, const char *why)
{
	ck_assert_uint_eq(news, WAITER_SERVE);
	say("caller served");
}

static inline void on_in_use(const struct lease *lease) { say("in use"); }
static inline void on_freed(struct keeper *keeper) {}

static inline void prepare(void)
{
	static const struct queue_news news = {.told = on_told, .in_use = on_in_use, .leases_freed = on_freed};
	const struct stat st = {.st_dev = 1, .st_ino = 2};

	uv_loop_init(&loop);
	config = (struct config){.lease = {.ttl_ms = TTL_MS, .linger_ms = LINGER_MS}};
	k = (struct keeper){
		.member_count = 1, .members[0].keeper = &k, .loop = &loop, .config = &config, .table = &no_calls};
	act_start(&k);
	k.queue.news = &news;
	ck_assert_int_eq(file_get(&k.members[0], &st, true, "/srv/x", "x", -1, &file), 0);
	lock = &file->locks[WIRE_RECORD];
	said[0] = '\0';
	takes = true;
	in_use = needs_more = false;
}

static inline void clean(void)
{
	struct lease *lease, *next;

	HASH_ITER (hh, k.leases, lease, next)
		lease->probed.probe = NULL;
	act_free_all(&k);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static inline struct lease *lease_in(enum lease_state state, int64_t from, int64_t to)
{
	struct store_range range = {.space = WIRE_RECORD, .mode = WIRE_EXCLUSIVE, .from = from, .to = to};
	struct lease *lease = lease_new(lock, &range, 0);

	ck_assert_ptr_nonnull(lease);
	lease->state = state;
	lease->slot = SLOT;
	lease->fence = 1;
	return lease;
}

static inline void happens(struct lease *lease, enum lease_cue event)
{
	queue_raise(lease, event);
	queue_settle(&k);
}

static inline void recall(struct lease *lease, enum wire_mode mode, bool ask)
{
	struct store_message m = {.range = {WIRE_RECORD, mode, lease->range.from, lease->range.to}, .ask = ask};

	lease_recall(lease, &m);
	queue_settle(&k);
}

/* The time until its timer rings, in ms; 0: it does not run. */
static inline int64_t timer_ms(const struct lease *lease)
{
	return uv_is_active((const uv_handle_t *)&lease->timer) ? (int64_t)uv_timer_get_due_in(&lease->timer) : 0;
}

static inline void ring(struct lease *lease)
{
	uv_timer_stop(&lease->timer);
	k.queue.work->timer(lease);
	queue_settle(&k);
}
FIXTURE(prepare, clean)

#endif
