/* Each chase is followed once in a given time, and not too many of them. */
#include "keeper/rules/chases.h"

#include "tests/unit/suite.h"

#define FOR 1000

static const struct store_chase one = {.host = "a-1",
				       .token = "0123",
				       .pid = 7,
				       .youngest = 5,
				       .range = {.mode = WIRE_EXCLUSIVE, .from = 10, .to = 20}};
static struct chases chases;

static void setup(void) { chases = (struct chases){0}; }
FIXTURE(setup, NULL)

static bool follow(const struct store_chase *chase, int64_t now)
{
	return chases_follow(&chases, chase, 1, 2, now, FOR);
}

/* What it finds depends on the other fields, and not on how many hops it took. */
TEST(once)
{
	struct store_chase other = one;

	ck_assert(follow(&one, 100));
	other.hops = 9;
	ck_assert(!follow(&other, 100));
	ck_assert(!follow(&one, 100 + FOR - 1));
	ck_assert(follow(&one, 100 + FOR));
	ck_assert(!follow(&one, 100 + FOR));
	for (int field = 0; field < 7; field++) {
		other = one;
		other.youngest += field == 0;
		other.pid += field == 1;
		other.host[0] += field == 2;
		other.token[0] += field == 3;
		other.range.from += field == 4;
		other.range.to += field == 5;
		other.range.mode = field == 6 ? WIRE_SHARED : WIRE_EXCLUSIVE;
		ck_assert(follow(&other, 100 + FOR));
	}
	ck_assert(chases_follow(&chases, &one, 2, 2, 100 + FOR, FOR));
	ck_assert(chases_follow(&chases, &one, 1, 3, 100 + FOR, FOR));
}

TEST(a_storm)
{
	struct store_chase chase = one;
	int followed = 0;
	for (int i = 0; i < 100000; i++) {
		chase.pid = i;
		followed += follow(&chase, 1);
	}
	ck_assert_int_eq(followed, CHASES_SEEN);
	ck_assert(follow(&one, 1 + FOR));
}
