/*
 * keeper/guard/table*.c: what the next keeper and the next parent find again, what happens without room, and what parent and keeper write and
 * read at the same time.
 */
#include <sys/time.h>

#include "keeper/guard/slots.h"
#include "tests/unit/table_fixture.h"

TEST(host_and_pins_stay)
{
	char host[STORE_HOST_BYTES] = HOST;

	begin();
	table_host(&keeper, host);
	ck_assert_str_eq(host, HOST);
	table_pinned(&keeper, 500);
	table_pinned(&keeper, 300);
	ck_assert_int_eq(table_pins_until(&keeper, 1000), 500); /* the last one counts */
	ck_assert_int_eq(table_pins_until(&keeper, 400), 400);
	new_parent();
	strcpy(host, OTHER);
	table_host(&keeper, host);
	ck_assert_str_eq(host, HOST);
	ck_assert_int_eq(table_pins_until(&keeper, 1000), 500);
}

TEST(incarnation)
{
	uint32_t one, two;
	const struct told *told;

	begin();
	ck_assert_str_eq(table_incarnation(&keeper, 0), "");
	table_set_incarnation(&keeper, 0, "inc-1");
	one = held(&keeper, 1);
	two = held(&keeper, 2);
	table_set_incarnation(&keeper, 0, "inc-1"); /* the same: nothing is forgotten */
	new_keeper();
	told = take_up();
	ck_assert(!entry_of(told, 1)->forgotten && !entry_of(told, 2)->forgotten);
	table_set_incarnation(&keeper, 0, "inc-2");
	table_confirm(&keeper, two); /* that one was put back */
	new_keeper();
	told = take_up();
	ck_assert_str_eq(table_incarnation(&keeper, 0), "inc-2");
	ck_assert(entry_of(told, 1)->forgotten && !entry_of(told, 2)->forgotten);
	table_confirm(&keeper, one);
	new_parent();
	ck_assert(!entry_of(take_up(), 1)->forgotten);
}

/* What is true of the host in one store says nothing of another one. */
TEST(each_store_for_itself)
{
	const int64_t now = clock_now_ns(), second = 1000 * NS_PER_MS;
	struct slots_times times;
	uint32_t one, two;

	begin();
	table_set_incarnation(&keeper, 0, "inc-1");
	table_set_incarnation(&keeper, 3, "inc-7");
	one = held(&keeper, 1);
	two = ask_in(&keeper, 2, 3);
	grant(&keeper, two, 2);
	table_renewed(&keeper, 0, now - second, now + second);
	table_renewed(&keeper, 3, now + second, now + 3 * second);
	ck_assert_uint_eq(slots_stores(&parent, SLOTS_SURE_UNTIL), SLOTS_OF(0) | SLOTS_OF(3));
	ck_assert(slots_any(&parent, SLOTS_IN(TABLE_HELD) | SLOTS_OF(3)));
	ck_assert(!slots_any(&parent, SLOTS_IN(TABLE_HELD) | SLOTS_OF(1)));
	ck_assert_uint_eq(slots_past(&parent, SLOTS_OF(0) | SLOTS_OF(3), now), SLOTS_OF(0));
	ck_assert(slots_first(&parent, SLOTS_OF(0) | SLOTS_OF(3), now, &times));
	ck_assert_int_eq(times.deadline_ns, now + second);
	ck_assert(slots_first(&parent, SLOTS_OF(0) | SLOTS_OF(3), now + 2 * second, &times)); /* that one is over */
	ck_assert_int_eq(times.deadline_ns, now + 3 * second);
	ck_assert(!slots_first(&parent, SLOTS_OF(1), now, &times));
	slots_set(&parent, SLOTS_IN(TABLE_HELD) | SLOTS_OF(3), TABLE_UNSURE);
	ck_assert_int_eq(table_state(&parent, one), TABLE_HELD);
	ck_assert_int_eq(table_state(&parent, two), TABLE_UNSURE);
	table_set_incarnation(&keeper, 3, "inc-8"); /* one store has lost its memory */
	new_parent();
	new_keeper();
	ck_assert(!entry_of(take_up(), 1)->forgotten && entry_of(take_up(), 2)->forgotten);
	ck_assert_uint_eq(entry_of(take_up(), 1)->member, 0);
	ck_assert_uint_eq(entry_of(take_up(), 2)->member, 3);
	ck_assert_str_eq(table_incarnation(&keeper, 0), "inc-1");
	ck_assert_str_eq(table_incarnation(&keeper, 3), "inc-8");
	ck_assert_int_eq(slots_freeze_at_ns(&parent, 3), now + second);
}

