/* keeper/guard/pulse.c: does a keeper's loop hang? */
#include "keeper/guard/supervise.h"

#include "keeper/clock.h"
#include "tests/unit/suite.h"

#define MS    NS_PER_MS
#define SOON  (400 * MS) /* patience where leases run out soon */
#define LATER (PULSE_HUNG_MS * MS)

static struct pulse pulse;
static int64_t now;

static void setup(void)
{
	now = 1000000 * MS;
	pulse_start(&pulse, now);
}
FIXTURE(setup, NULL)

/* Looks once per period for so long; the counter stands still at 1. Returns after how many ms the loop counts as
 * hanging; -1: it does not. */
static int hangs_after(int64_t patience, bool waits, int ms)
{
	int period = pulse_period_ms(patience);

	ck_assert(!pulse_hangs(&pulse, 1, now, patience, waits)); /* it has turned since the start */
	for (int t = period; t <= ms; t += period)
		if (pulse_hangs(&pulse, 1, now + t * MS, patience, waits))
			return t;
	return -1;
}

TEST(period)
{
	ck_assert_int_eq(pulse_period_ms(SOON), PULSE_QUICK_MS);
	ck_assert_int_eq(pulse_period_ms(LATER), PULSE_CHECK_MS);
}

TEST(one_that_stands_still_hangs_when_patience_is_over)
{
	ck_assert_int_eq(hangs_after(SOON, false, 10000), 400);
	setup();
	ck_assert_int_eq(hangs_after(LATER, false, 10000), PULSE_HUNG_MS);
}

TEST(one_that_waits_for_a_processor_has_more_time) { ck_assert_int_eq(hangs_after(SOON, true, 10000), PULSE_HUNG_MS); }

TEST(one_that_turns_does_not_hang)
{
	for (int64_t i = 1; i < 100; i++)
		ck_assert(!pulse_hangs(&pulse, i, now + i * 10000 * MS, SOON, false));
	ck_assert_int_eq(pulse.since_ns, now + 99 * 10000 * MS);
}

/* The machine was suspended, or the parent stopped: the time in which the parent did not run counts for two periods. */
TEST(time_without_the_parent_does_not_count)
{
	ck_assert(!pulse_hangs(&pulse, 1, now, SOON, false));
	ck_assert(!pulse_hangs(&pulse, 1, now + 3600000 * MS, SOON, false));
	ck_assert_int_eq(pulse.still_ns, 2 * PULSE_QUICK_MS * MS);
	ck_assert(pulse_hangs(&pulse, 1, now + 3600200 * MS, SOON, false));
}
