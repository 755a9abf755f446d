/* keeper/guard/table_left.c, table_text.c: damaged slots and texts. What is damaged is lost, and nothing else. */
#include "tests/unit/table_fixture.h"

static bool disowned; /* all of table_disown() was done */

static void disown(void)
{
	table_disown(&keeper);
	disowned = true;
}

/* Whenever the keeper is killed: it still has the host's id, and finds out again; or nothing can be confirmed or given back. */
TEST(disowned_at_every_store)
{
	char host[STORE_HOST_BYTES];
	const struct told *told;

	disowned = false;
	for (int store = 0; !disowned; store++) {
		begin();
		strcpy(host, HOST);
		table_host(&keeper, host);
		held(&keeper, 1);
		table_return(&keeper, held(&keeper, 2));
		ask(&keeper, 3);
		killed_in(disown, store);
		new_parent();
		told = take_up();
		strcpy(host, OTHER);
		table_host(&keeper, host);
		ck_assert(strcmp(host, HOST) == 0 || (told->count == 0 && told->damaged == 1));
		ck_assert(strcmp(host, HOST) == 0 || strcmp(parent.head->twin, HOST) == 0);
	}
	ck_assert_str_eq(host, OTHER);
	ck_assert_int_le(parent.head->freeze_at_ns, clock_now_ns());
	table_lose_damaged(&keeper);
	ck_assert_int_eq(table_state(&parent, 0), TABLE_LOST);
}

/* A lease with damage in one byte: the other one is whole, and the damaged one is either as it was, or lost. */
static void check_damaged(uint64_t ino)
{
	const struct told *told;
	const struct table_entry *e;
	bool lost = false;

	new_keeper();
	told = take_up();
	ck_assert(entry_of(told, 2)->unsure && entry_of(told, 2)->fence == 102);
	e = entry_of(told, 1);
	if (!told->damaged) {
		ck_assert(e && e->unsure && e->fence == 101 && e->range.from == 6 && e->range.to == 26 &&
			  e->ino == 1001);
		return;
	}
	ck_assert_ptr_null(e);
	ck_assert(table_in_use(&parent));
	table_lose_damaged(&keeper);
	for (uint32_t i = 0; i < table_used(&parent); i++) {
		struct table_view view;

		table_view(&parent, i, &view);
		if (view.state == TABLE_LOST)
			ck_assert(view.from == 0 && view.to == WIRE_EOF);
		lost = lost || (view.state == TABLE_LOST && (!ino || view.file.ino == ino));
	}
	ck_assert(lost);
	new_keeper();
	told = take_up(); /* which is no news to the next one */
	ck_assert_uint_eq(told->damaged, 0);
	ck_assert_uint_eq(told->count, 1);
}

/* Each byte is another one, and each word has no bit, or all of them. */
TEST_EACH(damaged_at_every_byte, 3)
{
	for (size_t at = 0; at < sizeof(struct table_slot); at += _i ? 4 : 1) {
		uint32_t slot;
		char *bytes;
		bool is_ino = at >= offsetof(struct table_slot, ino) && at < offsetof(struct table_slot, ino) + 8;

		if (_i == 1 && at - offsetof(struct table_slot, word) < 8)
			continue; /* it is free */
		begin();
		slot = held(&keeper, 1);
		held(&keeper, 2);
		bytes = (char *)&keeper.slots[slot] + at;
		if (_i)
			memset(bytes, _i == 1 ? 0 : 0xff, 4);
		else
			*bytes ^= (char)0xff;
		check_damaged(is_ino ? 0 : 1001);
	}
}

TEST(damaged_text)
{
	for (size_t at = 0; at < 128; at++) {
		uint32_t slot;
		begin();
		slot = held(&keeper, 1);
		held(&keeper, 2);
		keeper.text.map[keeper.slots[slot].text_at * TEXT_UNIT + at] ^= (char)0xff;
		check_damaged(1001);
	}
}

/* Two slots that say that they have the same piece: the lease whose text it is keeps it, and no new lease writes there. */
TEST(shared_piece)
{
	uint32_t one, three;

	begin();
	one = held(&keeper, 1);
	held(&keeper, 2);
	three = held(&keeper, 3);
	table_vacate(&keeper, three);
	keeper.slots[three].text_at = keeper.slots[one].text_at;
	keeper.slots[three].text_room = keeper.slots[one].text_room;
	new_keeper();
	ck_assert_uint_eq(take_up()->count, 2);
	ck_assert_uint_eq(held(&keeper, 0), three); /* whose text is shorter */
	new_keeper();
	ck_assert_uint_eq(take_up()->count, 3);
	ck_assert_uint_eq(take_up()->damaged, 0);
}

TEST(text_area_gone)
{
	const struct told *told;

	begin();
	held(&keeper, 1);
	ask(&keeper, 2);
	ck_assert_int_eq(unlinkat(dir_fd, TABLE_TEXT_NAME, 0), 0);
	new_keeper();
	told = take_up();
	ck_assert_uint_eq(told->count, 0); /* nobody was told of what was only asked for */
	ck_assert_uint_eq(told->damaged, 1);
	held(&keeper, 3);
	table_lose_damaged(&keeper);
	ck_assert_int_eq(table_state(&parent, 0), TABLE_LOST);
	new_keeper();
	ck_assert_uint_eq(take_up()->count, 1);
}

/* That of an earlier table has the same slots, and other leases. */
TEST(text_area_of_another_table)
{
	begin();
	held(&keeper, 1);
	ck_assert_int_eq(unlinkat(dir_fd, TABLE_NAME, 0), 0);
	new_parent();
	ck_assert_uint_eq(take_up()->count, 0);
	held(&keeper, 2);
	new_parent();
	ck_assert_ptr_nonnull(entry_of(take_up(), 2));
	parent.head->id++;
	new_keeper();
	ck_assert_uint_eq(take_up()->damaged, 1);
}

TEST(head_that_says_too_much)
{
	begin();
	held(&keeper, 1);
	parent.head->used = UINT32_MAX;
	parent.head->first = UINT32_MAX;
	parent.head->caller_count = UINT32_MAX;
	memset(parent.head->host, 'h', sizeof(parent.head->host));
	memset(parent.head->incarnations, 'i', sizeof(parent.head->incarnations));
	ck_assert_uint_lt(table_used(&parent), TABLE_SLOTS); /* no slot is looked at that the file has no room for */
	ck_assert(table_in_use(&parent));
	ck_assert(!table_has_caller(&parent, &(struct table_caller){.pid = 1}));
	new_parent();
	ck_assert_str_eq(why, "");
	parent.head->used = 0; /* or too little */
	new_parent();
	ck_assert_ptr_nonnull(entry_of(take_up(), 1));
	ck_assert_str_eq(parent.head->host, "");
	ck_assert_str_eq(table_incarnation(&keeper, 0), "");
	held(&keeper, 2);
}
