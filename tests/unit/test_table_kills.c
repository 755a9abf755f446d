/* keeper/guard/table*.c: what the parent and the next keeper see when a keeper, or its parent, dies at any store. */
#include "tests/unit/table_fixture.h"

/* What others know of a lease. */
struct known {
	bool acquire_sent, told, shrink_sent, release_sent, gone, lost, killed;
};
static struct known known[4];

/* The incarnation is the one last set, or the one that is being set. */
static const char *set_last, *set_next;

static void set_incarnation(const char *incarnation)
{
	set_next = incarnation;
	table_set_incarnation(&keeper, 0, incarnation);
	set_last = incarnation;
}

static void live_and_return(unsigned n)
{
	uint32_t slot = ask(&keeper, n);

	known[n].acquire_sent = true;
	grant(&keeper, slot, n);
	known[n].told = true;
	table_doubt(&keeper, slot);
	table_confirm(&keeper, slot);
	table_hold(&keeper, slot);
	table_share(&keeper, slot);
	known[n].shrink_sent = true;
	table_return(&keeper, slot);
	known[n].release_sent = true;
	known[n].gone = true; /* the store has acknowledged it */
	table_vacate(&keeper, slot);
}

static void live_and_lose(unsigned n)
{
	uint32_t slot = ask(&keeper, n);

	known[n].acquire_sent = true;
	grant(&keeper, slot, n);
	known[n].told = true;
	table_doubt(&keeper, slot);
	known[n].lost = true; /* the store has said so; it would say so again */
	table_lose(&keeper, slot, TABLE_WHY_TAKEN);
	ck_assert(table_move(&parent, slot, TABLE_LOST, TABLE_ENDING));
	known[n].killed = true;
	ck_assert(table_move(&parent, slot, TABLE_ENDING, TABLE_FREE));
}

static void ask_in_vain(unsigned n)
{
	uint32_t slot = ask(&keeper, n);
	known[n].acquire_sent = true;
	table_return(&keeper, slot);
	known[n].release_sent = true;
	known[n].gone = true;
	table_vacate(&keeper, slot);
}

static void lives(void)
{
	char host[STORE_HOST_BYTES] = HOST;
	table_host(&keeper, host);
	set_incarnation("first-1"); /* names that share no byte: half of one is seen */
	live_and_return(0);
	live_and_lose(1);
	live_and_return(2); /* in the slot of others, with another text */
	set_incarnation("SECOND22");
	ask_in_vain(3);
}

static void check_parent(void)
{
	for (unsigned n = 0; n < 4; n++) {
		const struct known *k = &known[n];
		enum table_state state = seen(n);

		if (k->told && !k->release_sent && !k->lost && !k->shrink_sent)
			ck_assert(state == TABLE_HELD || state == TABLE_UNSURE);
		if (k->lost && !k->killed)
			ck_assert(state == TABLE_UNSURE || state == TABLE_LOST || state == TABLE_ENDING);
		if (k->release_sent)
			ck_assert_int_eq(state, TABLE_FREE);
	}
}

static void check_next(const struct told *told)
{
	ck_assert_uint_eq(told->damaged, 0);
	for (unsigned n = 0; n < 4; n++) {
		const struct known *k = &known[n];
		const struct table_entry *e = entry_of(told, n);

		if (k->acquire_sent && !k->gone && !k->lost)
			ck_assert_ptr_nonnull(e);
		if (k->told && !k->shrink_sent && !k->lost)
			ck_assert(e->unsure && e->fence == 100 + n && e->range.from == n + 5 && e->range.to == n + 25 &&
				  e->uid == 500 + n && e->dev == 7 && e->ino == 1000 + n);
		if (e && e->unsure) /* nobody was told of anything else */
			ck_assert(e->fence == 100 + n && e->range.from == n + 5 && e->range.to == n + 25);
		if (e && e->unsure && k->shrink_sent)
			ck_assert_int_eq(e->range.mode, WIRE_SHARED);
		if (e && k->release_sent)
			ck_assert(!e->unsure);
		if (e && !k->acquire_sent)
			ck_assert(!e->unsure);
	}
}

/* The next keeper goes on, and what it does harms nothing of what there is. */
static void check_going_on(void)
{
	static struct told before;
	uint32_t slot;

	char host[STORE_HOST_BYTES] = OTHER;

	before = *take_up();
	check_next(&before);
	table_host(&keeper, host);
	ck_assert_msg(strcmp(host, HOST) == 0 || strcmp(host, OTHER) == 0, "the host is %s", host);
	ck_assert_msg(strcmp(table_incarnation(&keeper, 0), set_last) == 0 ||
			      strcmp(table_incarnation(&keeper, 0), set_next) == 0,
		      "the incarnation is %s", table_incarnation(&keeper, 0));
	slot = held(&keeper, 9);
	new_keeper();
	check_parent();
	ck_assert_uint_eq(take_up()->count, before.count + 1);
	check_next(take_up());
	table_return(&keeper, slot);
	table_vacate(&keeper, slot);
}

static void check_all(void)
{
	check_parent();
	new_keeper();
	check_parent();
	check_going_on();
	new_parent();
	ck_assert_str_eq(why, "");
	check_parent();
	for (uint32_t i = 0; i < table_used(&parent); i++)
		ck_assert_int_ne(table_state(&parent, i), TABLE_ENDING);
	check_going_on();
}

static bool die_at(int store)
{
	memset(known, 0, sizeof(known));
	set_last = set_next = "";
	begin();
	return killed_in(lives, store);
}

TEST(killed_at_every_store)
{
	int store = 0;
	for (; die_at(store); store++)
		check_all();
	ck_assert_int_gt(store, 100);
	check_all();
}

static void takes_up(void) { take_up(); }

/* And the next keeper dies while it takes up what the first has left. */
TEST(killed_twice)
{
	for (int first = 0; die_at(first); first += 3)
		for (int second = 0, more = 1; more; second++) {
			die_at(first);
			new_keeper();
			more = killed_in(takes_up, second);
			check_all();
		}
}

static void opens(void) { ck_assert_int_eq(table_open(&parent, dir_fd, why, sizeof(why)), 0); }

TEST(parent_killed_at_every_store)
{
	for (int store = 0, more = 1; more; store++) {
		clear_folder();
		table_text_close(&keeper);
		table_close(&parent);
		more = killed_in(opens, store);
		new_parent();
		ck_assert_str_eq(why, "");
		ck_assert_uint_eq(take_up()->count, 0);
		held(&keeper, 1);
		new_parent();
		ck_assert_int_eq(seen(1), TABLE_UNSURE);
	}
}
