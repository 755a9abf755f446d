/*
 * keeper/callers/serve.c, waiting.c: what a caller gets of a lease that is there, open or closed, of one that must be asked for, and while the
 * store is away or other hosts have not answered.
 */
#include <sys/epoll.h>

#define SPACE WIRE_FLOCK
#include "tests/unit/lease_fixture.h"

static struct lease *all_of(enum lease_state state) { return lease = lease_in(state, 0, WIRE_EOF); }

static void ask(struct caller *c, enum wire_op op, enum wire_mode mode, unsigned flags, int64_t from, int64_t to)
{
	c->s.received_ns = clock_now_ns();
	c->s.request = (struct wire_request){.op = op,
					     .space = lock->space,
					     .mode = mode,
					     .flags = flags,
					     .from = from,
					     .to = to,
					     .sent_ns = c->s.received_ns};
	serve_begin(&c->s, lock);
	queue_settle(&k);
}

static void ask_all(struct caller *c, unsigned flags) { ask(c, WIRE_LOCK, WIRE_EXCLUSIVE, flags, 0, WIRE_EOF); }

static void check_refused(struct caller *c, const char *why)
{
	ck_assert_int_eq(verdict(c), WIRE_REFUSED);
	ck_assert_str_eq(c->reply.reason, why);
	ck_assert_ptr_null(c->s.waiter.lock);
}

#define CALLBACK_MS 90 /* for one callback; the waits that are told apart differ by more */

/* It waits, in silence, and its timer rings after so many ms. */
static void check_waits(struct caller *c, int64_t ms)
{
	int64_t due = (int64_t)uv_timer_get_due_in(&c->s.timer);
	ck_assert_int_eq(verdict(c), 0);
	ck_assert_int_eq(c->s.state, SESSION_WAITING);
	if (ms) /* the loop looks at the clock once more after the callback, which valgrind makes slow */
		ck_assert_msg(due <= ms && due > ms - CALLBACK_MS, "due in %lld ms", (long long)due);
	else
		ck_assert(!uv_is_active((uv_handle_t *)&c->s.timer));
}

static void check_pinned(struct caller *c)
{
	ck_assert_int_eq(verdict(c), WIRE_GRANTED);
	ck_assert_int_eq(c->s.state, SESSION_PINNED);
	ck_assert_uint_eq(c->reply.fence, FENCE);
	ck_assert_int_eq(c->reply.until_ns, c->s.waiter.pin_until_ns);
	ck_assert_uint_eq(pinned_until, (uint64_t)c->s.waiter.pin_until_ns);
}