TEST(longest_strings)
{
	static char name[LOCK_NAME_BYTES + 1], path[PATH_MAX + 1];
	struct table_lease lease = {.token = token_of(1), .name = name, .path = path, .range = asked(1)};
	uint32_t slot;

	begin();
	memset(name, 'n', LOCK_NAME_BYTES - 1);
	memset(path, 'p', PATH_MAX - 1);
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), 0);
	new_keeper();
	ck_assert_str_eq(take_up()->names[0], name);
	ck_assert_str_eq(take_up()->paths[0], path);
	name[LOCK_NAME_BYTES - 1] = 'n';
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), -EINVAL);
	name[1] = '\0';
	path[PATH_MAX - 1] = 'p';
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), -EINVAL);
	path[0] = '\0';
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), -EINVAL);
	path[0] = 'p';
	path[1] = name[0] = '\0';
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), -EINVAL);
	ck_assert_uint_eq(take_up()->count, 1);
}

/* The same slot has ever longer texts: the area does not grow without bounds. */
TEST(texts_of_all_lengths)
{
	struct stat st;

	begin();
	for (unsigned n = 0; n < (unsigned)suite_rounds(5000); n++) {
		uint32_t slot = held(&keeper, n % 20);

		ck_assert_uint_eq(slot, 0);
		if (n % 500 == 0) {
			new_keeper();
			ck_assert_ptr_nonnull(entry_of(take_up(), n % 20));
		}
		table_return(&keeper, slot);
		table_vacate(&keeper, slot);
	}
	ck_assert_int_eq(fstatat(dir_fd, TABLE_TEXT_NAME, &st, 0), 0);
	ck_assert_int_le(st.st_size, 64 * 1024);
}

TEST(all_slots)
{
	struct table_lease lease = {.token = token_of(1), .name = "n", .path = "/p", .range = asked(0)};
	struct stat st;
	uint32_t slot;

	begin();
	ck_assert_int_eq(fstatat(dir_fd, TABLE_NAME, &st, 0), 0);
	ck_assert_int_lt(st.st_size, 400 * 1024); /* a keeper that has little needs little */
	for (uint32_t i = 0; i < TABLE_SLOTS; i++) {
		if (i == 1024) { /* no room for more */
			full = true;
			ck_assert_int_eq(table_ask(&keeper, &lease, &slot), -ENOSPC);
			ck_assert_uint_eq(table_used(&parent), i);
			full = false;
		}
		ck_assert_int_eq(table_ask(&keeper, &lease, &slot), 0);
		ck_assert_uint_eq(slot, i);
	}
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), -ENFILE);
	ck_assert_uint_eq(table_used(&parent), TABLE_SLOTS); /* the file has grown under it */
	ck_assert_int_eq(table_state(&parent, TABLE_SLOTS - 1), TABLE_ASKED);
	table_vacate(&keeper, 777);
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), 0);
	ck_assert_uint_eq(slot, 777);
	new_parent();
	ck_assert_uint_eq(table_used(&parent), TABLE_SLOTS);
	ck_assert(!table_in_use(&parent));
}

