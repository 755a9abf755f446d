/* keeper/leases/calledback.c: who keeps its place, and how long nobody is called back again. */
#include "keeper/leases/seenout.h"

#include "keeper/clock.h"
#include "tests/unit/suite.h"

#define MS NS_PER_MS

static struct calledback cb;
static const struct underway_call call = {
	.thread = 7, .started = 70, .number = 1, .dev = 1, .ino = 2, .space = 1, .to = 10};

static void none(void) { cb = (struct calledback){0}; }
FIXTURE(none, NULL)

static struct underway_call next_call(uint64_t number)
{
	struct underway_call next = call;

	next.number = number;
	return next;
}

TEST(a_call_begins_anew_once)
{
	struct underway_call next = next_call(2), other = next_call(2);

	ck_assert(!calledback_asks(&cb, &next));
	calledback_note(&cb, &call, 1000 * MS);
	other.to = 11;
	ck_assert(!calledback_asks(&cb, &other));
	other = next;
	other.started = 71;
	ck_assert(!calledback_asks(&cb, &other));
	ck_assert(calledback_asks(&cb, &next));
	ck_assert(!calledback_asks(&cb, &next));
	calledback_note(&cb, &next, 2000 * MS);
	ck_assert(calledback_asks(&cb, &next));
}

TEST(pauses_double)
{
	static const int64_t pauses[] = {20, 40, 80, 160, 320, 320};
	int64_t now = 640 * MS;

	for (size_t i = 0; i < sizeof(pauses) / sizeof(*pauses); i++) {
		const struct underway_call next = next_call(i);
		const int64_t end = now / (pauses[i] * MS) * (pauses[i] * MS) + pauses[i] * MS;

		calledback_note(&cb, &next, now);
		ck_assert(calledback_lately(&cb, &next, end - 1));
		ck_assert(!calledback_lately(&cb, &next, end));
		now = end;
	}
	now += 1000 * MS;
	calledback_note(&cb, &call, now);
	ck_assert(!calledback_lately(&cb, &call, now + 20 * MS));
}

/* For a probe both must be out at one time. */
TEST(pauses_of_all_threads_end_together)
{
	struct underway_call other = call;

	other.thread = 8;
	for (int64_t now = 637 * MS, i = 0; i < 9; i++, now += 331 * MS) {
		calledback_note(&cb, &call, now);
		calledback_note(&cb, &other, now + 7 * i * MS);
	}
	ck_assert(calledback_lately(&cb, &call, 3520 * MS - 1) && calledback_lately(&cb, &other, 3520 * MS - 1));
	ck_assert(!calledback_lately(&cb, &call, 3520 * MS) && !calledback_lately(&cb, &other, 3520 * MS));
}

TEST(the_oldest_is_forgotten)
{
	struct underway_call next = call;

	for (int i = 0; i <= CALLEDBACK_THREADS; i++) {
		next.thread = i + 1;
		calledback_note(&cb, &next, (1000 + i) * MS);
	}
	ck_assert(calledback_asks(&cb, &next));
	next.thread = 1;
	ck_assert(!calledback_asks(&cb, &next));
	next.thread = 2;
	ck_assert(calledback_asks(&cb, &next));
}
