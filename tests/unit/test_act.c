/*
 * keeper/leases/act.c: what is done when something happens to a lease, and in which order. The queue, the leases and the callers
 * are real; the table, the page, the store's requests and the probes are here, and write down what they are told.
 */
#include "keeper/leases/act.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/guard/table_notes.h"
#include "keeper/leases/answers.h"
#include "keeper/leases/askers.h"
#include "keeper/leases/inquiry.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/leasepage.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/lost.h"
#include "keeper/leases/probing.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/reopen.h"
#include "keeper/leases/requests.h"
#include "keeper/leases/room.h"
#include "keeper/leases/split.h"
#include "keeper/leases/unseen.h"
#include "keeper/leases/waiters.h"

#define LINGER_MS 100
#define TTL_MS    1000
#define LONG_NS   (3600 * 1000 * NS_PER_MS)
#define SLOT      5

static uv_loop_t loop;
static struct config config;
static struct keeper k;
static struct file *file;
static struct lock *lock;
static char said[1024];

static void say(const char *word)
{
	size_t len = strlen(said);

	snprintf(said + len, sizeof(said) - len, "%s%s", len ? ", " : "", word);
}

/* What was said since the last time. */
#define check_said(words)                                                                                              \
	do {                                                                                                           \
		ck_assert_str_eq(said, words);                                                                         \
		said[0] = '\0';                                                                                        \
	} while (0)

/* --- the table of leases --- */

void table_share(struct table *table, uint32_t slot)
{
	(void)table;
	ck_assert_uint_eq(slot, SLOT);
	say("table: shared");
}

void table_return(struct table *table, uint32_t slot)
{
	(void)table, (void)slot;
	say("table: returned");
}

void table_doubt(struct table *table, uint32_t slot)
{
	(void)table, (void)slot;
	say("table: unsure");
}

void table_hold(struct table *table, uint32_t slot)
{
	(void)table, (void)slot;
	say("table: held");
}

void table_lose(struct table *table, uint32_t slot, enum table_why why)
{
	(void)table;
	ck_assert_uint_eq(slot, SLOT);
	ck_assert_int_eq(why, TABLE_WHY_TAKEN);
	say("table: lost");
}

void table_vacate(struct table *table, uint32_t slot)
{
	(void)table;
	say(slot == TABLE_NO_SLOT ? "table: no slot" : "table: free");
}

/* --- the page, and the parent --- */

void leasepage_close(struct lease *lease)
{
	ck_assert_int_eq(lease->state, LEASE_HELD); /* first of all */
	say("page: closed");
}

void leasepage_close_lock(struct lock *of)
{
	(void)of;
	say("page: all of the lock closed");
}

void lost_end_holders(struct keeper *keeper)
{
	(void)keeper;
	say("holders end");
}

void lost_report(struct lease *lease, const char *why)
{
	(void)lease;
	ck_assert_str_ne(why, "");
	say("reported");
}

/* --- the store --- */

static bool takes;

void lease_acquire(struct lease *lease, const struct store_blocker *silent, size_t silent_count)
{
	(void)lease;
	ck_assert(!silent && !silent_count);
	say("acquire");
}

bool lease_take(struct lease *lease)
{
	(void)lease;
	say("take");
	return takes;
}

void lease_send_release(struct lease *lease)
{
	(void)lease;
	say("release");
}

void lease_send_shrink(struct lease *lease)
{
	ck_assert_int_eq(lease->range.mode, WIRE_SHARED);
	say("shrink");
}

void lease_send_confirm(struct lease *lease)
{
	(void)lease;
	say("confirm");
}

void requests_send_confirms(struct keeper *keeper)
{
	(void)keeper;
}

void deadline_asked(struct keeper *keeper)
{
	(void)keeper;
}

/* --- what others want, and what the kernel says --- */

static bool splits, in_use, needs_more;

void askers_add(struct lease *lease, const struct asker *asker)
{
	lease->askers[lease->asker_count++] = *asker;
}

void askers_tell(struct lease *lease)
{
	lease->asker_count = 0;
	say("askers told");
}

