/*
 * keeper/callers/serve.c: what a caller gets of a lease that is there, of one that must be asked for, and of neither. Session,
 * answers, queue and leases are real; the store, the deadline, the probes and the room for leases are here.
 */
#include "keeper/callers/serve.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/callers/deadlock.h"
#include "keeper/callers/lookup.h"
#include "keeper/clock.h"
#include "keeper/guard/table_notes.h"
#include "keeper/leases/act.h"
#include "keeper/leases/answers.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/leasepage.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/lost.h"
#include "keeper/leases/probing.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/requests.h"
#include "keeper/leases/room.h"
#include "keeper/leases/split.h"
#include "keeper/leases/waiters.h"

#define PIN_MS        200
#define PROBE_MS      700
#define STORE_WAIT_MS 9000
#define DEAD_MS       60000
#define HOUR_MS       (3600 * 1000)

static uv_loop_t loop;
static struct config config;
static struct keeper k;
static struct file *file;
static struct lock *lock;
static struct lease *lease; /* the first one that there is */
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

/* --- the store, and until when leases are sure --- */

static bool up;
static int64_t sure_ms; /* from now on */

bool store_is_up(const struct store *store)
{
	(void)store;
	return up;
}

bool store_in_grace(const struct store *store)
{
	(void)store;
	return false;
}

const char *store_server(const struct store *store)
{
	(void)store;
	return "S";
}

int64_t deadline_sure_until(struct keeper *keeper)
{
	(void)keeper;
	return clock_now_ns() + sure_ms * NS_PER_MS;
}

void deadline_trouble(const struct keeper *keeper, char *out, size_t size)
{
	(void)keeper;
	snprintf(out, size, "store S: down");
}

/* --- leases --- */

static int begins; /* what lease_begin() says */
static uint64_t pinned_until;
static size_t named_dead;
static char dead_host[STORE_HOST_BYTES];
static bool probes_run, losing;

static struct lease *add_lease(enum lease_state state, enum wire_mode mode, int64_t from, int64_t to)
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
	(void)of;
	named_dead = silent_count;
	snprintf(dead_host, sizeof(dead_host), "%s", silent_count ? silent[0].host : "");
	say("acquire");
}

void lease_used(struct lease *of)
{
	(void)of;
	say("used");
}

void leasepage_show(struct lease *of)
{
	ck_assert_int_eq(of->state, LEASE_HELD);
	say("shown");
}

void table_pinned(struct table *table, int64_t until_ns)
{
	(void)table;
	pinned_until = (uint64_t)until_ns;
	say("table: pin");
}

bool lock_stop_probes(struct lock *of, const struct store_range *range)
{
	(void)of, (void)range;
	return !probes_run;
}

bool lost_has_holders(const struct lock *of)
{
	(void)of;
	return losing;
}

bool split_on_recall(struct lease *of, const struct store_range *wanted, bool ask)
{
	(void)of, (void)wanted, (void)ask;
	say("split");
	return true;
}

/* --- room, answers of other hosts, and the rest of callers/ --- */

static bool full, complete;
static struct store_range *in_the_way;

int room_check(const struct keeper *keeper, uid_t uid)
{
	(void)keeper, (void)uid;
	return full ? -ENFILE : 0;
}

void room_wait(struct waiter *waiter)
{
	waiter->roomless = true;
	say("waits for room");
}

void room_leave(struct waiter *waiter)
{
	waiter->roomless = false;
}

void room_why(const struct waiter *waiter, char *why, size_t size)
{
	(void)waiter;
	snprintf(why, size, "no room");
}

bool answers_complete(const struct lease *of)
{
	(void)of;
	return complete;
}

const struct store_range *answers_first(const struct lease *of)
{
	(void)of;
	return in_the_way;
}

bool deadlock_possible(const struct session *s)
{
	(void)s;
	return false;
}

void deadlock_chase(struct session *s)
{
	(void)s;
	say("chase");
}

