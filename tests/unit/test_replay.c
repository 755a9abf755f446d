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

static void begin(void)
{
	calls_begin();
	replay = replay_new();
	ck_assert_ptr_nonnull(replay);
	memory = (struct memory){.now_us = 0};
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

/* `meanwhile`: is called before each load but the first, and before the commit. */
static void here(const struct call *c, char *text, void (*meanwhile)(void))
{
	struct replay_run *run;

	for (bool committed = false; !committed;) {
		run = replay_begin(replay, c->script, c->keys, c->argc, c->argv);
		ck_assert_ptr_nonnull(run);
		for (unsigned n = 0; replay_step(run) == REPLAY_LOAD; n++) {
			ck_assert_uint_lt(n, 200);
			if (n && meanwhile)
				meanwhile();
			memory.now_us = told_us;
			snprintf(memory.identity, sizeof(memory.identity), "%.63s", told_identity);
			memory_load(&memory, run);
			loads++;
		}
		if (meanwhile)
			meanwhile();
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

static void compare(const struct call *c, void (*meanwhile)(void))
{
	static char mine[2][TEXT_BYTES], theirs[2][TEXT_BYTES];
	static int depth;
	int at = depth++;

	here(c, mine[at], meanwhile);
	in_server(c, theirs[at]);
	learn(c, theirs[at]);
	compare_texts(c, mine[at], theirs[at]);
	depth--;
}

static void open_store(void)
{
	struct call c;

	make(&c, SCRIPT_STORE, NULL);
	add(&c, "init");
	add(&c, "30000");
	add(&c, "");
	add(&c, "0");
	compare(&c, NULL);
	forget(&c);
}

static void pass_time(void)
{
	told_us += below(20) ? below(100000) : below(6000000);
	if (below(400) == 0)
		snprintf(told_identity, sizeof(told_identity), "%x", below(1000) + 1);
}

TEST_EACH(random_calls_are_answered_as_by_the_server, 3)
{
	struct call c;

	seed = (unsigned)_i + 1;
	open_store();
	for (int i = 0; i < suite_rounds(CALLS); i++) {
		pass_time();
		make_any(&c);
		compare(&c, NULL);
		forget(&c);
		if (incarnation[0] == '\0' || below(150) == 0)
			open_store();
	}
}

static void another_call(void)
{
	struct call c;

	if (below(3))
		return;
	make_any(&c);
	compare(&c, NULL);
	forget(&c);
}

TEST_EACH(calls_between_loading_and_commit_make_it_run_again, 2)
{
	struct call c;

	seed = (unsigned)_i + 100;
	conflicts = 0;
	open_store();
	for (int i = 0; i < suite_rounds(CALLS / 2); i++) {
		pass_time();
		make_any(&c);
		compare(&c, another_call);
		forget(&c);
		if (below(150) == 0)
			open_store();
	}
	ck_assert_uint_gt(conflicts, (unsigned)suite_rounds(60));
}

TEST(most_rules_need_one_load)
{
	struct call c;

	open_store();
	loads = 0;
	for (int i = 0; i < 100; i++) {
		make(&c, i % 2 ? SCRIPT_RELEASE : SCRIPT_ACQUIRE, "a");
		if (i % 2) {
			add_token(&c, 1);
			add(&c, "0");
			add(&c, "A");
		} else {
			add(&c, "A");
			add(&c, "1:1");
			add_token(&c, 1);
			add_range(&c, 3);
			for (int n = 0; n < 5; n++)
				add(&c, "0");
			add(&c, "");
			add(&c, "");
		}
		compare(&c, NULL);
		forget(&c);
	}
	ck_assert_uint_le(loads, 100);
}

/* ---- what may happen in between ---- */

static int until; /* so many loads or commits from now */

static void make_new(struct call *c, const char *what)
{
	make(c, SCRIPT_STORE, NULL);
	add(c, what);
	add(c, "30000");
	add(c, "");
	add(c, "0");
}

static void begin_grace(void)
{
	struct call c;

	make_new(&c, "begin");
	compare(&c, NULL);
	forget(&c);
}

/* It writes no field that the rule that opens reads by its name. */
static void put_back(void)
{
	struct call c;

	if (until-- != 0)
		return;
	make(&c, SCRIPT_RECLAIM, "a");
	add(&c, "A");
	add_token(&c, 1);
	add(&c, "1000");
	add(&c, "1:1");
	add_range(&c, 3);
	add(&c, "");
	compare(&c, NULL);
	forget(&c);
}

TEST(a_lock_that_is_put_back_meanwhile_keeps_the_store_closed)
{
	struct call c;

	begin_grace();
	make_new(&c, "new");
	until = 1; /* all fields were loaded */
	conflicts = 0;
	compare(&c, put_back);
	ck_assert_uint_eq(conflicts, 1);
	forget(&c);
}

static void open_meanwhile(void)
{
	if (until-- == 0)
		open_store();
}

/* The rule has seen that the store is not open; then all fields are loaded. */
TEST(what_was_read_before_is_not_loaded_again)
{
	struct call c;

	begin_grace();
	until = 0;
	put_back();
	until = 0;
	make_new(&c, "new");
	compare(&c, open_meanwhile);
	forget(&c);
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
