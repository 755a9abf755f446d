/* keeper/logcause.c: which lines are written and which are counted, with a time that the test makes up. */
#include "keeper/logline.h"

#include "tests/unit/suite.h"

#define SECOND 1000000000ll
#define START  (1000 * SECOND)

static struct logcauses *causes;
static int64_t now;
static char more[LOGCAUSE_MORE];
static struct log_line due;

static void setup(void)
{
	causes = calloc(1, sizeof(*causes));
	ck_assert_ptr_nonnull(causes);
	now = START;
}

static void teardown(void) { free(causes); }
FIXTURE(setup, teardown)

static const char *site = "one place";

static bool comes(enum event_kind kind, const char *lock, const char *text)
{
	return logcause_admit(
		causes,
		&(struct log_line){
			.kind = kind, .site = site, .subject = lock, .is_lock = lock != NULL, .pid = 7, .text = text},
		false, now, more);
}

static bool is_due(bool flush) { return logcause_due(causes, flush, now, &due, more); }

/* Is it due, with these words? */
static void check_due(enum event_kind kind, const char *text, const char *tail)
{
	ck_assert(is_due(false));
	ck_assert_int_eq(due.kind, kind);
	ck_assert_str_eq(due.text, text);
	ck_assert_str_eq(more, tail);
}

TEST(the_first_line_comes_at_once_and_the_others_are_counted)
{
	ck_assert(comes(LINE_STORE_REFUSED, NULL, "one") && !*more);
	for (int i = 0; i < 37; i++) {
		now += SECOND;
		ck_assert(!comes(LINE_STORE_REFUSED, NULL, i < 36 ? "another" : "the last"));
	}
	now = START + LOGCAUSE_NS - 1;
	ck_assert(!is_due(false));
	now = START + LOGCAUSE_NS;
	check_due(LINE_STORE_REFUSED, "the last", " (37 times in the last 60 s, the last 23 s ago)");
	ck_assert(!is_due(false) && !is_due(true)); /* once */
	/* The minute begins anew with the line that was written. */
	now += LOGCAUSE_NS - 1;
	ck_assert(!comes(LINE_STORE_REFUSED, NULL, "more"));
	now += 1;
	check_due(LINE_STORE_REFUSED, "more", " (once in the last 60 s)");
	/* If the process slept meanwhile, the line that comes says it. */
	ck_assert(!comes(LINE_STORE_REFUSED, NULL, "two"));
	now += 3 * LOGCAUSE_NS;
	ck_assert(comes(LINE_STORE_REFUSED, NULL, "three"));
	ck_assert_str_eq(more, " (2 times in the last 180 s)");
	ck_assert(!is_due(true));
	now += LOGCAUSE_NS;
	ck_assert(comes(LINE_STORE_REFUSED, NULL, "long after") && !*more);
}

/* "ends: told to" and "ends, and 3 leases are in use" have one name: each place in the sources is a cause. */
TEST(names_kinds_and_places_are_causes_of_their_own)
{
	ck_assert(comes(LINE_STORE_REFUSED, "a", "a"));
	ck_assert(comes(LINE_STORE_REFUSED, "b", "b"));
	ck_assert(comes(LINE_PROBE_FAILED, "a", "a"));
	ck_assert(comes(LINE_STORE_REFUSED, NULL, "no name"));
	site = "another place";
	ck_assert(comes(LINE_STORE_REFUSED, "a", "a"));
	ck_assert(comes(LINE_STORE_REFUSED, NULL, "no name"));
	site = "one place";
	ck_assert(!comes(LINE_STORE_REFUSED, "a", "a again"));
	now += LOGCAUSE_NS;
	check_due(LINE_STORE_REFUSED, "a again", " (once in the last 60 s, the last 60 s ago)");
	ck_assert_str_eq(due.subject, "a");
	ck_assert(due.is_lock && due.pid == 7);
}

TEST(at_debug_all_are_written)
{
	for (int i = 0; i < 100; i++)
		ck_assert(logcause_admit(causes, &(struct log_line){.kind = LINE_STORE_REFUSED, .text = "x"}, true, now,
					 more) &&
			  !*more);
	ck_assert(!is_due(true));
}

/* --- states --- */

