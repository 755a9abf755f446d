/* keeper/callers/ending.c, control_stop.c: when a keeper ends: if no program needs it, if it was told to, or if it is
 * asked to stop. */
#include "keeper/callers/ending.h"

#include "keeper/callers/control.h"
#include "tests/unit/suite.h"

#define IDLE 60000
#define TTL  30000

TEST(idle_for_idle_ms)
{
	ck_assert(!ending_is_idle(IDLE - 1, IDLE, TTL));
	ck_assert(ending_is_idle(IDLE, IDLE, TTL));
}

/* What the keeper knows of silent hosts is useful for longer than a short idle_ms. */
TEST(idle_for_two_ttl_at_least)
{
	ck_assert(!ending_is_idle(2 * TTL - 1, 1000, TTL));
	ck_assert(ending_is_idle(2 * TTL, 1000, TTL));
}

TEST(a_second_signal_ends_it_at_once)
{
	for (unsigned in_use = 0; in_use < 3; in_use++)
		for (int bits = 0; bits < 4; bits++)
			ck_assert_int_eq(ending_decide(true, in_use, bits & 1, bits & 2), ENDING_AT_ONCE);
}

TEST(it_waits_for_what_is_in_use)
{
	for (int bits = 0; bits < 4; bits++)
		ck_assert_int_eq(ending_decide(false, 1, bits & 1, bits & 2), ENDING_LATER);
}

TEST(it_waits_for_the_store_for_a_while)
{
	ck_assert_int_eq(ending_decide(false, 0, true, false), ENDING_LATER);
	ck_assert_int_eq(ending_decide(false, 0, true, true), ENDING_QUIETLY);
	ck_assert_int_eq(ending_decide(false, 0, false, false), ENDING_QUIETLY);
}

TEST(a_stop_waits_longer_for_leases_in_use)
{
	ck_assert_int_eq(control_stop_decide(0, true), CONTROL_STOP_GOES_ON);
	ck_assert_int_eq(control_stop_decide(CONTROL_STOP_WAIT_MS - 1, true), CONTROL_STOP_GOES_ON);
	ck_assert_int_eq(control_stop_decide(CONTROL_STOP_WAIT_MS, true), CONTROL_STOP_REFUSED);
	ck_assert_int_eq(control_stop_decide(CONTROL_STOP_RELEASE_MS - 1, false), CONTROL_STOP_GOES_ON);
	ck_assert_int_eq(control_stop_decide(CONTROL_STOP_RELEASE_MS, false), CONTROL_STOP_ENDS);
}

/* The keeper never ends while a lease may be in use, however long that takes. */
TEST(a_stop_never_ends_what_is_in_use)
{
	for (int64_t ms = 0; ms < 3 * CONTROL_STOP_WAIT_MS; ms += 100)
		ck_assert_int_ne(control_stop_decide(ms, true), CONTROL_STOP_ENDS);
}
