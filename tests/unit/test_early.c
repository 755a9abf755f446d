/*
 * keeper/leases/early.c: a real probe and its thread give a lease back, and the loop disarms it at every moment. The store and the table are
 * here.
 */
#include "keeper/leases/act.h"

#include <sched.h>
#include <stdatomic.h>

#include "keeper/guard/table.h"
#include "keeper/leases/awaited.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/requests.h"
#include "tests/unit/probe_fixture.h"

#define SLOT 7

static struct keeper k;
static struct file file = {.keeper = &k};
static struct lock lock = {.file = &file};
static struct lease lease;
static struct asked asked;

/* --- the table, the store --- */

struct store_shot {
	bool refuses;
};
static struct store_shot shot;
static atomic_uint returned, sent, freed, held_up;
static atomic_bool gate; /* what is sent waits here */
static bool no_store;

void table_return(struct table *table, uint32_t slot)
{
	ck_assert_ptr_eq(table, k.table);
	ck_assert_uint_eq(slot, SLOT);
	ck_assert_uint_eq(atomic_load(&sent), 0); /* first of all */
	atomic_fetch_add(&returned, 1);
}

bool store_shot_fire(struct store_shot *fired)
{
	ck_assert_uint_eq(atomic_load(&returned), 1);
	ck_assert_uint_eq(atomic_load(&freed), 0);
	while (atomic_load(&gate)) {
		atomic_store(&held_up, 1);
		sched_yield();
	}
	if (!fired->refuses)
		atomic_fetch_add(&sent, 1);
	return !fired->refuses;
}

void store_shot_free(struct store_shot *old)
{
	ck_assert_ptr_eq(old, &shot);
	atomic_fetch_add(&freed, 1);
}

struct store_shot *lease_prepare_release(struct lease *of, struct awaited *awaited)
{
	ck_assert_ptr_eq(of, &lease);
	ck_assert_ptr_nonnull(awaited);
	return no_store ? NULL : &shot;
}

struct awaited *awaited_new(struct lease *of)
{
	of->requests++;
	return (struct awaited *)of;
}

struct lease *awaited_end(void *arg, int64_t *sent_ns)
{
	*sent_ns = 0;
	((struct lease *)arg)->requests--;
	return arg;
}

/* --- a lease in WAITING --- */

/* The file's lock is somebody's until the returned descriptor is closed. */
static int waits(void)
{
	const struct probe_want want = {.to = WIRE_EOF, .wait = true, .local = true};
	int fd = holder(LOCK_EX), own = asked.fd;

	lease = (struct lease){.lock = &lock, .slot = SLOT, .state = LEASE_WAITING, .probed.want = want};
	k.table = (struct table *)&lease; /* only compared */
	shot.refuses = no_store = false;
	atomic_store(&returned, 0);
	atomic_store(&sent, 0);
	atomic_store(&freed, 0);
	atomic_store(&held_up, 0);
	asked = (struct asked){.fd = own};
	start_want(&asked, &want);
	lease.probed.probe = asked.probe;
	until_in_use(&asked);
	return fd;
}

static void until_sent(void)
{
	while (!atomic_load(&sent))
		sched_yield();
}

/* What was fired wakes nobody, so the loop must not sleep. */
static void until_told(void)
{
	while (!asked.last)
		uv_run(&loop, UV_RUN_NOWAIT);
	check_answer(&asked, PROBE_FREE);
	lease.probed.probe = NULL;
}

TEST_EACH(fired_and_told_later, 2)
{
	int fd = waits();

	early_arm(&lease);
	ck_assert_ptr_nonnull(lease.probed.early);
	ck_assert_uint_eq(lease.requests, 1);
	close(fd);
	until_sent();
	if (_i) /* the loop hears of something else first */
		ck_assert_int_eq(early_disarm(&lease), EARLY_SENT);
	until_told();
	if (!_i)
		ck_assert_int_eq(early_disarm(&lease), EARLY_SENT);
	ck_assert_ptr_null(lease.probed.early);
	ck_assert_uint_eq(lease.requests, 1); /* the store answers */
	ck_assert_uint_eq(freed, 1);
	ck_assert_int_eq(early_disarm(&lease), EARLY_NOT);
	ck_assert_int_eq(possible(), LOCK_EX);
	close(asked.fd);
}