TEST(the_latest_state_is_told_last)
{
	ck_assert(comes(EVENT_STORE_AWAY, NULL, "away"));
	ck_assert(comes(EVENT_STORE_BACK, NULL, "back") && !*more); /* a state that changes is told at once */
	now += SECOND;
	ck_assert(!comes(EVENT_STORE_AWAY, NULL, "away 2"));
	now += SECOND;
	ck_assert(!comes(EVENT_STORE_BACK, NULL, "back 2"));
	now += SECOND;
	ck_assert(!comes(EVENT_STORE_AWAY, NULL, "away 3"));
	now += LOGCAUSE_NS;
	check_due(EVENT_STORE_AWAY, "away 3", " (2 times, store-back once in the last 63 s, the last 60 s ago)");
	ck_assert(!is_due(true));
}

static const struct {
	enum event_kind one, other;
	const char *tail;
} states[] = {
	{EVENT_STORE_AWAY, EVENT_STORE_BACK, " (store-away once in the last 2 s)"},
	{LINE_CONFIG_NOT_IN_FORCE, LINE_CONFIG_TAKEN_OVER,
	 " (config-not-in-force once in the last 2 s)"}, /* one of three */
};

TEST_EACH(a_state_that_is_told_at_once_ends_the_other, ROWS(states))
{
	ck_assert(comes(states[_i].one, NULL, "one"));
	now += SECOND;
	ck_assert(!comes(states[_i].one, NULL, "one 2"));
	now += SECOND;
	ck_assert(comes(states[_i].other, NULL, "other"));
	ck_assert_str_eq(more, states[_i].tail);
	ck_assert(!is_due(true)); /* no line after it says that the store is away */
}

TEST(states_of_two_names_are_two_things)
{
	ck_assert(comes(LINE_LEASE_KEPT, "a", "a kept"));
	ck_assert(!comes(LINE_LEASE_KEPT, "a", "a kept 2"));
	ck_assert(comes(LINE_LEASE_NOT_KEPT, "b", "b not kept") && !*more);
	now += LOGCAUSE_NS;
	check_due(LINE_LEASE_KEPT, "a kept 2", " (once in the last 60 s, the last 60 s ago)");
}

/* That one store is back does not say that another one is. */
TEST(states_of_two_stores_are_two_things)
{
	struct log_line line = {.kind = EVENT_STORE_AWAY, .site = site, .text = "away"};

	ck_assert(logcause_admit(causes, &line, false, now, more));
	line.store = 1;
	ck_assert(logcause_admit(causes, &line, false, now, more) && !*more);
	ck_assert(!logcause_admit(causes, &line, false, now, more));
	ck_assert(comes(EVENT_STORE_BACK, NULL, "back") && !*more);
	ck_assert(is_due(true));
	ck_assert_int_eq(due.kind, EVENT_STORE_AWAY);
}

/* Each reason is told at once. */
TEST(reasons_for_one_state)
{
	ck_assert(comes(LINE_STORE_DISCONNECTED, "refused", "refused"));
	ck_assert(!comes(LINE_STORE_DISCONNECTED, "refused", "refused 2"));
	ck_assert(comes(LINE_STORE_DISCONNECTED, "NOAUTH", "NOAUTH"));
	ck_assert_str_eq(more, " (store-disconnected once in the last 0 s)");
	ck_assert(!comes(LINE_STORE_DISCONNECTED, "NOAUTH", "NOAUTH 2"));
	ck_assert(comes(LINE_STORE_CONNECTED, NULL, "up"));
	ck_assert_str_eq(more, " (store-disconnected once in the last 0 s)");
	ck_assert(!is_due(true));
}

/* Whatever the order: nothing is lost, and what is told last of a thing is its latest state. */
TEST(random_orders)
{
	static const enum event_kind kinds[] = {EVENT_STORE_AWAY, EVENT_STORE_BACK};

	for (unsigned seed = 1; seed <= 300; seed++) {
		unsigned state = seed * 2654435761u, came = 0;
		enum event_kind latest = EVENT_STORE_AWAY, told = EVENT_STORE_BACK;

		memset(causes, 0, sizeof(*causes));
		for (int i = 0; i < 60; i++) {
			state = state * 1103515245 + 12345;
			now += (state >> 20) % 40 * SECOND;
			while (is_due(false))
				told = due.kind;
			latest = kinds[state >> 16 & 1];
			came++;
			if (comes(latest, NULL, "x"))
				told = latest;
		}
		now += LOGCAUSE_NS;
		while (is_due(false))
			told = due.kind;
		ck_assert_int_eq(told, latest);
		ck_assert(came == 60 && !is_due(true));
	}
}

/* --- bounds --- */