void lookup_test_shared(struct session *s)
{
	(void)s;
	say("test shared");
}

/* --- callers --- */

struct caller {
	struct session s;
	int end;
	struct wire_reply reply; /* the last */
};

static struct caller one, two;

static void begin_caller(struct caller *c)
{
	int ends[2];

	memset(c, 0, sizeof(*c));
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	c->end = ends[0];
	c->s = (struct session){.keeper = &k, .fd = ends[1], .peer = {.pid = 1, .uid = 500}};
	uv_timer_init(&loop, &c->s.timer);
	c->s.timer.data = &c->s;
}

static void end_caller(struct caller *c)
{
	if (c->s.waiter.lock)
		session_stop_waiting(&c->s);
	uv_close((uv_handle_t *)&c->s.timer, NULL);
	close(c->end);
	close(c->s.fd);
}

static void ask(struct caller *c, enum wire_op op, enum wire_mode mode, unsigned flags, int64_t from, int64_t to)
{
	c->s.request = (struct wire_request){
		.op = op, .space = lock->space, .mode = mode, .flags = flags, .from = from, .to = to};
	c->s.received_ns = clock_now_ns();
	c->s.request.sent_ns = c->s.received_ns;
	serve_begin(&c->s, lock);
	queue_settle(&k);
}

static void ask_all(struct caller *c, unsigned flags)
{
	ask(c, WIRE_LOCK, WIRE_EXCLUSIVE, flags, 0, WIRE_EOF);
}

/* Its answer; 0: none has come. */
static int verdict(struct caller *c)
{
	ssize_t n = recv(c->end, &c->reply, sizeof(c->reply), MSG_DONTWAIT);

	ck_assert(n == sizeof(c->reply) || (n < 0 && errno == EAGAIN));
	return n < 0 ? 0 : c->reply.verdict;
}

static void check_refused(struct caller *c, const char *why)
{
	ck_assert_int_eq(verdict(c), WIRE_REFUSED);
	ck_assert_str_eq(c->reply.reason, why);
	ck_assert_ptr_null(c->s.waiter.lock);
}

/* It waits, in silence, and its timer rings after so many ms. */
static void check_waits(struct caller *c, int64_t ms)
{
	ck_assert_int_eq(verdict(c), 0);
	ck_assert_int_eq(c->s.state, SESSION_WAITING);
	if (ms)
		ck_assert_int_eq((int64_t)uv_timer_get_due_in(&c->s.timer), ms);
	else
		ck_assert(!uv_is_active((uv_handle_t *)&c->s.timer));
}

static void check_pinned(struct caller *c)
{
	ck_assert_int_eq(verdict(c), WIRE_GRANTED);
	ck_assert_int_eq(c->s.state, SESSION_PINNED);
	ck_assert_uint_eq(c->reply.fence, 77);
	ck_assert_int_eq(c->reply.until_ns, c->s.waiter.pin_until_ns);
	ck_assert_uint_eq(pinned_until, (uint64_t)c->s.waiter.pin_until_ns);
}

static void ring(struct caller *c)
{
	uv_timer_stop(&c->s.timer);
	serve_timeout(&c->s);
	queue_settle(&k);
}

static void serve_again(void)
{
	waiters_serve(lock);
	queue_settle(&k);
}

static void told(struct caller *c, unsigned news)
{
	queue_tell(&c->s.waiter, news);
	queue_settle(&k);
}

/* --- a keeper with one file --- */

static void on_step(struct lease *of, enum lease_event event)
{
	(void)of;
	say(lease_event_name(event));
}

static void on_nothing(struct keeper *keeper)
{
	(void)keeper;
}

static unsigned on_reap(struct keeper *keeper)
{
	(void)keeper;
	return 0;
}

static void prepare(void)
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
	k = (struct keeper){.loop = &loop, .config = &config, .host_in_store.tried = true};
	k.queue.work = &work;
	k.queue.news = &news;
	ck_assert_int_eq(file_get(&k, &st, true, "/srv/x", "x", -1, &file), 0);
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

