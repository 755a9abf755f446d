/* keeper/callers/ending.c, control_stop.c: when a keeper ends: if no program needs it, if it was told to, or if it is asked to stop. */
#include "keeper/callers/ending.h"

#include "keeper/callers/control.h"
#include "tests/unit/suite.h"

#define IDLE 60000
#define TTL  30000

/* What the keeper knows of silent hosts is useful for longer than a short idle_ms: for two ttl at least. */
TEST(idle_for_idle_ms)
{
	ck_assert(!ending_is_idle(IDLE - 1, IDLE, TTL));
	ck_assert(ending_is_idle(IDLE, IDLE, TTL));
	ck_assert(!ending_is_idle(2 * TTL - 1, 1000, TTL));
	ck_assert(ending_is_idle(2 * TTL, 1000, TTL));
}

/* A second signal ends it at once. Before, it waits for what is in use, and for the store for a while. */
TEST(told_to_end)
{
	for (int bits = 0; bits < 4; bits++) {
		bool asked = bits & 1, long_ago = bits & 2;
		for (unsigned in_use = 0; in_use < 3; in_use++)
			ck_assert_int_eq(ending_decide(true, in_use, asked, long_ago), ENDING_AT_ONCE);
		ck_assert_int_eq(ending_decide(false, 1, asked, long_ago), ENDING_LATER);
		ck_assert_int_eq(ending_decide(false, 0, asked, long_ago),
				 asked && !long_ago ? ENDING_LATER : ENDING_QUIETLY);
	}
}

/* The keeper never ends while a lease may be in use, however long that takes. */
TEST(asked_to_stop)
{
	for (int64_t ms = 0; ms < 3 * CONTROL_STOP_WAIT_MS; ms += 100)
		ck_assert_int_eq(control_stop_decide(ms, true),
				 ms < CONTROL_STOP_WAIT_MS ? CONTROL_STOP_GOES_ON : CONTROL_STOP_REFUSED);
	ck_assert_int_eq(control_stop_decide(CONTROL_STOP_WAIT_MS - 1, true), CONTROL_STOP_GOES_ON);
	ck_assert_int_eq(control_stop_decide(CONTROL_STOP_RELEASE_MS - 1, false), CONTROL_STOP_GOES_ON);
	ck_assert_int_eq(control_stop_decide(CONTROL_STOP_RELEASE_MS, false), CONTROL_STOP_ENDS);
}
