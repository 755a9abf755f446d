/* The scripts that record and read by which rules hosts go. */
#include "tests/unit/script_calls.h"

#define ONE   "1111111111111111"
#define TWO   "2222222222222222"
#define THREE "3333333333333333"
#define RULES "dflock:{0}:rules"

static const char *post(const char *place, const char *host, const char *digest, const char *text, const char *keep_ms)
{
	return call(SCRIPT_POST, place, host, digest, text, keep_ms, NULL);
}

TEST(recorded_and_read)
{
	assert_says(call(SCRIPT_RULES, "p", ONE, NULL), "OK 0 0 0");
	assert_says(post("p", "A", ONE, "text", "60000"), "OK");
	assert_says(call(SCRIPT_RULES, "p", ONE, NULL), "OK 0 0 0"); /* its own */
	assert_says(post("q", "B", ONE, "text", "60000"), "OK");
	assert_says(call(SCRIPT_RULES, "p", ONE, NULL), "OK 1 0 0");
	assert_says(post("r", "C", TWO, "other", "60000"), "OK");
	assert_says(post("s", "D", TWO, "other", "60000"), "OK");
	assert_starts(call(SCRIPT_RULES, "p", ONE, NULL), "OK 1 0 0 " TWO " 2 other C ");
	/* The next keeper of the same place, and other rules there. */
	assert_says(post("r", "E", THREE, "", "60000"), "OK");
	assert_says(post("s", "F", ONE, "text", "60000"), "OK");
	assert_starts(call(SCRIPT_RULES, "p", ONE, NULL), "OK 2 0 0 " THREE " 1  E ");
	ck_assert_int_eq(atoi(command("HLEN " RULES)), 4);
}

TEST(all_expires)
{
	assert_says(post("p", "A", ONE, "text", "60000"), "OK");
	assert_says(post("q", "B", ONE, "text", "20000"), "OK"); /* shortens nothing */
	ck_assert_int_gt(atoi(command("PTTL " RULES)), 30000);
	ck_assert_int_gt(atoi(command("PTTL " RULES ":" ONE)), 30000);
	/* A place is forgotten by its own time, and removed when others post. */
	command("HSET " RULES " old %s", ONE " 1000 2000 Z");
	assert_says(call(SCRIPT_RULES, "x", ONE, NULL), "OK 2 0 0");
	for (int i = 0; i < 200 && atoi(command("HEXISTS " RULES " old")); i++)
		assert_says(post("p", "A", ONE, "text", "60000"), "OK");
	ck_assert_int_eq(atoi(command("HLEN " RULES)), 2);
}

TEST(no_lease_sees_it)
{
	char before[8192];

	assert_granted(acquire("A", 'a', 'x'));
	snprintf(before, sizeof(before), "%s", command("HGETALL dflock:{0}:hosts"));
	assert_says(post("p", "A", ONE, "text", "60000"), "OK");
	assert_says(post("q", "B", ONE, "text", "60000"), "OK");
	assert_says(command("HGETALL dflock:{0}:hosts"), before); /* posting is no beat */
	strcpy(incarnation, "unknown");
	assert_says(post("p", "A", ONE, "text", "60000"),
		    "OK"); /* nor does it matter whether the store lost its memory */
	assert_says(command("HGETALL dflock:{0}:hosts"), before);
}

TEST(hosts_without_rules_are_unknown)
{
	assert_granted(acquire("A", 'a', 's'));
	assert_granted(acquire("B", 'b', 's'));
	assert_says(call(SCRIPT_RULES, "p", ONE, NULL), "OK 0 2 0");
	assert_says(post("p", "A", ONE, "text", "60000"), "OK");
	assert_says(call(SCRIPT_RULES, "p", ONE, NULL), "OK 0 1 0");
	command("HSET dflock:{0}:hosts B 1000"); /* silent for long */
	assert_says(call(SCRIPT_RULES, "p", ONE, NULL), "OK 0 0 0");
}

TEST(hostile_records)
{
	char longer[17000];
	static const char *const bad[] = {"",
					  "x",
					  ONE,
					  ONE " 1 99999999999999999 two words",
					  "111 1 99999999999999999 H",
					  ONE " -1 99999999999999999 H",
					  ONE " 1 1e400 H",
					  "zzzzzzzzzzzzzzzz 1 99999999999999999 H"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		command("HSET " RULES " bad%d %s", (int)i, bad[i]);
	assert_says(call(SCRIPT_RULES, "p", TWO, NULL), "OK 0 0 0");
	command("HSET " RULES " future %s", ONE " 99999999999999999 99999999999999999 H");
	assert_says(call(SCRIPT_RULES, "p", TWO, NULL), "OK 0 0 0 " ONE " 1  H 0"); /* no text, no age */
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	command("SET " RULES ":" ONE " %s", longer);
	assert_says(call(SCRIPT_RULES, "p", TWO, NULL), "OK 0 0 0 " ONE " 1  H 0");
	/* What another one wrote there is replaced by the next host that posts. */
	command("DEL " RULES ":" ONE);
	OF_REDIS; /* elsewhere a key may be both */
	command("HSET " RULES ":" ONE " a b");
	assert_has(call(SCRIPT_RULES, "p", TWO, NULL), "WRONGTYPE");
	assert_says(post("q", "B", ONE, "text", "60000"), "OK");
	assert_starts(call(SCRIPT_RULES, "p", TWO, NULL), "OK 0 0 0 " ONE " 2 text B ");
}

TEST(a_crowd_of_hosts)
{
	char place[16], host[16], digest[32], answer[8192];

	for (int i = 0; i < 300; i++) {
		snprintf(place, sizeof(place), "p%d", i);
		snprintf(host, sizeof(host), "H%03d", i);
		snprintf(digest, sizeof(digest), "%016x", i % 10 == 0 ? i : 1);
		assert_says(post(place, host, digest, "text", "60000"), "OK");
	}
	snprintf(answer, sizeof(answer), "%s", call(SCRIPT_RULES, "p", ONE, NULL));
	/* Of 31 sets the 16 that most hosts have, beginning with that of 270. Three hosts of each are named. */
	assert_starts(answer, "OK 0 0 15 0000000000000001 270 text H001 ");
	assert_has(answer, " H003 ");
	ck_assert_ptr_null(strstr(answer, " H004 "));
}

TEST(no_room_for_more_places)
{
	for (int i = 1; i <= 10000; i++)
		command("HSET " RULES " x%d %s", i, ONE " 1 99999999999999999 H");
	assert_says(post("p", "A", ONE, "text", "60000"), "FULL");
	assert_says(post("x7", "A", ONE, "text", "60000"), "OK"); /* it has a place */
	command("HSET " RULES " x10001 y");
	assert_says(call(SCRIPT_RULES, "p", ONE, NULL), "OK 0 0 10001"); /* and nobody reads all that */
}