static void clean(void)
{
	struct lease *l, *next;

	end_caller(&one);
	end_caller(&two);
	HASH_ITER (hh, k.leases, l, next) {
		free(l->blockers);
		lease_free(l);
	}
	file_free(file);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static struct lease *all_of(enum lease_state state)
{
	lease = add_lease(state, WIRE_EXCLUSIVE, 0, WIRE_EOF);
	return lease;
}

/* --- an open lease --- */

START_TEST(granted)
{
	int64_t before = clock_now_ns();

	all_of(LEASE_HELD);
	ask_all(&one, 0);
	check_said("used, shown, table: pin");
	check_pinned(&one);
	ck_assert_int_ge(one.s.waiter.pin_until_ns, before + PIN_MS * NS_PER_MS);
	ck_assert_int_le(one.s.waiter.pin_until_ns, clock_now_ns() + PIN_MS * NS_PER_MS);
}
END_TEST

START_TEST(no_pin_beyond_what_is_sure)
{
	all_of(LEASE_HELD);
	sure_ms = PIN_MS / 2;
	ask_all(&one, 0);
	check_pinned(&one);
	ck_assert_int_le(one.s.waiter.pin_until_ns, clock_now_ns() + PIN_MS / 2 * NS_PER_MS);
}
END_TEST

/* It would be over before the answer arrives. */
START_TEST(hardly_sure)
{
	all_of(LEASE_HELD);
	sure_ms = 4;
	ask_all(&one, 0);
	check_said("");
	check_waits(&one, 0);
	sure_ms = HOUR_MS;
	serve_again();
	check_pinned(&one);
}
END_TEST

START_TEST(tests_get_no_pin)
{
	all_of(LEASE_HELD);
	ask(&one, WIRE_TEST, WIRE_EXCLUSIVE, WIRE_F_NONBLOCK, 0, WIRE_EOF);
	ck_assert_int_eq(verdict(&one), WIRE_GRANTED);
	check_said("used, shown");
	ck_assert_ptr_null(one.s.waiter.lock);
}
END_TEST

/* Probes of other leases in the range are stopped first. The lease's own goes on when the pin is not wanted any more. */
START_TEST(probes_in_the_range)
{
	all_of(LEASE_HELD);
	probes_run = true;
	ask_all(&one, 0);
	check_said("");
	check_waits(&one, 0);
	ck_assert(one.s.waiter.needs_pin);
	probes_run = false;
	serve_again();
	check_pinned(&one);
	ck_assert(!one.s.waiter.needs_pin);
}
END_TEST

START_TEST(holders_of_a_lost_lease)
{
	all_of(LEASE_HELD);
	losing = true;
	ask_all(&one, 0);
	check_waits(&one, 0);
	losing = false;
	serve_again();
	check_pinned(&one);
}
END_TEST

/* When the pin is over, what waits for that goes on; the loop's clock may be early. */
START_TEST(pin_ends)
{
	all_of(LEASE_HELD);
	ask_all(&one, 0);
	check_pinned(&one);
	lease->state = LEASE_DRAINING;
	said[0] = '\0';
	ring(&one);
	check_said("");
	ck_assert(uv_is_active((uv_handle_t *)&one.s.timer));
	one.s.waiter.pin_until_ns = clock_now_ns() - 1;
	ring(&one);
	check_said("drained");
}
END_TEST

/* --- no lease --- */

START_TEST(asked_for)
{
	ask_all(&one, 0);
	check_said("begin, acquire");
	check_waits(&one, 1000);
	ask_all(&two, 0); /* the same: one question for both */
	check_said("");
	check_waits(&two, 1000);
	ck_assert_ptr_eq(two.s.waiter.lease, one.s.waiter.lease);
}
END_TEST

/* It passes those that wait, and so has a question of its own. */
START_TEST(asked_for_without_waiting)
{
	ask_all(&one, 0);
	said[0] = '\0';
	ask_all(&two, WIRE_F_NONBLOCK);
	check_said("begin, acquire");
	check_waits(&two, PROBE_MS);
	ck_assert_ptr_ne(two.s.waiter.lease, one.s.waiter.lease);
}
END_TEST

START_TEST(other_modes_and_ranges)
{
	ask(&one, WIRE_LOCK, WIRE_SHARED, 0, 0, WIRE_EOF);
	said[0] = '\0';
	ask_all(&two, 0);
	check_said("begin, acquire");
}
END_TEST

START_TEST(queued)
{
	ask_all(&one, 0);
	told(&one, WAITER_QUEUED);
	ck_assert_int_eq(verdict(&one), WIRE_WAITING);
	told(&one, WAITER_QUEUED);
	ck_assert_int_eq(verdict(&one), 0); /* once is enough */
	check_said("begin, acquire, chase, chase");
	one.s.waiter.lease->queued = true;
	ask_all(&two, 0);
	ck_assert_int_eq(verdict(&two), WIRE_WAITING);
}
END_TEST

static const struct {
	int ret;
	const char *why;
} failures[] = {
	{-ENOMEM, "/srv/x: the keeper has no memory left"},
	{-ENFILE, "/srv/x: the keeper holds as many leases as it can"},
	{-ENOSPC,
	 "/srv/x: the keeper's table of leases cannot grow (No space left on device): is the runtime directory's "
	 "file system full?"},
};

START_TEST(cannot_be_asked_for)
{
	begins = failures[_i].ret;
	ask_all(&one, 0);
	check_refused(&one, failures[_i].why);
	check_said("begin");
}
END_TEST

START_TEST(no_room)
{
	full = true;
	ask_all(&one, _i ? WIRE_F_NONBLOCK : 0);
	check_said("waits for room");
	check_waits(&one, _i ? PROBE_MS : STORE_WAIT_MS);
	if (_i)
		full = false;
	else
		ring(&one);
	if (!_i) {
		check_refused(&one, "/srv/x: no room");
		return;
	}
	serve_again();
	check_said("begin, acquire");
	ck_assert(!one.s.waiter.roomless);
}
END_TEST

START_TEST(refused)
{
	ask_all(&one, 0);
	waiters_refuse(one.s.waiter.lease, "the store is full");
	queue_settle(&k);
	check_refused(&one, "/srv/x: the store is full");
}
END_TEST

/* --- a closed lease --- */

/* Whether another host waits for it decides. */
START_TEST(closed)
{
	all_of(LEASE_DRAINING)->recall = RECALL_ASK;
	ask_all(&one, 0);
	check_pinned(&one);
	said[0] = '\0';
	lease->recall = RECALL_WAIT;
	ask_all(&two, 0); /* a newcomer: behind that host */
	check_said("begin, acquire");
	check_waits(&two, 1000);
}
END_TEST

START_TEST(no_newcomers)
{
	all_of(LEASE_DRAINING)->recall = RECALL_WAIT;
	one.s.holds.exclusive = true;
	ask_all(&one, 0);
	check_pinned(&one);
	two.s.holds.shared = true;
	ask_all(&two, WIRE_F_NONBLOCK); /* it passes those that wait */
	check_pinned(&two);
}
END_TEST

/* To share what is shared is nothing new; a conversion is. */
START_TEST(holds_shared)
{
	all_of(LEASE_DRAINING)->recall = RECALL_WAIT;
	one.s.holds.shared = true;
	ask_all(&one, 0);
	check_said("begin, acquire");
	two.s.holds.shared = true;
	ask(&two, WIRE_LOCK, WIRE_SHARED, 0, 0, WIRE_EOF);
	check_said("test shared"); /* is it shared now? The answer serves again */
}
END_TEST

START_TEST(probed)
{
	all_of(LEASE_PROBING)->recall = RECALL_ASK;
	ask_all(&one, 0);
	check_said("needed"); /* stops the probe */
	check_waits(&one, 0);
	ck_assert(one.s.waiter.needs_pin);
	lease->state = LEASE_DRAINING;
	lease->recall = RECALL_WAIT; /* meanwhile: its pin was due before */
	serve_again();
	check_said("used, table: pin, split");
	check_pinned(&one);
}
END_TEST

START_TEST(unsure)
{
	all_of(LEASE_UNSURE);
	ask_all(&one, 0);
	check_said("");
	check_waits(&one, 0);
}
END_TEST

START_TEST(shrinking)
{
	all_of(LEASE_SHRINKING);
	ask_all(&one, 0);
	check_said("begin, acquire");
	lease->range.mode = WIRE_SHARED;
	ask(&two, WIRE_LOCK, WIRE_SHARED, 0, 0, WIRE_EOF);
	check_said(""); /* when it has shrunk */
	check_waits(&two, 0);
}
END_TEST

/* --- no store --- */

START_TEST(store_away)
{
	up = false;
	ask_all(&one, WIRE_F_NONBLOCK);
	check_refused(&one, "/srv/x: store S: down");
	k.host_in_store.tried = false; /* the keeper has only just started */
	ask_all(&one, WIRE_F_NONBLOCK);
	check_waits(&one, 0);
	k.host_in_store.tried = true;
	serve_again();
	check_refused(&one, "/srv/x: store S: down");
	check_said("");
}
END_TEST

/* A lease that is sure needs no store. */
START_TEST(store_away_and_a_lease)
{
	up = false;
	all_of(LEASE_HELD);
	ask_all(&one, 0);
	check_pinned(&one);
}
END_TEST

START_TEST(waits_for_the_store)
{
	up = false;
	ask_all(&one, 0);
	ck_assert_int_eq(verdict(&one), 0);
	ck_assert_int_gt((int64_t)uv_timer_get_due_in(&one.s.timer), 900);
	one.s.received_ns -= 1000 * NS_PER_MS;
	one.s.away_ns -= 1000 * NS_PER_MS;
	ring(&one);
	ck_assert_int_eq(verdict(&one), WIRE_WAITING);
	ck_assert_str_eq(one.reply.reason, "/srv/x: waiting: store S: down");
	ck_assert_int_gt((int64_t)uv_timer_get_due_in(&one.s.timer), STORE_WAIT_MS - 1100);
	one.s.away_ns -= STORE_WAIT_MS * NS_PER_MS;
	ring(&one);
	check_refused(&one, "/srv/x: store S: down (waited 9000 ms)");
}
END_TEST

START_TEST(store_comes_back)
{
	up = false;
	ask_all(&one, 0);
	ck_assert_int_ne(one.s.away_ns, 0);
	up = true;
	serve_again();
	check_said("begin, acquire");
	ck_assert_int_eq(one.s.away_ns, 0);
	check_waits(&one, 1000);
}
END_TEST

/* --- answers of other hosts --- */

START_TEST(in_use)
{
	ask_all(&one, WIRE_F_NONBLOCK);
	ask_all(&two, 0);
	told(&two, WAITER_IN_USE);
	check_waits(&two, 1000);
	told(&one, WAITER_IN_USE);
	ck_assert_int_eq(verdict(&one), WIRE_WOULD_BLOCK);
}
END_TEST

/* A test of records wants the first lock in the way, of all hosts. */
START_TEST(test_waits_for_all_answers)
{
	lock = &file->locks[WIRE_RECORD];
	ask(&one, WIRE_TEST, WIRE_EXCLUSIVE, WIRE_F_NONBLOCK, 0, 10);
	told(&one, WAITER_IN_USE);
	check_waits(&one, PROBE_MS);
	complete = true;
	in_the_way = &(struct store_range){WIRE_RECORD, WIRE_SHARED, 3, 5};
	told(&one, WAITER_IN_USE);
	ck_assert_int_eq(verdict(&one), WIRE_WOULD_BLOCK);
	ck_assert(one.reply.mode == WIRE_SHARED && one.reply.from == 3 && one.reply.to == 5);
}
END_TEST

static void put_blockers(struct lease *of, int64_t age_ms, int64_t other_age_ms, bool other_waits)
{
	of->blockers = calloc(2, sizeof(*of->blockers));
	of->blocker_count = 2;
	of->blockers[0] = (struct store_blocker){.host = "a", .age_ms = age_ms};
	of->blockers[1] = (struct store_blocker){.host = "b", .age_ms = other_age_ms, .waiter = other_waits};
	of->queued = true;
}

START_TEST(no_answer)
{
	ask_all(&one, WIRE_F_NONBLOCK);
	ring(&one); /* the store itself has not answered */
	check_waits(&one, PROBE_MS);
	put_blockers(one.s.waiter.lease, DEAD_MS, DEAD_MS - 1, false);
	ring(&one); /* b lives, and has it */
	ck_assert_int_eq(verdict(&one), WIRE_WOULD_BLOCK);
}
END_TEST

START_TEST(silent_host)
{
	ask_all(&one, WIRE_F_NONBLOCK);
	said[0] = '\0';
	put_blockers(one.s.waiter.lease, DEAD_MS, DEAD_MS, _i);
	ring(&one);
	check_said("acquire");
	ck_assert_uint_eq(named_dead, _i ? 1 : 2); /* one that waits was not asked */
	ck_assert_str_eq(dead_host, "a");
	check_waits(&one, PROBE_MS);
	ring(&one); /* once */
	ck_assert_int_eq(verdict(&one), WIRE_WOULD_BLOCK);
}
END_TEST

/* It has said what is in the way: so it lives. */
START_TEST(silent_host_that_answered)
{
	ask_all(&one, WIRE_F_NONBLOCK);
	said[0] = '\0';
	put_blockers(one.s.waiter.lease, DEAD_MS, DEAD_MS, false);
	in_the_way = &(struct store_range){WIRE_FLOCK, WIRE_EXCLUSIVE, 0, WIRE_EOF};
	ring(&one);
	check_said("unwanted");
	ck_assert_int_eq(verdict(&one), WIRE_WOULD_BLOCK);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("serve");
	TCase *tests = tcase_create("serve");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tests, prepare, clean);
	tcase_add_test(tests, granted);
	tcase_add_test(tests, no_pin_beyond_what_is_sure);
	tcase_add_test(tests, hardly_sure);
	tcase_add_test(tests, tests_get_no_pin);
	tcase_add_test(tests, probes_in_the_range);
	tcase_add_test(tests, holders_of_a_lost_lease);
	tcase_add_test(tests, pin_ends);
	tcase_add_test(tests, asked_for);
	tcase_add_test(tests, asked_for_without_waiting);
	tcase_add_test(tests, other_modes_and_ranges);
	tcase_add_test(tests, queued);
	tcase_add_loop_test(tests, cannot_be_asked_for, 0, sizeof(failures) / sizeof(*failures));
	tcase_add_loop_test(tests, no_room, 0, 2);
	tcase_add_test(tests, refused);
	tcase_add_test(tests, closed);
	tcase_add_test(tests, no_newcomers);
	tcase_add_test(tests, holds_shared);
	tcase_add_test(tests, probed);
	tcase_add_test(tests, unsure);
	tcase_add_test(tests, shrinking);
	tcase_add_test(tests, store_away);
	tcase_add_test(tests, store_away_and_a_lease);
	tcase_add_test(tests, waits_for_the_store);
	tcase_add_test(tests, store_comes_back);
	tcase_add_test(tests, in_use);
	tcase_add_test(tests, test_waits_for_all_answers);
	tcase_add_test(tests, no_answer);
	tcase_add_loop_test(tests, silent_host, 0, 2);
	tcase_add_test(tests, silent_host_that_answered);
	suite_add_tcase(suite, tests);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