/* Its timer runs out now. */
static void ring(struct caller *c)
{
	uv_timer_set_repeat(&c->s.timer, 1);
	ck_assert_int_eq(uv_timer_again(&c->s.timer), 0);
	uv_timer_set_repeat(&c->s.timer, 0);
	while (uv_is_active((uv_handle_t *)&c->s.timer) && uv_timer_get_due_in(&c->s.timer) <= 1)
		uv_run(&loop, UV_RUN_NOWAIT); /* which does not wait for the next one */
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

/* --- an open lease --- */

TEST(granted)
{
	int64_t before = clock_now_ns();

	all_of(LEASE_OPEN);
	ask_all(&one, 0);
	check_said("shown, table: pin");
	ck_assert_int_eq(timer_ms(lease), LINGER_MS);
	check_pinned(&one);
	ck_assert_int_ge(one.s.waiter.pin_until_ns, before + PIN_MS * NS_PER_MS);
	ck_assert_int_le(one.s.waiter.pin_until_ns, clock_now_ns() + PIN_MS * NS_PER_MS);
	now.sure_ms = PIN_MS / 2;
	ask_all(&two, 0);
	check_pinned(&two);
	ck_assert_int_le(two.s.waiter.pin_until_ns, clock_now_ns() + PIN_MS / 2 * NS_PER_MS);
}

/* A pin that would be over before the answer arrives; probes of other leases in the range, which are stopped first (the lease's own goes on
 * when the pin is not wanted any more); holders of a lost lease. */
TEST_EACH(what_a_pin_waits_for, 3)
{
	all_of(LEASE_OPEN);
	now.sure_ms = _i == 0 ? 4 : HOUR_MS;
	now.probes_run = _i == 1;
	now.losing = _i == 2;
	ask_all(&one, 0);
	check_said("");
	check_waits(&one, 0);
	ck_assert_int_eq(one.s.waiter.needs_pin, _i == 1);
	now.sure_ms = HOUR_MS;
	now.probes_run = now.losing = false;
	serve_again();
	check_pinned(&one);
	ck_assert(!one.s.waiter.needs_pin);
}

TEST(tests_get_no_pin)
{
	all_of(LEASE_OPEN);
	ask(&one, WIRE_TEST, WIRE_EXCLUSIVE, WIRE_F_NONBLOCK, 0, WIRE_EOF);
	ck_assert_int_eq(verdict(&one), WIRE_GRANTED);
	check_said("shown");
	ck_assert_ptr_null(one.s.waiter.lock);
}

/* An operator takes another lease of the lock away. Its holders have kernel locks in the same range. */
TEST(taken_away)
{
	struct lease *broken = lease_in(LEASE_BREAKING, 0, WIRE_EOF);

	all_of(LEASE_OPEN);
	ask_all(&one, 0);
	check_said("");
	check_waits(&one, 0);
	broken->state = LEASE_ENDING;
	serve_again();
	check_said("");
	check_waits(&one, 0);
	broken->state = LEASE_RELEASING;
	serve_again();
	check_pinned(&one);
}

/* When the pin is over, what waits for that goes on; the loop's clock may be early. */
TEST(pin_ends)
{
	all_of(LEASE_OPEN);
	ask_all(&one, 0);
	check_pinned(&one);
	lease->state = LEASE_DRAINING;
	said[0] = '\0';
	ring(&one);
	check_said("");
	ck_assert(uv_is_active((uv_handle_t *)&one.s.timer));
	one.s.waiter.pin_until_ns = clock_now_ns() - 1;
	ring(&one);
	check_said("probe");
}

/* A connection that rests is watched when somebody waits for the end of its pin. */
TEST(pin_is_wanted)
{
	all_of(LEASE_OPEN);
	ask_all(&one, 0);
	check_pinned(&one);
	sessions.epoll = epoll_create1(EPOLL_CLOEXEC);
	one.s.waiter.rests = true;
	DL_APPEND2(sessions.resting, &one.s, rest_prev, rest_next);
	ck_assert(waiters_are_pinned(lock, &lease->range));
	queue_settle(&k);
	ck_assert(!one.s.waiter.rests && !sessions.resting && one.s.state == SESSION_PINNED);
	close(sessions.epoll);
}

/* --- no lease --- */

TEST(asked_for)
{
	ask_all(&one, 0);
	check_said("begin, acquire");
	check_waits(&one, 1000);
	ck_assert_uint_eq(one.s.waiter.lease->uid, 500);
	ask_all(&two, 0); /* the same: one question for both */
	check_said("");
	check_waits(&two, 1000);
	ck_assert_ptr_eq(two.s.waiter.lease, one.s.waiter.lease);
}

/* It passes those that wait, or wants another mode, and so has a question of its own. */
TEST_EACH(a_question_of_its_own, 2)
{
	ask(&one, WIRE_LOCK, _i ? WIRE_SHARED : WIRE_EXCLUSIVE, 0, 0, WIRE_EOF);
	said[0] = '\0';
	ask_all(&two, _i ? 0 : WIRE_F_NONBLOCK);
	check_said("begin, acquire");
	check_waits(&two, _i ? 1000 : PROBE_MS);
	ck_assert_ptr_ne(two.s.waiter.lease, one.s.waiter.lease);
}

TEST(queued)
{
	ask_all(&one, 0);
	told(&one, WAITER_QUEUED);
	ck_assert_int_eq(verdict(&one), WIRE_WAITING);
	told(&one, WAITER_QUEUED);
	ck_assert_int_eq(verdict(&one), 0); /* once is enough */
	check_said("begin, acquire, chase, chase");
	one.s.waiter.lease->asking.queued = true;
	ask_all(&two, 0);
	ck_assert_int_eq(verdict(&two), WIRE_WAITING);
}

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

TEST_EACH(cannot_be_asked_for, ROWS(failures))
{
	now.begins = failures[_i].ret;
	ask_all(&one, 0);
	check_refused(&one, failures[_i].why);
	check_said("begin, file freed");
}

TEST_EACH(no_room, 2)
{
	now.full = true;
	ask_all(&one, _i ? WIRE_F_NONBLOCK : 0);
	check_said("waits for room");
	check_waits(&one, _i ? PROBE_MS : STORE_WAIT_MS);
	if (!_i) {
		ring(&one);
		check_refused(&one, "/srv/x: no room");
		return;
	}
	now.full = false;
	serve_again();
	check_said("begin, acquire");
	ck_assert(!one.s.waiter.roomless);
}

TEST(refused)
{
	ask_all(&one, 0);
	waiters_refuse(one.s.waiter.lease, REFUSAL_STORE, "the store is full");
	queue_settle(&k);
	check_refused(&one, "/srv/x: the store is full");
}

/* --- a closed lease --- */

static const struct {
	enum lease_state state;
	enum recall_level level;
	bool exclusive, shared; /* the caller holds such a lock */
	enum wire_mode mode;
	unsigned flags;
	const char *said;
	int64_t waits_ms; /* 0: for another event; -1: it has a pin */
} closed[] = {
	/* Whether another host waits for the lease decides: a newcomer waits behind it. */
	{LEASE_DRAINING, RECALL_ASK, false, false, WIRE_EXCLUSIVE, 0, "table: pin", -1},
	{LEASE_DRAINING, RECALL_WAIT, false, false, WIRE_EXCLUSIVE, 0, "begin, acquire", 1000},
	/* No newcomer holds it already, or passes those that wait. */
	{LEASE_DRAINING, RECALL_WAIT, true, false, WIRE_EXCLUSIVE, 0, "table: pin", -1},
	{LEASE_DRAINING, RECALL_WAIT, false, true, WIRE_EXCLUSIVE, WIRE_F_NONBLOCK, "table: pin", -1},
	/* To share what is shared is nothing new (is it shared now? The answer serves again); a conversion is. */
	{LEASE_DRAINING, RECALL_WAIT, false, true, WIRE_EXCLUSIVE, 0, "begin, acquire", 1000},
	{LEASE_DRAINING, RECALL_WAIT, false, true, WIRE_SHARED, 0, "test shared", 0},
	{LEASE_UNSURE, RECALL_NONE, false, false, WIRE_EXCLUSIVE, 0, "", 0},
	{LEASE_SHRINKING, RECALL_NONE, false, false, WIRE_EXCLUSIVE, 0, "begin, acquire", 1000},
	{LEASE_SHRINKING, RECALL_NONE, false, false, WIRE_SHARED, 0, "", 0}, /* when it has shrunk */
};

TEST_EACH(closed_leases, ROWS(closed))
{
	all_of(closed[_i].state)->recalled.level = closed[_i].level;
	one.s.holds.exclusive = closed[_i].exclusive;
	one.s.holds.shared = closed[_i].shared;
	ask(&one, WIRE_LOCK, closed[_i].mode, closed[_i].flags, 0, WIRE_EOF);
	check_said(closed[_i].said);
	if (closed[_i].waits_ms < 0)
		check_pinned(&one);
	else
		check_waits(&one, closed[_i].waits_ms);
}

/* Its pin was due before the recall. The lease is split for the host that waits when it has it. */
TEST(probed)
{
	lock = &file->locks[WIRE_RECORD];
	lease = lease_in(LEASE_PROBING, 0, 100);
	lease->probed.probe = a_probe;
	lease->recalled.level = RECALL_ASK;
	ask(&one, WIRE_LOCK, WIRE_EXCLUSIVE, 0, 0, 100);
	check_said("stop probe");
	check_waits(&one, 0);
	ck_assert(one.s.waiter.needs_pin);
	lease->state = LEASE_DRAINING;
	lease->recalled.level = RECALL_WAIT;
	lease->recalled.range = (struct store_range){WIRE_RECORD, WIRE_EXCLUSIVE, 5, 100};
	now.in_use = true;
	serve_again();
	check_said("table: pin, begin, acquire, begin, acquire");
	check_pinned(&one);
}

/* --- no store --- */

TEST(store_away)
{
	now.down = true;
	k.members[0].tried = false; /* the keeper has only just started */
	ask_all(&one, WIRE_F_NONBLOCK);
	check_waits(&one, 0);
	k.members[0].tried = true;
	ask_all(&two, WIRE_F_NONBLOCK);
	check_refused(&two, "/srv/x: store S: down");
	serve_again();
	check_refused(&one, "/srv/x: store S: down");
	ck_assert_uint_eq(sessions.counts.refused[REFUSAL_STORE], 2);
	check_said("file freed");
}

/* A lease that is sure needs no store. */
TEST(store_away_and_a_lease)
{
	uint64_t waits = 0;

	now.down = true;
	all_of(LEASE_OPEN);
	ask_all(&one, 0);
	check_pinned(&one);
	for (size_t i = 0; i <= HISTOGRAM_BUCKETS; i++)
		waits += sessions.counts.waited[WIRE_FLOCK].counts[i];
	ck_assert_uint_eq(waits, 1);
	ck_assert_uint_eq(sessions.waiting[WIRE_FLOCK], 0);
}

TEST(waits_for_the_store)
{
	now.down = true;
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

TEST(store_comes_back)
{
	now.down = true;
	ask_all(&one, 0);
	ck_assert_int_ne(one.s.away_ns, 0);
	now.down = false;
	serve_again();
	check_said("begin, acquire");
	ck_assert_int_eq(one.s.away_ns, 0);
	check_waits(&one, 1000);
}

/* --- answers of other hosts --- */

TEST(in_use)
{
	ask_all(&one, WIRE_F_NONBLOCK);
	ask_all(&two, 0);
	told(&two, WAITER_IN_USE);
	check_waits(&two, 1000);
	ck_assert_uint_eq(sessions.waiting[WIRE_FLOCK], 2);
	told(&one, WAITER_IN_USE);
	ck_assert_int_eq(verdict(&one), WIRE_WOULD_BLOCK);
	ck_assert_uint_eq(sessions.waiting[WIRE_FLOCK], 1);
	ck_assert_uint_eq(sessions.counts.busy[WIRE_FLOCK], 1);
	ck_assert_uint_eq(sessions.counts.abandoned, 0);
}

/* A test of records wants the first lock in the way, of all hosts. */
TEST(test_waits_for_all_answers)
{
	lock = &file->locks[WIRE_RECORD];
	ask(&one, WIRE_TEST, WIRE_EXCLUSIVE, WIRE_F_NONBLOCK, 0, 10);
	told(&one, WAITER_IN_USE);
	check_waits(&one, PROBE_MS);
	now.all_answered = true;
	now.first = &(struct store_range){WIRE_RECORD, WIRE_SHARED, 3, 5};
	told(&one, WAITER_IN_USE);
	ck_assert_int_eq(verdict(&one), WIRE_WOULD_BLOCK);
	ck_assert(one.reply.mode == WIRE_SHARED && one.reply.from == 3 && one.reply.to == 5);
	ck_assert_uint_eq(sessions.counts.busy[WIRE_RECORD], 0); /* a test is no lock call */
}

static void put_blockers(struct lease *of, int64_t age_ms, int64_t other_age_ms, bool other_waits)
{
	of->asking.blockers = calloc(2, sizeof(*of->asking.blockers));
	of->asking.blocker_count = 2;
	of->asking.blockers[0] = (struct store_blocker){.host = "a", .age_ms = age_ms};
	of->asking.blockers[1] = (struct store_blocker){.host = "b", .age_ms = other_age_ms, .waiter = other_waits};
	of->asking.queued = true;
}

TEST(no_answer)
{
	ask_all(&one, WIRE_F_NONBLOCK);
	ring(&one); /* the store itself has not answered */
	check_waits(&one, PROBE_MS);
	put_blockers(one.s.waiter.lease, DEAD_MS, DEAD_MS - 1, false);
	ring(&one); /* b lives, and has it */
	ck_assert_int_eq(verdict(&one), WIRE_WOULD_BLOCK);
}

TEST_EACH(silent_host, 2)
{
	ask_all(&one, WIRE_F_NONBLOCK);
	said[0] = '\0';
	put_blockers(one.s.waiter.lease, DEAD_MS, DEAD_MS, _i);
	ring(&one); /* asks again: a message may be lost */
	check_said("acquire");
	ck_assert_uint_eq(named_dead, 0);
	check_waits(&one, PROBE_MS);
	said[0] = '\0';
	ring(&one);
	check_said("acquire");
	ck_assert_uint_eq(named_dead, _i ? 1 : 2); /* one that waits was not asked */
	ck_assert_str_eq(dead_host, "a");
	check_waits(&one, PROBE_MS);
	ring(&one); /* once */
	ck_assert_int_eq(verdict(&one), WIRE_WOULD_BLOCK);
}

/* It has said what is in the way: so it lives. */
TEST(silent_host_that_answered)
{
	ask_all(&one, WIRE_F_NONBLOCK);
	said[0] = '\0';
	put_blockers(one.s.waiter.lease, DEAD_MS, DEAD_MS, false);
	now.first = &(struct store_range){WIRE_FLOCK, WIRE_EXCLUSIVE, 0, WIRE_EOF};
	ring(&one);
	check_said("table: returned, release");
	ck_assert_int_eq(verdict(&one), WIRE_WOULD_BLOCK);
}
