/*
 * keeper/guard/table_open.c: files that no keeper can go on with. The holders of leases that such a file still
 * shows are ended, wherever the damage is, and whenever the parent dies meanwhile; nothing is taken from any other file.
 */
#include <sys/mman.h>

#include "keeper/guard/table_file.h"
#include "keeper/kernel/family.h"
#include "tests/unit/rescue_fixture.h"

/* A parent can die at each of these, too. */
int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
	own_store();
	return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, 0);
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
	own_store();
	return (int)syscall(SYS_linkat, from_fd, from, to_fd, to, flags);
}

int unlinkat(int fd, const char *name, int flags)
{
	own_store();
	return (int)syscall(SYS_unlinkat, fd, name, flags);
}

/* --- a table of another boot, and files that are no tables --- */

TEST(other_boot)
{
	begin_with_leases();
	parent.head->boot[3] ^= 1;
	parent.head->sum = table_head_sum(parent.head);
	new_parent();
	ck_assert_str_eq(why, "");
	check_nothing_taken();
	ck_assert(!exists(TABLE_BAD_NAME));
}

static void put_foreign(const char *name, int kind)
{
	static char text[70000];

	unlinkat(dir_fd, name, 0);
	memset(text, 'x', sizeof(text));
	if (kind == 0)
		write_file(name, text, sizeof(text), 0600);
	else if (kind == 1)
		write_file(name, text, 5, 0600);
	else if (kind == 2)
		write_file(name, "", 0, 0666);
	else if (kind == 3)
		ck_assert_int_eq(symlinkat("elsewhere", dir_fd, name), 0);
	else if (kind == 4)
		ck_assert_int_eq(mkfifoat(dir_fd, name, 0600), 0);
}

TEST_EACH(foreign_files, 5)
{
	begin();
	put_foreign(TABLE_NAME, _i);
	put_foreign(TABLE_TEXT_NAME, _i);
	new_parent();
	ck_assert_ptr_nonnull(strstr(why, "nothing is taken from it"));
	check_nothing_taken();
	ck_assert(exists(TABLE_BAD_NAME));
	held(&keeper, 1);
	ck_assert_int_eq(exists("elsewhere"), false);
	put_foreign(TABLE_TEXT_NAME, _i); /* while there are leases */
	new_parent();
	ck_assert_str_eq(why, "");
	ck_assert_uint_eq(take_up()->damaged, 1);
}

/* A table with leases that other users could have written, or have. */
TEST_EACH(foreign_owners, 2)
{
	begin_with_leases();
	if (_i == 0)
		ck_assert_int_eq(fchmodat(dir_fd, TABLE_NAME, 0620, 0), 0);
	else if (geteuid() == 0)
		ck_assert_int_eq(fchownat(dir_fd, TABLE_NAME, 12345, 12345, 0), 0);
	else
		return;
	parent.head->magic = 0;
	new_parent();
	ck_assert_ptr_nonnull(strstr(why, "nothing is taken from it"));
	check_nothing_taken();
	ck_assert(exists(TABLE_BAD_NAME));
}

TEST(cannot_put_aside)
{
	begin();
	put_foreign(TABLE_NAME, 0);
	ck_assert_int_eq(mkdirat(dir_fd, TABLE_BAD_NAME, 0700), 0);
	table_text_close(&keeper);
	table_close(&parent);
	ck_assert_int_eq(table_open(&parent, dir_fd, why, sizeof(why)), -EISDIR);
	ck_assert(!exists(TABLE_NEW_NAME));
}

/* --- a damaged head --- */

TEST(damaged_head)
{
	for (size_t at = 0; at < offsetof(struct table_head, sum) + sizeof(uint64_t); at++) {
		begin_with_host();
		((char *)parent.head)[at] ^= (char)0xff;
		new_parent();
		ck_assert_ptr_nonnull(strstr(why, "is damaged: kept as leases.bad"));
		ck_assert(exists(TABLE_BAD_NAME) && !exists(TABLE_NEW_NAME));
		ck_assert(nothing_is_sure());
		check_lost(2);
	}
}

/* All of it, as if zeros or nonsense had been written over the head. */
TEST_EACH(head_gone, 2)
{
	begin_with_host();
	memset(parent.head, _i, sizeof(*parent.head));
	new_parent();
	ck_assert_ptr_nonnull(strstr(why, "leases (2) are ended"));
	ck_assert(nothing_is_sure());
	check_lost(2);
}

/* One slot that stands shows that the others are of this boot, too. */
TEST(damaged_head_and_slot)
{
	begin_with_leases();
	parent.head->magic++;
	parent.slots[0].fence++; /* lease 1 */
	new_parent();
	check_lost(2);
}

TEST(damaged_head_and_all_slots)
{
	begin_with_leases();
	parent.head->magic++;
	parent.slots[0].fence++;
	parent.slots[1].sum++;
	new_parent();
	ck_assert_ptr_nonnull(strstr(why, "nothing is taken from it"));
	check_nothing_taken();
}

/* It cannot be seen from such a head: from the slots it can. */
TEST(damaged_head_of_another_boot)
{
	begin_with_leases();
	parent.head->boot[5]++;
	for (int i = 0; i < 2; i++)
		parent.slots[i].sum = table_slot_sum(&parent.slots[i], 1, parent.boot + 1);
	new_parent();
	ck_assert_ptr_nonnull(strstr(why, "nothing is taken from it"));
	check_nothing_taken();
}

TEST(damaged_head_without_leases)
{
	uint32_t slot;

	begin();
	ask(&keeper, 1);
	table_return(&keeper, held(&keeper, 2));
	slot = held(&keeper, 3);
	table_return(&keeper, slot);
	table_vacate(&keeper, slot);
	parent.head->magic++;
	new_parent();
	ck_assert_str_eq(why, ""); /* it was a table of this boot, and no process relies on anything */
	check_nothing_taken();
}