void askers_forget(struct lease *lease)
{
	lease->asker_count = 0;
}

bool inquiry_needed(const struct lease *lease)
{
	(void)lease;
	return false;
}

bool inquiry_start(struct lease *lease, const struct asker *asker)
{
	(void)lease, (void)asker;
	ck_abort();
}

bool split_on_recall(struct lease *lease, const struct store_range *wanted, bool ask)
{
	(void)lease, (void)wanted, (void)ask;
	if (splits)
		say("split");
	return splits;
}

void split_done(struct lease *whole)
{
	(void)whole;
	say("split is done");
}

void split_piece_ended(struct lease *piece)
{
	(void)piece;
	say("a piece ended");
}

static struct probe *a_probe = (struct probe *)said; /* only compared */

void lease_start_probe(struct lease *lease)
{
	ck_assert_int_eq(lease->state, LEASE_PROBING);
	lease->probe = a_probe;
	say("probe");
}

void lease_stop_probe(struct lease *lease)
{
	(void)lease;
	say("stop probe");
}

bool probe_waits_for_more(const struct lease *lease)
{
	(void)lease;
	return needs_more;
}

bool lease_is_in_use(const struct lease *lease)
{
	(void)lease;
	return in_use;
}

void unseen_due(struct lease *lease)
{
	(void)lease;
	say("holders looked at");
}

/* --- what ends with a lease --- */

void answers_forget(struct lease *lease)
{
	(void)lease;
}

void room_remove(struct lease *lease)
{
	(void)lease;
	say("freed");
}

void room_used(struct lease *lease)
{
	(void)lease;
}

void reopen_forget(struct file *of)
{
	(void)of;
	say("file freed");
}

/* --- a keeper with one file --- */

static void on_told(struct waiter *waiter, unsigned news, const char *why)
{
	(void)waiter, (void)why;
	ck_assert_uint_eq(news, WAITER_SERVE);
	say("caller served");
}

static void on_freed(struct keeper *keeper)
{
	(void)keeper;
}

static void prepare(void)
{
	static const struct queue_news news = {.told = on_told, .leases_freed = on_freed};
	const struct stat st = {.st_dev = 1, .st_ino = 2};

	uv_loop_init(&loop);
	config = (struct config){.lease = {.ttl_ms = TTL_MS, .linger_ms = LINGER_MS}};
	k = (struct keeper){.loop = &loop, .config = &config};
	act_start(&k);
	k.queue.news = &news;
	ck_assert_int_eq(file_get(&k, &st, true, "/srv/x", "x", -1, &file), 0);
	lock = &file->locks[WIRE_RECORD];
	said[0] = '\0';
	takes = true;
	splits = in_use = needs_more = false;
}

