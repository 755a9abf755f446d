/* keeper/guard/table.c, table_notes.c: what parent and keeper write and read at the same time. */
#include "tests/unit/table_fixture.h"

#include <sys/time.h>

TEST(hidden_is_of_one_lease)
{
	struct table_view view;
	uint32_t slot;

	begin();
	slot = held(&keeper, 1);
	ck_assert(!table_is_hidden(&keeper, slot) && !table_is_hidden(&keeper, TABLE_NO_SLOT));
	table_view(&parent, slot, &view);
	table_set_hidden(&parent, slot, view.generation, true);
	ck_assert(table_is_hidden(&keeper, slot));
	table_return(&keeper, slot);
	table_vacate(&keeper, slot);
	ck_assert_uint_eq(held(&keeper, 2), slot);
	ck_assert(!table_is_hidden(&keeper, slot));
	table_set_hidden(&parent, slot, view.generation, true); /* the search took long: it was about the earlier one */
	ck_assert(!table_is_hidden(&keeper, slot));
}

/* The parent is between word(FREE) and clearing the bit: the slot is passed by. */
TEST(freed_by_the_parent)
{
	uint32_t slot;

	begin();
	slot = held(&keeper, 1);
	table_lose(&keeper, slot, TABLE_WHY_TAKEN);
	ck_assert(!table_move(&parent, slot, TABLE_HELD, TABLE_ENDING));
	parent.slots[slot].word = table_word(TABLE_FREE, WIRE_EXCLUSIVE, 1);
	ck_assert_uint_ne(ask(&keeper, 2), slot);
	table_clear_bits(&parent.head->busy[slot / 64], 1ull << slot % 64);
	parent.head->first = 0;
	ck_assert_uint_eq(ask(&keeper, 3), slot);
	ck_assert_uint_eq(table_word_generation(parent.slots[slot].word), 2);
}

/* The keeper, at any instruction of the parent: each lease of the slot has another range, as its generation says. */
static void next_lease(int number)
{
	static unsigned n;
	struct store_range range = granted(n);
	struct holders_file file = file_of(n);
	struct table_lease lease = {.token = "0123456789abcdef0123456789abcdef",
				    .name = "n",
				    .path = "/p",
				    .file = file,
				    .range = asked(n)};
	uint32_t slot = TABLE_NO_SLOT;

	if (n > 0) {
		table_return(&keeper, 0);
		table_vacate(&keeper, 0);
	}
	if (table_ask(&keeper, &lease, &slot) != 0 || slot != 0)
		abort();
	table_grant(&keeper, slot, 1, &range, &file);
	n++;
}

TEST(parent_reads_while_the_keeper_writes)
{
	const struct itimerval often = {.it_interval.tv_usec = 30, .it_value.tv_usec = 30}, off = {0};
	int64_t end = clock_now_ns() + 20000 * NS_PER_MS;
	struct table_view view = {0};

	begin();
	next_lease(0);
	signal(SIGALRM, next_lease);
	setitimer(ITIMER_REAL, &often, NULL);
	while (view.generation < 20000 && clock_now_ns() < end)
		for (int i = 0; i < 1000; i++) {
			table_view(&parent, 0, &view);
			uint64_t n = view.generation - 1;

			ck_assert_int_eq(view.state, TABLE_HELD);
			if (view.file.ino != 1000 + n || view.from != (int64_t)n + 5 || view.to != (int64_t)n + 25 ||
			    view.file.kernel_ino != 2000 + n || view.space != (n % 2 ? WIRE_RECORD : WIRE_FLOCK))
				ck_abort_msg("lease %llu has what is another's", (unsigned long long)n);
		}
	setitimer(ITIMER_REAL, &off, NULL);
	signal(SIGALRM, SIG_IGN); /* one may still be on its way */
	ck_assert_uint_gt(view.generation, 1000);
}

TEST(callers)
{
	struct table_caller one = {.pid = 11, .dev = 1, .ino = 2}, two = {.pid = 12, .dev = 1, .ino = 2};

	begin();
	table_renewed(&keeper, 0, 100, 200);
	table_add_caller(&keeper, &one);
	table_add_caller(&keeper, &one);
	ck_assert(table_has_caller(&parent, &one) && !table_has_caller(&parent, &two));
	ck_assert_uint_eq(parent.head->caller_count, 1);
	table_renewed(&keeper, 0, 300, 400); /* those were granted or refused since */
	table_add_caller(&keeper, &two);
	ck_assert(!table_has_caller(&parent, &one) && table_has_caller(&parent, &two));
	for (int32_t pid = 100; pid < 100 + 2 * TABLE_CALLERS; pid++)
		table_add_caller(&keeper, &(struct table_caller){.pid = pid});
	ck_assert_uint_eq(parent.head->caller_count, TABLE_CALLERS);
}

/* The parent may not have looked since the outage in which they were noted. */
TEST(the_callers_of_an_outage_that_is_over)
{
	struct table_caller one = {.pid = 11, .dev = 1, .ino = 2};

	for (int i = 0; i < 3; i++) {
		begin();
		table_renewed(&keeper, 0, 100, 200);
		uint32_t slot = held(&keeper, 1), broken = held(&keeper, 2);

		table_add_caller(&keeper, &one);
		table_lose(&keeper, broken, TABLE_WHY_BROKEN); /* in that outage */
		table_doubt(&keeper, slot);
		ck_assert(table_has_caller(&parent, &one));
		table_renewed(&keeper, 0, 300, 400);
		ck_assert(table_has_caller(&parent, &one)); /* it counts as long as that lease is not confirmed */
		table_hold(&keeper, slot);
		if (i == 0)
			table_lose(&keeper, slot, TABLE_WHY_BROKEN);
		else if (i == 1)
			table_doubt(&keeper, slot);
		else
			table_unsure(&parent);
		ck_assert(!table_has_caller(&parent, &one));
	}
}

TEST(has_lost)
{
	uint32_t slot;

	begin();
	slot = held(&keeper, 1);
	parent.head->parent = getppid();
	ck_assert(!table_has_lost(&keeper));
	table_lose(&keeper, slot, TABLE_WHY_TAKEN);
	ck_assert(table_has_lost(&keeper));
	ck_assert(table_has_lost_on(&keeper, 7, 1001, WIRE_RECORD));
	ck_assert(!table_has_lost_on(&keeper, 7, 1001, WIRE_FLOCK) &&
		  !table_has_lost_on(&keeper, 7, 1002, WIRE_RECORD));
	parent.head->parent++; /* it has died: nobody kills */
	ck_assert(!table_has_lost(&keeper) && !table_has_lost_on(&keeper, 7, 1001, WIRE_RECORD));
	parent.head->parent--;
	table_move(&parent, slot, TABLE_LOST, TABLE_ENDING);
	ck_assert(table_has_lost(&keeper));
	table_move(&parent, slot, TABLE_ENDING, TABLE_FREE);
	ck_assert(!table_has_lost(&keeper));
}
