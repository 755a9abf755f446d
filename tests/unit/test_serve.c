/* keeper/callers/serve.c: what a caller gets of a lease that is there, open or closed, and of one that must be asked for. */
#include <sys/epoll.h>

#include "tests/unit/serve_fixture.h"

/* --- an open lease --- */

TEST(granted)
{
	int64_t before = clock_now_ns();

	all_of(LEASE_OPEN);
	ask_all(&one, 0);
	check_said("used, shown, table: pin");
	check_pinned(&one);
	ck_assert_int_ge(one.s.waiter.pin_until_ns, before + PIN_MS * NS_PER_MS);
	ck_assert_int_le(one.s.waiter.pin_until_ns, clock_now_ns() + PIN_MS * NS_PER_MS);
}

TEST(no_pin_beyond_what_is_sure)
{
	all_of(LEASE_OPEN);
	sure_ms = PIN_MS / 2;
	ask_all(&one, 0);
	check_pinned(&one);
	ck_assert_int_le(one.s.waiter.pin_until_ns, clock_now_ns() + PIN_MS / 2 * NS_PER_MS);
}

/* It would be over before the answer arrives. */
TEST(hardly_sure)
{
	all_of(LEASE_OPEN);
	sure_ms = 4;
	ask_all(&one, 0);
	check_said("");
	check_waits(&one, 0);
	sure_ms = HOUR_MS;
	serve_again();
	check_pinned(&one);
}

TEST(tests_get_no_pin)
{
	all_of(LEASE_OPEN);
	ask(&one, WIRE_TEST, WIRE_EXCLUSIVE, WIRE_F_NONBLOCK, 0, WIRE_EOF);
	ck_assert_int_eq(verdict(&one), WIRE_GRANTED);
	check_said("used, shown");
	ck_assert_ptr_null(one.s.waiter.lock);
}

/* Probes of other leases in the range are stopped first. The lease's own goes on when the pin is not wanted any more. */
TEST(probes_in_the_range)
{
	all_of(LEASE_OPEN);
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

TEST(holders_of_a_lost_lease)
{
	all_of(LEASE_OPEN);
	losing = true;
	ask_all(&one, 0);
	check_waits(&one, 0);
	losing = false;
	serve_again();
	check_pinned(&one);
}

/* An operator takes another lease of the lock away. Its holders have kernel locks in the same range. */
TEST(taken_away)
{
	struct lease *broken = add_lease(LEASE_BREAKING, WIRE_EXCLUSIVE, 0, WIRE_EOF);

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
	check_said("drained");
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
	ask_all(&two, 0); /* the same: one question for both */
	check_said("");
	check_waits(&two, 1000);
	ck_assert_ptr_eq(two.s.waiter.lease, one.s.waiter.lease);
}

/* It passes those that wait, and so has a question of its own. */
TEST(asked_for_without_waiting)
{
	ask_all(&one, 0);
	said[0] = '\0';
	ask_all(&two, WIRE_F_NONBLOCK);
	check_said("begin, acquire");
	check_waits(&two, PROBE_MS);
	ck_assert_ptr_ne(two.s.waiter.lease, one.s.waiter.lease);
}

TEST(other_modes_and_ranges)
{
	ask(&one, WIRE_LOCK, WIRE_SHARED, 0, 0, WIRE_EOF);
	said[0] = '\0';
	ask_all(&two, 0);
	check_said("begin, acquire");
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
	begins = failures[_i].ret;
	ask_all(&one, 0);
	check_refused(&one, failures[_i].why);
	check_said("begin");
}

TEST_EACH(no_room, 2)
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

TEST(refused)
{
	ask_all(&one, 0);
	waiters_refuse(one.s.waiter.lease, REFUSAL_STORE, "the store is full");
	queue_settle(&k);
	check_refused(&one, "/srv/x: the store is full");
}

/* --- a closed lease --- */

/* Whether another host waits for it decides. */
TEST(closed)
{
	all_of(LEASE_DRAINING)->recalled.level = RECALL_ASK;
	ask_all(&one, 0);
	check_pinned(&one);
	said[0] = '\0';
	lease->recalled.level = RECALL_WAIT;
	ask_all(&two, 0); /* a newcomer: behind that host */
	check_said("begin, acquire");
	check_waits(&two, 1000);
}

TEST(no_newcomers)
{
	all_of(LEASE_DRAINING)->recalled.level = RECALL_WAIT;
	one.s.holds.exclusive = true;
	ask_all(&one, 0);
	check_pinned(&one);
	two.s.holds.shared = true;
	ask_all(&two, WIRE_F_NONBLOCK); /* it passes those that wait */
	check_pinned(&two);
}

/* To share what is shared is nothing new; a conversion is. */
TEST(holds_shared)
{
	all_of(LEASE_DRAINING)->recalled.level = RECALL_WAIT;
	one.s.holds.shared = true;
	ask_all(&one, 0);
	check_said("begin, acquire");
	two.s.holds.shared = true;
	ask(&two, WIRE_LOCK, WIRE_SHARED, 0, 0, WIRE_EOF);
	check_said("test shared"); /* is it shared now? The answer serves again */
}

TEST(probed)
{
	all_of(LEASE_PROBING)->recalled.level = RECALL_ASK;
	ask_all(&one, 0);
	check_said("needed"); /* stops the probe */
	check_waits(&one, 0);
	ck_assert(one.s.waiter.needs_pin);
	lease->state = LEASE_DRAINING;
	lease->recalled.level = RECALL_WAIT; /* meanwhile: its pin was due before */
	serve_again();
	check_said("used, table: pin, split");
	check_pinned(&one);
}

TEST(unsure)
{
	all_of(LEASE_UNSURE);
	ask_all(&one, 0);
	check_said("");
	check_waits(&one, 0);
}

TEST(shrinking)
{
	all_of(LEASE_SHRINKING);
	ask_all(&one, 0);
	check_said("begin, acquire");
	lease->range.mode = WIRE_SHARED;
	ask(&two, WIRE_LOCK, WIRE_SHARED, 0, 0, WIRE_EOF);
	check_said(""); /* when it has shrunk */
	check_waits(&two, 0);
}