/* What the parent was about to do anyway. */
TEST(damaged_head_and_lost_lease)
{
	begin_with_leases();
	table_lose(&keeper, 0, TABLE_WHY_TAKEN);
	table_lose(&keeper, 1, TABLE_WHY_TAKEN);
	table_move(&parent, 1, TABLE_LOST, TABLE_ENDING);
	parent.head->magic++;
	new_parent();
	check_lost(2);
}

TEST(rules_count)
{
	uint32_t kill, warn;

	begin();
	kill = held(&keeper, 1);
	warn = held(&keeper, 2);
	table_set_on_lost(&keeper, kill, ON_LOST_KILL);
	table_set_on_lost(&keeper, warn, ON_LOST_WARN);
	parent.head->magic++;
	new_parent();
	ck_assert(slots_any(&parent, SLOTS_SURE_UNTIL | SLOTS_AS(ON_LOST_KILL)));
	ck_assert_uint_eq(take_up()->damaged, 2);
	table_lose_damaged(&keeper);
	ck_assert(is_whole_file(1, TABLE_LOST));
	ck_assert(!slots_any(&parent, SLOTS_AS(ON_LOST_WARN) | ~(SLOTS_IN(TABLE_FREE) | SLOTS_AS(ON_LOST_KILL))));
}

/* Locks in both spaces. */
TEST(claims_both_spaces)
{
	struct claims claims = {0};
	size_t next;

	begin_with_leases();
	parent.head->magic++;
	new_parent();
	ck_assert_int_eq(slots_claims(&parent, SLOTS_SURE_UNTIL, &claims), 0);
	ck_assert_uint_eq(claims_count(&claims), 4);
	for (size_t file = 0; file < 2; file++)
		for (int space = 0; space < WIRE_SPACES; space++) {
			next = SIZE_MAX;
			ck_assert_ptr_nonnull(claims_next(&claims, file, space, 1000000, 1000001, &next));
		}
	claims_free(&claims);
	take_up();
	table_lose_damaged(&keeper);
	parent.head->parent = getppid();
	ck_assert(table_has_lost_on(&keeper, 7, 1001, WIRE_FLOCK) && table_has_lost_on(&keeper, 7, 1001, WIRE_RECORD));
}

/* Times that no keeper can have written, in a head that is whole otherwise: the leases are confirmed, and not sure before. */
TEST_EACH(times_that_cannot_be, 5)
{
	const int64_t hour = 3600000 * NS_PER_MS, now = clock_now_ns();
	const struct {
		int64_t freeze_at, deadline;
	} times[] = {{0, now + hour / 2},
		     {-1, now + hour / 2},
		     {now + hour / 2, now + hour / 4},
		     {now + hour, now + 2 * hour},
		     {0, 0}};

	begin_with_host();
	parent.head->freeze_at_ns = times[_i].freeze_at;
	parent.head->deadline_ns = times[_i].deadline;
	new_parent();
	ck_assert_str_eq(why, "");
	ck_assert(nothing_is_sure());
	ck_assert_int_eq(seen(1), TABLE_UNSURE);
	ck_assert_uint_eq(take_up()->count, 2);
	ck_assert_uint_eq(take_up()->damaged, 0);
}

/* --- what else is in it, and what may fail --- */

static void put_signalled(uint32_t i, pid_t pid, uint32_t noted, uint64_t started)
{
	parent.head->signalled[i] = (struct table_signalled){.pid = pid, .noted = noted, .started = started};
}

/* A note that names a process that runs is gone on with. Any other one could make the parent end a process by mistake. */
TEST(signalled)
{
	begin_with_leases();
	put_signalled(3, getpid(), TABLE_OURS, family_started(getpid()) + 1);
	put_signalled(4, getppid(), TABLE_OURS, family_started(getppid()));
	put_signalled(5, getpid(), 99, family_started(getpid()));
	put_signalled(6, -1, TABLE_OURS, 0);
	put_signalled(7, INT32_MAX, TABLE_OURS, 0);
	parent.head->magic++;
	new_parent();
	ck_assert_int_eq(parent.head->signalled[0].pid, getppid());
	ck_assert_int_eq(parent.head->signalled[0].noted, TABLE_OURS);
	for (int i = 1; i < TABLE_SIGNALLED; i++)
		ck_assert_int_eq(parent.head->signalled[i].pid, 0);
}

/* That no copy can be kept is no reason to let holders go on. */
TEST(no_copy)
{
	begin_with_leases();
	ck_assert_int_eq(mkdirat(dir_fd, TABLE_BAD_NAME, 0700), 0);
	parent.head->magic++;
	new_parent();
	ck_assert_ptr_nonnull(strstr(why, "it could not be kept as leases.bad"));
	check_lost(2);
}

TEST(no_room_for_it)
{
	begin_with_leases();
	parent.head->magic++;
	table_text_close(&keeper);
	table_close(&parent);
	full = true;
	ck_assert_int_eq(table_open(&parent, dir_fd, why, sizeof(why)), -ENOSPC);
	ck_assert(!exists(TABLE_NEW_NAME));
	full = false;
	new_parent();
	check_lost(2);
}

static void opens(void) { ck_assert_int_eq(table_open(&parent, dir_fd, why, sizeof(why)), 0); }

TEST(parent_killed_at_every_step)
{
	int step = 0;

	for (bool more = true; more; step++) {
		begin_with_leases();
		parent.head->magic++;
		table_text_close(&keeper);
		table_close(&parent);
		more = killed_in(opens, step);
		new_parent();
		check_lost(2);
	}
	ck_assert_int_gt(step, 8);
}
