/*
 * store/replay/replay.c: the rules in this process give the answers, the messages and the memory that they give in a
 * Redis server: in random calls, one after the other, and while others come between loading and commit.
 */
#include "store/replay/replay.h"
#include "tests/unit/random_calls.h"
#include "tests/unit/replay_memory.h"

#define CALLS 4000

static struct replay *replay;
static struct memory memory;
static void (*meanwhile)(void); /* is called before each load but the first, and before the commit */

static void begin(void)
{
	calls_begin();
	replay = replay_new();
	ck_assert_ptr_nonnull(replay);
	memory = (struct memory){.now_us = 0};
	meanwhile = NULL;
}

static void end(void)
{
	calls_end();
	memory_free(&memory);
	replay_free(replay);
}
FIXTURE_ONCE(calls_prepare, calls_remove)
FIXTURE(begin, end)

/* ---- here ---- */

static unsigned loads, conflicts;

static void come_between(void)
{
	void (*now)(void) = meanwhile;

	meanwhile = NULL; /* not in the call that comes between */
	if (now)
		now();
	meanwhile = now;
}

static void elsewhere(const struct call *c, char *text)
{
	struct replay_run *run;

	for (bool committed = false; !committed;) {
		run = replay_begin(replay, c->script, c->keys, c->argc, c->argv);
		ck_assert_ptr_nonnull(run);
		for (unsigned n = 0; replay_step(run) == REPLAY_LOAD; n++) {
			ck_assert_uint_lt(n, 200);
			if (n)
				come_between();
			memory.now_us = told_us;
			snprintf(memory.identity, sizeof(memory.identity), "%.63s", told_identity);
			memory_load(&memory, run);
			loads++;
		}
		come_between();
		committed = memory_commit(&memory, run);
		conflicts += !committed;
		text[0] = '\0';
		say(text, run->answer);
		strcat(text, " |");
		for (struct replay_message *m = run->messages; m; m = m->next)
			sprintf(text + strlen(text), " ( %s %s )", m->channel, m->text);
		replay_end(run);
	}
}

static void hears_elsewhere(char *text) {}
static void forget_elsewhere(void) { snprintf(told_identity, sizeof(told_identity), "%x", below(1000) + 1); }

TEST_EACH(random_calls_are_answered_as_by_the_server, 3) { compare_random((unsigned)_i + 1, suite_rounds(CALLS)); }

static void another_call(void)
{
	if (below(3) == 0)
		compare_any();
}

TEST_EACH(calls_between_loading_and_commit_make_it_run_again, 2)
{
	conflicts = 0;
	meanwhile = another_call;
	compare_random((unsigned)_i + 100, suite_rounds(CALLS / 2));
	ck_assert_uint_gt(conflicts, (unsigned)suite_rounds(60));
}

TEST(most_rules_need_one_load)
{
	struct call c;

	compare_store("init");
	loads = 0;
	for (int i = 0; i < 100; i++) {
		make(&c, i % 2 ? SCRIPT_RELEASE : SCRIPT_ACQUIRE, "a");
		if (i % 2) {
			add_token(&c, 1);
			add_all(&c, "0", "A", NULL);
		} else {
			add_all(&c, "A", "1:1", NULL);
			add_token(&c, 1);
			add_range(&c, 3);
			add_all(&c, "0", "0", "0", "0", "0", "", "", NULL);
		}
		compare(&c);
		forget(&c);
	}
	ck_assert_uint_le(loads, 100);
}

/* ---- what may happen in between ---- */

static int until; /* so many loads or commits from now */

/* It writes no field that the rule that opens reads by its name. */
static void put_back(void)
{
	struct call c;

	if (until-- != 0)
		return;
	make(&c, SCRIPT_RECLAIM, "a");
	add(&c, "A");
	add_token(&c, 1);
	add_all(&c, "1000", "1:1", NULL);
	add_range(&c, 3);
	add(&c, "");
	compare(&c);
	forget(&c);
}

TEST(a_lock_that_is_put_back_meanwhile_keeps_the_store_closed)
{
	compare_store("begin");
	until = 1; /* all fields were loaded */
	conflicts = 0;
	meanwhile = put_back;
	compare_store("new");
	ck_assert_uint_eq(conflicts, 1);
}

static void open_meanwhile(void)
{
	if (until-- == 0)
		compare_store("init");
}

/* The rule has seen that the store is not open; then all fields are loaded. */
TEST(what_was_read_before_is_not_loaded_again)
{
	compare_store("begin");
	until = 0;
	put_back();
	until = 0;
	meanwhile = open_meanwhile;
	compare_store("new");
}

TEST(what_a_rule_has_written_is_what_it_reads)
{
	char *words[] = {"HSET", "k", "f", "new"};
	struct replay_run *run = replay_begin(replay, -1, 0, 4, words);

	ck_assert_int_eq(replay_step(run), REPLAY_DONE);
	replay_put(run, "k", "=f", "old", 3, 7);
	ck_assert_str_eq(run->cells->value, "new");
	ck_assert(run->cells->written && !run->cells->read);
	replay_end(run);
}