static void clean(void)
{
	struct lease *lease, *next;

	HASH_ITER (hh, k.leases, lease, next)
		lease->probe = NULL;
	act_free_all(&k);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static struct lease *lease_in(enum lease_state state, int64_t from, int64_t to)
{
	struct store_range range = {.space = WIRE_RECORD, .mode = WIRE_EXCLUSIVE, .from = from, .to = to};
	struct lease *lease = lease_new(lock, &range, 0);

	ck_assert_ptr_nonnull(lease);
	lease->state = state;
	lease->slot = SLOT;
	lease->fence = 1;
	return lease;
}

static void happens(struct lease *lease, enum lease_event event)
{
	queue_raise(lease, event);
	queue_settle(&k);
}

static void recall(struct lease *lease, enum wire_mode mode, bool ask)
{
	struct store_message m = {.range = {WIRE_RECORD, mode, lease->range.from, lease->range.to}, .ask = ask};

	lease_recall(lease, &m);
	queue_settle(&k);
}

/* The time until its timer rings, in ms; 0: it does not run. */
static int64_t timer_ms(const struct lease *lease)
{
	return uv_is_active((const uv_handle_t *)&lease->timer) ? (int64_t)uv_timer_get_due_in(&lease->timer) : 0;
}

static void ring(struct lease *lease)
{
	uv_timer_stop(&lease->timer);
	k.queue.work->timer(lease);
	queue_settle(&k);
}

/* --- the order in which things are done --- */

START_TEST(page_before_probe)
{
	struct lease *lease = lease_in(LEASE_HELD, 0, 10);

	recall(lease, WIRE_EXCLUSIVE, false);
	check_said("page: closed, probe");
	ck_assert_int_eq(lease->state, LEASE_PROBING);
}
END_TEST

START_TEST(pins_before_probe)
{
	struct lease *lease = lease_in(LEASE_HELD, 0, 10);
	struct waiter pinned = {.range = {WIRE_RECORD, WIRE_EXCLUSIVE, 9, 12}};

	waiters_add(&pinned, lock);
	pinned.pin_until_ns = clock_now_ns() + LONG_NS;
	recall(lease, WIRE_EXCLUSIVE, false);
	check_said("page: closed");
	ck_assert_int_eq(lease->state, LEASE_DRAINING);
	waiters_remove(&pinned);
	queue_settle(&k);
	check_said("probe");
}
END_TEST

START_TEST(table_before_release)
{
	struct lease *lease = lease_in(LEASE_PROBING, 0, 10);

	lease->recall = RECALL_WAIT;
	happens(lease, LEASE_EV_FREE);
	check_said("table: returned, release");
	ck_assert_int_eq(lease->state, LEASE_RELEASING);
	ck_assert_int_gt(lock->given_back_ns, 0);
}
END_TEST

START_TEST(table_before_shrink)
{
	struct lease *lease = lease_in(LEASE_PROBING, 0, 10);

	happens(lease, LEASE_EV_SHARED);
	check_said("table: held, table: shared, shrink");
	ck_assert_int_eq(lease->range.mode, WIRE_SHARED);
}
END_TEST

START_TEST(page_and_table_before_the_store_is_asked)
{
	struct lease *lease = lease_in(LEASE_HELD, 0, 10);

	happens(lease, LEASE_EV_EXPIRED);
	check_said("page: closed, table: unsure, confirm");
}
END_TEST

START_TEST(lost)
{
	struct lease *lease = lease_in(LEASE_HELD, 0, 10);
	struct waiter waits = {.range = lease->range};

	waiters_add(&waits, lock);
	happens(lease, LEASE_EV_EXPIRED);
	said[0] = '\0';
	happens(lease, LEASE_EV_GONE);
	check_said(
		"page: all of the lock closed, table: lost, holders end, reported, table: no slot, caller served, freed");
	waiters_remove(&waits);
}
END_TEST

/* The same lease may be granted twice, by message and by answer: the second time it means nothing. */
START_TEST(granted)
{
	struct lease *lease = lease_in(LEASE_ASKING, 0, 10);
	struct waiter waits = {.range = lease->range};

	waiters_add(&waits, lock);
	waiters_join(&waits, lease);
	happens(lease, LEASE_EV_GRANTED);
	check_said("take, table: held, caller served");
	ck_assert_int_eq(lease->state, LEASE_HELD);
	ck_assert_ptr_null(waits.lease);
	ck_assert_int_eq(timer_ms(lease), LINGER_MS);
	ck_assert_int_gt(lease->held_at, 0);
	happens(lease, LEASE_EV_GRANTED);
	check_said("");
	waiters_remove(&waits);
}
END_TEST

START_TEST(granted_and_cannot_be_taken)
{
	struct lease *lease = lease_in(LEASE_ASKING, 0, 10);

	takes = false;
	happens(lease, LEASE_EV_GRANTED);
	check_said("take");
	ck_assert_int_eq(lease->state, LEASE_ASKING);
}
END_TEST

/* --- leases that another one covers --- */

START_TEST(superseded)
{
	struct lease *small = lease_in(LEASE_HELD, 2, 5), *apart = lease_in(LEASE_HELD, 20, 30),
		     *large = lease_in(LEASE_ASKING, 0, 10);

	happens(large, LEASE_EV_GRANTED);
	check_said("take, table: held, page: closed, table: returned, release");
	ck_assert_int_eq(small->state, LEASE_RELEASING);
	ck_assert_int_eq(apart->state, LEASE_HELD);
}
END_TEST

/* When its turn comes, the lease that covers it is open no more. */
START_TEST(superseded_no_more)
{
	struct lease *small = lease_in(LEASE_HELD, 2, 5), *large = lease_in(LEASE_HELD, 0, 10);

	queue_raise(large, LEASE_EV_EXPIRED);
	queue_raise(small, LEASE_EV_SUPERSEDED);
	queue_settle(&k);
	ck_assert_int_eq(small->state, LEASE_HELD);
}
END_TEST

/* All parts must be open before the whole is given up. */
START_TEST(parts_are_not_superseded)
{
	struct lease *whole = lease_in(LEASE_HELD, 0, 100), *part = lease_in(LEASE_ASKING, 0, 10);

	part->whole = whole;
	happens(part, LEASE_EV_GRANTED);
	check_said("take, table: held");
	recall(part, WIRE_EXCLUSIVE, false);
	check_said("");
	ck_assert_int_eq(part->state, LEASE_HELD);
	part->whole = NULL;
}
END_TEST

/* --- recalls --- */

START_TEST(recalled_while_young)
{
	struct lease *lease = lease_in(LEASE_HELD, 0, 10);

	lease->keep_until_ns = clock_now_ns() + LONG_NS;
	recall(lease, WIRE_EXCLUSIVE, false);
	check_said("");
	ck_assert_int_eq(lease->state, LEASE_HELD);
	ck_assert_int_gt(timer_ms(lease), LONG_NS / NS_PER_MS - 10000);
	lease->keep_until_ns = 0;
	ring(lease);
	check_said("page: closed, probe");
}
END_TEST

START_TEST(recalled_while_asking)
{
	struct lease *lease = lease_in(LEASE_ASKING, 0, 10);
	struct waiter waits = {.range = lease->range};

	waiters_add(&waits, lock);
	recall(lease, WIRE_EXCLUSIVE, false);
	check_said("acquire"); /* the message that it was granted may be lost */
	happens(lease, LEASE_EV_GRANTED);
	check_said("take, table: held, caller served, page: closed, probe"); /* the caller first */
	waiters_remove(&waits);
}
END_TEST

START_TEST(recalled_for_shared)
{
	struct lease *lease = lease_in(LEASE_HELD, 0, 10);

	lease->range.mode = WIRE_SHARED;
	recall(lease, WIRE_SHARED, false);
	check_said(""); /* late: it is shared already */
	ck_assert_int_eq(lease->recall, RECALL_NONE);
	recall(lease, WIRE_EXCLUSIVE, false);
	check_said("page: closed, probe");
	ck_assert(lease->recall_exclusive && !lease->recall_shared);
}
END_TEST

START_TEST(recalled_and_split)
{
	struct lease *lease = lease_in(LEASE_HELD, 0, 10);

	splits = true;
	recall(lease, WIRE_EXCLUSIVE, false);
	check_said("split");
	ck_assert_int_eq(lease->state, LEASE_HELD);
	ck_assert_int_eq(lease->recall, RECALL_NONE);
}
END_TEST

START_TEST(asked_and_in_use)
{
	struct lease *lease = lease_in(LEASE_HELD, 0, 10);

	recall(lease, WIRE_EXCLUSIVE, true);
	check_said("page: closed, probe");
	ck_assert_uint_eq(lease->asker_count, 1);
	lease->probe = NULL;
	happens(lease, LEASE_EV_KEPT);
	check_said("table: held, askers told");
	ck_assert_int_eq(lease->state, LEASE_HELD);
	ck_assert_int_eq(lease->recall, RECALL_NONE); /* it is answered */
}
END_TEST

/* A probe that waits for the end of exclusive locks does not do for one that wants all. */
START_TEST(recalled_while_the_probe_waits)
{
	struct lease *lease = lease_in(LEASE_WAITING, 0, 10);

	lease->probe = a_probe;
	recall(lease, WIRE_EXCLUSIVE, false);
	check_said("askers told");
	needs_more = true;
	recall(lease, WIRE_EXCLUSIVE, false);
	check_said("stop probe");
	ck_assert_int_eq(lease->state, LEASE_STOPPING);
}
END_TEST

/* --- unused --- */

START_TEST(lingers)
{
	struct lease *lease = lease_in(LEASE_HELD, 0, 10);

	in_use = true;
	for (int64_t ms = 2 * LINGER_MS; ms < 10 * TTL_MS; ms *= 2) {
		int64_t most = ms < 4 * TTL_MS ? ms : 4 * TTL_MS;

		ring(lease);
		check_said("holders looked at");
		ck_assert_int_eq(timer_ms(lease), most);
	}
	lease_used(lease);
	ck_assert_int_eq(timer_ms(lease), LINGER_MS);
	in_use = false;
	ring(lease);
	check_said("page: closed, probe");
	ck_assert_int_eq(lease->recall, RECALL_LINGER);
}
END_TEST

START_TEST(lingers_while_pinned)
{
	struct lease *lease = lease_in(LEASE_HELD, 0, 10);
	struct waiter pinned = {.range = lease->range};

	waiters_add(&pinned, lock);
	pinned.pin_until_ns = clock_now_ns() + LONG_NS;
	ring(lease);
	check_said("");
	ck_assert_int_eq(timer_ms(lease), LINGER_MS);
	waiters_remove(&pinned);
}
END_TEST

START_TEST(timer_asks_again)
{
	ring(lease_in(LEASE_ASKING, 0, 10));
	check_said("acquire");
	ring(lease_in(LEASE_RELEASING, 10, 20));
	check_said("table: returned, release");
}
END_TEST

/* --- the end --- */

/* Whoever refers to it may still do so. */
START_TEST(freed_when_nothing_refers_to_it)
{
	struct lease *lease = lease_in(LEASE_RELEASING, 0, 10);

	lease->requests = 1;
	happens(lease, LEASE_EV_RELEASED);
	check_said("table: free");
	ck_assert_int_eq(lease->state, LEASE_ENDED);
	ck_assert_uint_eq(lease->slot, TABLE_NO_SLOT);
	lease->requests = 0;
	lease->probe = a_probe;
	queue_settle(&k);
	check_said("");
	lease->probe = NULL;
	queue_settle(&k);
	check_said("freed, file freed");
	ck_assert_ptr_null(k.files);
}
END_TEST

/* The parent goes by the slots: they stay as they are. */
START_TEST(leaves_all)
{
	struct lease *lease = lease_in(LEASE_HELD, 0, 10);

	lease_used(lease);
	act_leave_all(&k);
	check_said("stop probe");
	ck_assert_int_eq(lease->state, LEASE_ENDED);
	ck_assert_uint_eq(lease->slot, TABLE_NO_SLOT);
	ck_assert_int_eq(timer_ms(lease), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("act");
	TCase *tests = tcase_create("act");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tests, prepare, clean);
	tcase_add_test(tests, page_before_probe);
	tcase_add_test(tests, pins_before_probe);
	tcase_add_test(tests, table_before_release);
	tcase_add_test(tests, table_before_shrink);
	tcase_add_test(tests, page_and_table_before_the_store_is_asked);
	tcase_add_test(tests, lost);
	tcase_add_test(tests, granted);
	tcase_add_test(tests, granted_and_cannot_be_taken);
	tcase_add_test(tests, superseded);
	tcase_add_test(tests, superseded_no_more);
	tcase_add_test(tests, parts_are_not_superseded);
	tcase_add_test(tests, recalled_while_young);
	tcase_add_test(tests, recalled_while_asking);
	tcase_add_test(tests, recalled_for_shared);
	tcase_add_test(tests, recalled_and_split);
	tcase_add_test(tests, asked_and_in_use);
	tcase_add_test(tests, recalled_while_the_probe_waits);
	tcase_add_test(tests, lingers);
	tcase_add_test(tests, lingers_while_pinned);
	tcase_add_test(tests, timer_asks_again);
	tcase_add_test(tests, freed_when_nothing_refers_to_it);
	tcase_add_test(tests, leaves_all);
	suite_add_tcase(suite, tests);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