/* Until the parent has ended the holders of a lost lease; where no process is to be killed for it, it is over. */
TEST(in_use)
{
	uint32_t slot;

	begin();
	parent.head->parent = getppid();
	slot = ask(&keeper, 1);
	ck_assert(!table_in_use(&parent));
	grant(&keeper, slot, 1);
	ck_assert(table_in_use(&parent) && !table_has_lost(&keeper));
	table_lose(&keeper, slot, TABLE_WHY_TAKEN);
	ck_assert(table_in_use(&parent) && table_has_lost(&keeper));
	ck_assert(table_has_lost_on(&keeper, 7, 1001, WIRE_RECORD));
	ck_assert(!table_has_lost_on(&keeper, 7, 1001, WIRE_FLOCK) &&
		  !table_has_lost_on(&keeper, 7, 1002, WIRE_RECORD));
	parent.head->parent++; /* it has died: nobody kills */
	ck_assert(!table_has_lost(&keeper) && !table_has_lost_on(&keeper, 7, 1001, WIRE_RECORD));
	parent.head->parent--;
	table_move(&parent, slot, TABLE_LOST, TABLE_ENDING);
	ck_assert(table_has_lost(&keeper));
	table_move(&parent, slot, TABLE_ENDING, TABLE_FREE);
	ck_assert(!table_has_lost(&keeper) && !table_in_use(&parent));
	slot = held(&keeper, 1);
	table_set_on_lost(&keeper, slot, ON_LOST_WARN);
	table_lose(&keeper, slot, TABLE_WHY_TAKEN);
	ck_assert(!table_in_use(&parent) && table_state(&parent, slot) == TABLE_FREE);
}

TEST(other_time_namespace)
{
	int64_t now = clock_now_ns();

	begin();
	held(&keeper, 1);
	table_renewed(&keeper, 0, now + 1000000 * NS_PER_MS, now + 2000000 * NS_PER_MS);
	table_pinned(&keeper, now - 5);
	new_parent();
	ck_assert_int_eq(parent.head->freeze_at_ns, now + 1000000 * NS_PER_MS);
	parent.head->time_ino++;
	new_parent();
	ck_assert_str_eq(why, "");
	ck_assert_int_eq(seen(1), TABLE_UNSURE);
	ck_assert_int_le(parent.head->freeze_at_ns, clock_now_ns()); /* nothing is sure by a clock that nobody knows */
	ck_assert_int_eq(table_pins_until(&parent, 12345), 12345);
	ck_assert_ptr_nonnull(entry_of(take_up(), 1));
}

TEST(no_room)
{
	struct table_lease lease = {.token = token_of(1), .name = "n", .path = "/p", .range = asked(0)};
	unsigned count = 0;
	uint32_t slot, first;
	int ret;

	full = true;
	ck_assert_int_eq(table_open(&parent, dir_fd, why, sizeof(why)), -ENOSPC);
	full = false;
	begin();
	first = held(&keeper, 1);
	full = true; /* what is there needs no room */
	new_keeper();
	full = false;
	ck_assert_ptr_nonnull(entry_of(take_up(), 1));
	full = true;
	for (ret = 0; ret == 0; count++)
		ret = table_ask(&keeper, &lease, &slot);
	ck_assert_int_eq(ret, -ENOSPC);
	ck_assert_uint_gt(count, 100); /* what there is room for is used */
	lease.path = path_of(5);
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), -ENOSPC);
	/* Everything else goes on, and nothing needs room. */
	table_doubt(&keeper, first);
	table_hold(&keeper, first);
	table_share(&keeper, first);
	table_return(&keeper, first);
	table_vacate(&keeper, first);
	lease.path = "/p";
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), 0);
	ck_assert_uint_eq(slot, first);
	full = false;
	ck_assert_int_eq(table_ask(&keeper, &lease, &slot), 0);
}

/* --- parent and keeper --- */

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

TEST(callers_of_two_stores)
{
	const struct table_caller one = {.pid = 11, .dev = 1, .ino = 2}, two = {.pid = 12, .member = 1, .ino = 3},
				  three = {.pid = 13, .dev = 1, .ino = 2};

	begin();
	table_renewed(&keeper, 0, 100, 200);
	table_renewed(&keeper, 1, 150, 250);
	table_add_caller(&keeper, &one);
	table_add_caller(&keeper, &two);
	ck_assert(table_has_caller(&parent, &one) && table_has_caller(&parent, &two));
	table_renewed(&keeper, 0, 300, 400);
	table_add_caller(&keeper, &three);
	ck_assert(!table_has_caller(&parent, &one));
	ck_assert(table_has_caller(&parent, &two) && table_has_caller(&parent, &three));
	ck_assert_uint_eq(parent.head->caller_count, 2);
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