static void *open_gate(void *arg)
{
	for (int i = 0; i < 100; i++)
		sched_yield();
	atomic_store(&gate, false);
	return NULL;
}

/* The thread is between the table and the socket: the loop must not go on before it has sent. */
TEST(disarmed_while_it_sends)
{
	int fd = waits();
	pthread_t opener;

	early_arm(&lease);
	atomic_store(&gate, true);
	close(fd);
	while (!atomic_load(&held_up))
		sched_yield();
	ck_assert_int_eq(pthread_create(&opener, NULL, open_gate, NULL), 0);
	ck_assert_int_eq(early_disarm(&lease), EARLY_SENT);
	ck_assert_uint_eq(sent, 1);
	pthread_join(opener, NULL);
	until_told();
	close(asked.fd);
}

/* What was not fired wakes the loop. */
static void ends_unfired(int fd)
{
	close(fd);
	ends(&asked, PROBE_FREE);
	ck_assert_uint_eq(returned + sent, 0);
}

TEST(disarmed_before)
{
	int fd = waits();

	early_arm(&lease);
	ck_assert_int_eq(early_disarm(&lease), EARLY_NOT);
	ck_assert_uint_eq(lease.requests, 0);
	ck_assert_uint_eq(freed, 1);
	ends_unfired(fd);
}

TEST_EACH(not_armed, 3)
{
	int fd = waits();

	no_store = _i == 0;
	lease.probed.want.shared_will_do = _i == 1;
	lease.probed.want.wait = _i != 2;
	early_arm(&lease);
	ck_assert_ptr_null(lease.probed.early);
	ck_assert_uint_eq(lease.requests, 0);
	ends_unfired(fd);
}

/* Its last answer is that it was stopped: it fires for no other answer than that the lock is free. */
TEST(stopped_while_armed)
{
	int fd = waits();

	early_arm(&lease);
	probe_stop(asked.probe);
	ends(&asked, PROBE_STOPPED);
	lease.probed.probe = NULL;
	ck_assert_int_eq(early_disarm(&lease), EARLY_NOT);
	ck_assert_uint_eq(returned + sent, 0);
	close(fd);
}

/* The socket takes nothing: the loop is woken, and has to send. */
TEST(refused)
{
	int fd = waits();

	shot.refuses = true;
	early_arm(&lease);
	close(fd);
	until_last(&asked);
	lease.probed.probe = NULL;
	ck_assert_int_eq(early_disarm(&lease), EARLY_RETURNED);
	ck_assert_uint_eq(returned, 1);
	ck_assert_uint_eq(lease.requests, 0);
	close(asked.fd);
}

/* on_release() got an error, or nothing, before the loop knew that it was sent. */
TEST(answered_with_an_error)
{
	int fd = waits();

	early_arm(&lease);
	close(fd);
	until_sent();
	lease.probed.early_refused = true;
	ck_assert_int_eq(early_disarm(&lease), EARLY_RETURNED);
	ck_assert(!lease.probed.early_refused);
	until_told();
	close(asked.fd);
}

/* An unlock and a disarm as close together as can be: the thread fires once, or never. */
TEST(races)
{
	unsigned seed = 4711, got[3] = {0};

	for (int i = 0; i < RACES; i++) {
		int fd = waits();
		struct other other = {.fd = fd, .turns = rand_r(&seed) % 40000};
		enum early_end end;
		pthread_t thread;

		early_arm(&lease);
		ck_assert_int_eq(pthread_create(&thread, NULL, let_go, &other), 0);
		for (volatile int turns = rand_r(&seed) % 80000; turns; turns--)
			;
		end = early_disarm(&lease);
		got[end]++;
		ck_assert_uint_eq(returned, end == EARLY_SENT);
		ck_assert_uint_eq(sent, end == EARLY_SENT);
		until_told();
		ck_assert_uint_eq(returned, end == EARLY_SENT); /* nothing came later */
		ck_assert_uint_eq(sent, end == EARLY_SENT);
		ck_assert_uint_eq(lease.requests, end == EARLY_SENT);
		pthread_join(thread, NULL);
		close(fd);
	}
	ck_assert_msg(got[EARLY_NOT] && got[EARLY_SENT], "%u and %u: this tests too little", got[EARLY_NOT],
		      got[EARLY_SENT]);
	close(asked.fd);
}
