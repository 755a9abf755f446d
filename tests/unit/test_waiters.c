/* keeper/leases/waiters.c: which caller waits for a lease, which pins have not ended, and which events their end
 * raises. */
#include "keeper/leases/waiters.h"

#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "tests/unit/suite.h"

#define HOUR_NS (3600 * 1000 * NS_PER_MS)

static struct keeper k;
static struct table no_calls; /* none is under way */
static struct file file;
static struct lock *lock;
static struct lease asking, draining;
static struct waiter waits, asks;

static struct store_range record(int64_t from, int64_t to)
{
	return (struct store_range){.space = WIRE_RECORD, .mode = WIRE_EXCLUSIVE, .from = from, .to = to};
}

static void prepare(void)
{
	memset(&k, 0, sizeof(k));
	k.table = &no_calls;
	file = (struct file){.keeper = &k};
	lock = &file.locks[WIRE_RECORD];
	*lock = (struct lock){.file = &file, .space = WIRE_RECORD};
	asking = (struct lease){.lock = lock, .state = LEASE_ASKING, .range = record(0, 100)};
	draining = (struct lease){.lock = lock, .state = LEASE_DRAINING, .range = record(0, 50)};
	DL_APPEND(lock->leases, &asking);
	DL_APPEND(lock->leases, &draining);
	waits = (struct waiter){.range = record(0, 10)};
	asks = (struct waiter){.range = record(40, 60), .nonblocking = true, .may_pass = true};
	waiters_add(&waits, lock);
	waiters_add(&asks, lock);
}

static void clean(void)
{
	free(waits.why);
	free(asks.why);
}
FIXTURE(prepare, clean)

static bool is_raised(const struct lease *lease, enum lease_cue event) { return lease->events[event].prev != NULL; }

TEST(which_kinds_wait_for_a_lease)
{
	ck_assert(!waiters_exist(&asking));
	waiters_join(&waits, &asking);
	ck_assert(waiters_exist(&asking) && waiters_block(&asking) && !waiters_ask(&asking) &&
		  !waiters_may_pass(&asking));
	waiters_join(&asks, &asking);
	ck_assert(waiters_ask(&asking) && waiters_may_pass(&asking) && !waiters_exist(&draining));
	waiters_leave(&waits);
	ck_assert(!is_raised(&asking, LEASE_CUE_UNWANTED));
	waiters_join(&waits, &asking);
	waiters_detach(&asking);
	ck_assert(!waiters_exist(&asking) && !waits.lease && !asks.lease);
	ck_assert(!is_raised(&asking, LEASE_CUE_UNWANTED)); /* it is no asking one any more */
	/* The last one that leaves makes it unwanted. */
	waiters_join(&asks, &asking);
	waiters_remove(&asks);
	ck_assert(is_raised(&asking, LEASE_CUE_UNWANTED));
	ck_assert(!asks.lock && !is_raised(&draining, LEASE_CUE_DRAINED));
}

TEST(a_pin_lasts_until_its_time_or_its_waiter_ends)
{
	const struct store_range before = record(0, 40), touching = record(59, 70);

	ck_assert(!waiters_are_pinned(lock, &draining.range));
	asks.pin_until_ns = clock_now_ns() + HOUR_NS;
	ck_assert(waiters_are_pinned(lock, &draining.range) && waiters_are_pinned(lock, &touching));
	ck_assert(!waiters_are_pinned(lock, &before));
	waiters_serve(lock); /* a pinned one need not be */
	ck_assert(waits.news == WAITER_SERVE && !asks.news);
	waiters_unpinned(lock);
	ck_assert(!is_raised(&draining, LEASE_CUE_DRAINED));
	asks.pin_until_ns = 1;
	ck_assert(!waiters_are_pinned(lock, &draining.range));
	/* Those of an earlier keeper count, too. */
	k.old_pins.until_ns = clock_now_ns() + HOUR_NS;
	ck_assert(waiters_are_pinned(lock, &draining.range) && !waiters_need_pin(lock, &draining.range));
	k.old_pins.until_ns = 1;
	ck_assert(!waiters_are_pinned(lock, &draining.range));
	waiters_remove(&asks);
	ck_assert(is_raised(&draining, LEASE_CUE_DRAINED));
	ck_assert(!is_raised(&asking, LEASE_CUE_DRAINED));
}

/* A lease that asks whether its range is pinned waits for the end of the pin. */
TEST(those_whose_connections_rest_hear_that_their_pin_is_wanted)
{
	const struct store_range all = record(0, 100), first = record(0, 40);

	waits.pin_until_ns = asks.pin_until_ns = clock_now_ns() + HOUR_NS;
	ck_assert(waiters_are_pinned(lock, &all) && !waits.news && !asks.news);
	waits.rests = asks.rests = true;
	ck_assert(waiters_are_pinned(lock, &first));
	ck_assert(waits.news == WAITER_PIN_WANTED && !asks.news);
	ck_assert(waiters_are_pinned(lock, &all));
	ck_assert(waits.news == WAITER_PIN_WANTED && asks.news == WAITER_PIN_WANTED);
	queue_untell(&waits);
	waits.pin_until_ns = 1;
	ck_assert(waiters_are_pinned(lock, &all) && !waits.news);
}

TEST(a_pin_that_is_due_counts)
{
	waits.needs_pin = true;
	ck_assert(waiters_need_pin(lock, &draining.range) && waiters_are_pinned(lock, &draining.range));
	asks.pin_until_ns = 1;
	waiters_remove(&asks);
	ck_assert(!is_raised(&draining, LEASE_CUE_DRAINED));
	waiters_remove(&waits);
	ck_assert(is_raised(&draining, LEASE_CUE_DRAINED));
}

TEST(those_that_waited_when_the_store_was_asked_have_its_number)
{
	int64_t asked;

	waiters_join(&waits, &asking);
	asked = clock_now_ns();
	waiters_queued(&asking, asked, 7, false);
	ck_assert_uint_eq(waits.arrival, 7);
	ck_assert_uint_eq(waits.news, WAITER_QUEUED);
	queue_untell(&waits);
	waiters_queued(&asking, asked, 9, false);
	ck_assert_uint_eq(waits.arrival, 7);
	waiters_join(&asks, &asking);
	asks.joined_ns = asked + 1;
	waiters_queued(&asking, asked, 9, false);
	ck_assert_uint_eq(asks.arrival, 0);
	ck_assert_uint_eq(asks.news, WAITER_QUEUED);
	ck_assert(!waits.news);
	waiters_queued(&asking, asked, 9, true);
	ck_assert_uint_eq(waits.news, WAITER_QUEUED);
}

TEST(only_its_waiters_hear_of_a_lease)
{
	waiters_join(&asks, &asking);
	waiters_tell(&asking, WAITER_IN_USE);
	ck_assert(!waits.news && asks.news == WAITER_IN_USE);
	waiters_join(&waits, &asking);
	waiters_refuse_nonblocking(&asking, REFUSAL_GRACE, "one");
	ck_assert(!waits.news && asks.news == (WAITER_IN_USE | WAITER_REFUSED));
	waiters_refuse(&asking, REFUSAL_ROOM, "two");
	ck_assert_uint_eq(waits.news, WAITER_REFUSED);
	ck_assert_str_eq(waits.why, "two");
	ck_assert_str_eq(asks.why, "two");
	waiters_remove(&asks);
	ck_assert(!asks.news && !asks.why);
	ck_assert(k.queue.told == &waits && !waits.told_next);
}