TEST(many_names_make_few_lines)
{
	unsigned lines = 0, counted = 0, times;
	char name[32];

	for (int i = 0; i < 20000; i++) {
		snprintf(name, sizeof(name), "name-%d", i);
		lines += comes(LINE_STORE_REFUSED, name, name);
	}
	ck_assert_uint_eq(lines, LOGCAUSE_EACH + 1);
	ck_assert(comes(LINE_PROBE_FAILED, "name-0", "x")); /* other kinds have room */
	now += LOGCAUSE_NS;
	while (is_due(false)) {
		ck_assert_int_eq(sscanf(more, " (%u times", &times), 1);
		ck_assert(strstr(more, "of several causes") != NULL);
		ck_assert_str_eq(due.text, "name-19999");
		ck_assert_str_eq(due.subject, "name-19999");
		counted += times;
	}
	ck_assert_uint_eq(counted, 20000 - LOGCAUSE_EACH - 1);
	/* Names of before have made room. */
	ck_assert(comes(LINE_STORE_REFUSED, "name-20001", "x"));
}

/* Entries whose minute is over, and that have something to be told, make no room. */
TEST(what_is_counted_is_not_forgotten_for_a_new_name)
{
	unsigned told = 0;
	char name[32];

	for (int i = 0; i < 2 * LOGCAUSE_EACH; i++) {
		snprintf(name, sizeof(name), "name-%d", i / 2);
		comes(LINE_STORE_REFUSED, name, name);
	}
	now += LOGCAUSE_NS;
	for (int i = 0; i < LOGCAUSE_MORE_CAUSES; i++) {
		snprintf(name, sizeof(name), "new-%d", i);
		comes(LINE_STORE_REFUSED, name, name);
	}
	while (is_due(false))
		told += strncmp(due.text, "name-", 5) == 0;
	ck_assert_uint_eq(told, LOGCAUSE_EACH);
}

/* All kinds at once: in no minute are there more lines than places. */
TEST(never_more_lines_than_places)
{
	char name[32];

	for (int minute = 0; minute < 5; minute++) {
		unsigned lines = 0;

		for (int i = 0; i < 20000; i++) {
			snprintf(name, sizeof(name), "%d-%d", minute, i);
			lines += comes((enum event_kind)(i % LINE_DEBUG), name, name);
			now += LOGCAUSE_NS / 20000;
			while (is_due(false))
				lines++;
		}
		ck_assert_uint_le(lines, 2 * LOGCAUSE_ALL); /* a minute of the test has parts of two of theirs */
		ck_assert_uint_ge(lines, LOGCAUSE_MORE_CAUSES);
	}
}

TEST(long_texts_and_names_are_cut)
{
	char text[3000];
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	ck_assert(comes(LINE_STORE_REFUSED, text, text));
	ck_assert(!comes(LINE_STORE_REFUSED, text, text));
	ck_assert(is_due(true));
	ck_assert_uint_eq(strlen(due.text), LOGCAUSE_BYTES - 1);
	ck_assert_str_eq(due.text + LOGCAUSE_BYTES - 4, "...");
}

/* A process was killed while it wrote: whatever is in the memory, what is read is in bounds. */
TEST(memory_that_is_nonsense)
{
	for (unsigned seed = 0; seed < 20; seed++) {
		unsigned state = seed, lines = 0;

		for (size_t i = 0; i < sizeof(*causes); i++) {
			state = state * 1103515245 + 12345;
			((unsigned char *)causes)[i] = (unsigned char)(state >> 24);
		}
		for (size_t i = 0; i < LOGCAUSE_ALL; i++) { /* words are written as a whole */
			causes->all[i].used = causes->all[i].is_lock = causes->all[i].others = true;
			causes->all[i].said_ns = causes->all[i].latest_ns = START;
		}
		while (is_due(true)) {
			ck_assert(due.kind < LOGNAME_KINDS && strlen(due.text) < LOGCAUSE_BYTES);
			ck_assert_uint_le(++lines, LOGCAUSE_ALL);
		}
		comes(LINE_STORE_REFUSED, "a", "x");
	}
}

TEST(each_kind_has_a_name)
{
	for (int i = 0; i < LINE_DEBUG; i++) {
		ck_assert_ptr_nonnull(logname_of((enum event_kind)i));
		ck_assert(*logname_of((enum event_kind)i) && logname_level((enum event_kind)i) > 0);
		for (int j = 0; j < i; j++)
			ck_assert_str_ne(logname_of((enum event_kind)i), logname_of((enum event_kind)j));
	}
}
