/* keeper/fronts/crew.c: how many fronts a user may have, and which devices they hang on. */
#include "keeper/fronts/crew.h"

#include <utlist.h>

#include "keeper/clock.h"
#include "tests/unit/suite.h"

#define MS  NS_PER_MS
#define NOW (1000000 * MS)

/* One letter for each front: i idle, b busy for a moment, w busy for longer than FRONTS_BUSY_MS, h hangs, e told to
 * end, k keeps files and hangs. */
static struct front fronts[16];
static struct front_user user;

static void make(const char *letters)
{
	static const int64_t since[128] = {['i'] = 1,
					   ['b'] = 1,
					   ['w'] = FRONTS_BUSY_MS + 1,
					   ['h'] = FRONTS_SLOW_MS + 1,
					   ['e'] = 1,
					   ['k'] = FRONTS_SLOW_MS + 1};

	user = (struct front_user){0};
	for (int i = 0; letters[i]; i++) {
		char letter = letters[i];

		fronts[i] = (struct front){.user = &user,
					   .busy = letter != 'i' && letter != 'e',
					   .ending = letter == 'e',
					   .settled = letter == 'k',
					   .since_ns = NOW - since[(unsigned char)letter] * MS};
		DL_APPEND(user.fronts, &fronts[i]);
		*(letter == 'k' ? &user.keepers : &user.readers) += 1;
	}
}

static const struct {
	const char *letters;
	int idle;     /* the front that may be given work; -1: none */
	bool another; /* up to FRONTS_PER_USER */
	bool all_hang;
} rows[] = {
	{"", -1, true, false},      {"i", 0, false, false},     {"bi", 1, false, false},
	{"b", -1, false, false},                              /* it may answer at once */
	{"w", -1, true, false},                               /* the second one does not wait for long */
	{"wb", -1, false, false},   {"ww", -1, false, false}, /* the third one only if both hang */
	{"hw", -1, false, false},   {"hh", -1, true, false},    {"hhw", -1, false, false},
	{"hhh", -1, true, false},   {"hhhw", -1, false, false}, {"hhhh", -1, false, true},
	{"e", -1, true, false},     /* it counts, but no connection waits for it */
	{"heee", -1, false, false}, /* fronts that end make room soon */
	{"k", -1, true, false},     /* a front that keeps files is not asked, and does not count */
	{"kkkki", 4, false, false}, {"khhhh", -1, false, true},
};

TEST_EACH(limits, ROWS(rows))
{
	struct front *idle;

	make(rows[_i].letters);
	idle = crew_find_idle(&user);
	ck_assert_int_eq(idle ? (int)(idle - fronts) : -1, rows[_i].idle);
	if (!idle)
		ck_assert_int_eq(crew_needs_another(&user, FRONTS_PER_USER, NOW), rows[_i].another);
	ck_assert_int_eq(crew_all_hang(&user, NOW), rows[_i].all_hang);
}

/* Connections must be closed even if all fronts that read questions hang. */
TEST(one_more_to_close_connections)
{
	make("hhhh");
	ck_assert(crew_needs_another(&user, FRONTS_PER_USER + 1, NOW));
	make("hhhhh");
	ck_assert(!crew_needs_another(&user, FRONTS_PER_USER + 1, NOW));
}

static void hangs_on(uint64_t dev, int64_t now)
{
	struct front front = {.user = &user, .busy = true, .dev = dev, .since_ns = now - (FRONTS_SLOW_MS + 1) * MS};

	crew_note_hung(&front, now);
}

static bool is_told(uint64_t dev, int64_t now)
{
	struct front_ask ask = {0};
	unsigned count = 0;

	crew_tell_hung(&user, &ask, now);
	ck_assert_uint_le(ask.hung_count, FRONT_MAX_HUNG);
	for (unsigned i = 0; i < ask.hung_count; i++)
		count += ask.hung[i] == dev;
	ck_assert_uint_le(count, 1);
	return count;
}

TEST(devices_that_hang)
{
	struct front quick = {.user = &user, .busy = true, .dev = 7, .since_ns = NOW};
	struct front local = {.user = &user, .busy = true, .since_ns = NOW - (FRONTS_SLOW_MS + 1) * MS};

	make("");
	crew_note_hung(&quick, NOW);
	crew_note_hung(&local, NOW); /* on no device that is known */
	ck_assert(!is_told(7, NOW) && !is_told(0, NOW));
	hangs_on(7, NOW);
	hangs_on(7, NOW + MS);
	ck_assert(is_told(7, NOW + MS));
	ck_assert(is_told(7, NOW + FRONTS_HUNG_MS * MS));
	ck_assert(!is_told(7, NOW + (FRONTS_HUNG_MS + 1) * MS)); /* it is tried again */
}

TEST(the_oldest_goes)
{
	make("");
	for (unsigned i = 0; i < FRONT_MAX_HUNG; i++)
		hangs_on(10 + i, NOW + i);
	hangs_on(10, NOW + FRONT_MAX_HUNG); /* seen again: now 11 is the oldest */
	hangs_on(99, NOW + FRONT_MAX_HUNG + 1);
	ck_assert(is_told(10, NOW + MS) && is_told(99, NOW + MS) && !is_told(11, NOW + MS));
}
