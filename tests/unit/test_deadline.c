/* keeper/leases/deadline.c: when a host renews, and until when its leases are sure. The store and what hears of it are here. */
#include "keeper/leases/deadline.h"

#include "keeper/clock.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/keys.h"
#include "keeper/leases/pagefile.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/waiters.h"
#include "tests/unit/suite.h"

static uv_loop_t loop;
static struct config config = {.lease = {.ttl_ms = 30, .probe_ms = 10, .freeze_margin_ms = 5}};
static struct keeper k;
static struct member *const m = &k.members[0];
static unsigned beats, ends_after;

bool store_is_up(const struct store *store) { return true; }
const char *store_last_error(const struct store *store) { return ""; }
const char *store_server(const struct store *store) { return "S"; }
const char *store_trouble(const struct store *store) { return "is not reachable"; }
size_t keys_count(const struct member *keeper) { return 0; }
void keys_heard(struct member *keeper, const struct store_reply *reply) {}
void leasepage_refresh(struct keeper *keeper) {}
void queue_raise_all(struct member *keeper, enum lease_cue cue) {}
void queue_settle(struct keeper *keeper) {}
void table_notify(const struct table *table) {}
static int64_t told_ns; /* the parent */
void table_renewed(struct table *table, unsigned member, int64_t freeze_at_ns, int64_t deadline_ns)
{
	told_ns = deadline_ns;
}
void waiters_serve_all(struct keeper *keeper) {}

void store_beat(struct store *store, uint64_t mark, size_t keys, store_reply_cb *cb, void *arg)
{
	if (++beats == ends_after)
		k.lost.losing = false;
	cb(arg, &(struct store_reply){.status = STORE_OK});
}

static void start(bool losing)
{
	uv_loop_init(&loop);
	k = (struct keeper){
		.member_count = 1, .members[0].keeper = &k, .loop = &loop, .config = &config, .lost.losing = losing};
	deadline_start(m);
}

static void stop(void)
{
	deadline_stop(m);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}

/* The keeper before this one died while the parent ended the holders of a lease that was taken away: the store has it still. */
TEST_EACH(beats_while_holders_are_ended, 2)
{
	beats = 0;
	ends_after = 3;
	start(_i);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(beats, _i ? ends_after : 0);
	stop();
}

static void given_up_with(unsigned unsure)
{
	deadline_renewed(m, clock_now_ns());
	m->states.count[WIRE_FLOCK][LEASE_UNSURE] = unsure;
	beats = ends_after = 0;
	deadline_given_up(m, m->deadline.mark + 1);
	ck_assert_uint_eq(beats, 1);
}

/* A beat is answered before the parent has looked, and most of the leases are not confirmed; or there are none. */
TEST_EACH(given_up_the_parent_hears_of_no_time_before_all_are_settled, 2)
{
	start(false);
	given_up_with(0);
	ck_assert(told_ns > clock_now_ns());
	given_up_with(2);
	ck_assert(told_ns <= clock_now_ns() && !m->deadline.expired && m->deadline.at_ns > told_ns);
	m->states.count[WIRE_FLOCK][LEASE_UNSURE] = 1;
	deadline_confirmed(m, STORE_OK);
	deadline_renewed(m, clock_now_ns() + 1);
	ck_assert(told_ns < m->deadline.at_ns);
	m->states.count[WIRE_FLOCK][LEASE_UNSURE] = _i; /* one may have something that nobody can read */
	deadline_confirmed(m, _i ? STORE_ERROR : STORE_GONE);
	ck_assert_int_eq(told_ns, m->deadline.at_ns);
	/* In an outage those that were confirmed go on. */
	m->states.count[WIRE_FLOCK][LEASE_UNSURE] = 1;
	while (deadline_sure_until(m) > clock_now_ns())
		;
	deadline_renewed(m, clock_now_ns());
	ck_assert(told_ns > clock_now_ns());
	stop();
}
