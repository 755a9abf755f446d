/*
 * keeper/guard/table_open.c: a table of another version of dflock, or of another layout. What each version promises of its table
 * (keeper/guard/table.h) is enough to end the holders of its leases; a table that cannot be one is not believed.
 */
#include "keeper/guard/table_file.h"
#include "keeper/kernel/family.h"
#include "tests/unit/rescue_fixture.h"

enum { OTHER_HEAD = 20000, OTHER_SLOT = 200, OTHER_COUNT = 9 };

/* A table of a version that keeps to the promise and to nothing else. State of slot i: states[i]; its lease is number i. */
static void make_other_version(const unsigned char states[OTHER_COUNT])
{
	static unsigned char file[OTHER_HEAD + OTHER_COUNT * OTHER_SLOT + 60]; /* and a piece that is no slot */
	static struct table_head head;

	memset(file, 0xaa, sizeof(file));
	memcpy(&head, parent.head, TABLE_HEAD_PROMISED);
	head.version = 77;
	head.head_bytes = OTHER_HEAD;
	head.slot_bytes = OTHER_SLOT;
	head.signalled_at = 10000;
	head.signalled_count = 2;
	head.sum = table_head_sum(&head);
	memcpy(file, &head, TABLE_HEAD_PROMISED);
	memset(file + 10000, 0, 2 * sizeof(struct table_signalled));
	memcpy(file + 10016,
	       &(struct table_signalled){.pid = getpid(), .noted = TABLE_KIN, .started = family_started(getpid())}, 16);
	for (unsigned i = 0; i < OTHER_COUNT; i++) {
		const struct holders_file of = file_of(i);
		const struct table_slot slot = {.word = 0xabcdef00 | states[i],
						.dev = of.dev,
						.ino = of.ino,
						.kernel_dev = of.kernel_dev,
						.kernel_ino = of.kernel_ino,
						.on_lost = i == 5   ? ON_LOST_KILL
							   : i == 6 ? 1000
								    : ON_LOST_FREEZE};

		memcpy(file + OTHER_HEAD + i * OTHER_SLOT, &slot, TABLE_SLOT_PROMISED);
	}
	table_close(&parent);
	write_file(TABLE_NAME, file, sizeof(file), 0600);
}

TEST(other_version)
{
	const unsigned char states[OTHER_COUNT] = {TABLE_FREE, TABLE_HELD, TABLE_UNSURE, TABLE_LOST,    TABLE_ENDING,
						   TABLE_HELD, 200,        TABLE_ASKED,  TABLE_RETURNED};
	int64_t freeze_at, deadline, pins;

	begin_with_host();
	freeze_at = parent.head->freeze_at_ns;
	deadline = parent.head->deadline_ns;
	pins = parent.head->pins_until_ns;
	make_other_version(states);
	new_parent();
	ck_assert_ptr_nonnull(strstr(why, "has version 77, this keeper knows version 1: kept as leases.bad"));
	ck_assert_ptr_nonnull(strstr(why, "leases (6) are ended"));
	ck_assert(exists(TABLE_BAD_NAME));
	/* What the keeper of that version has promised its callers stands. */
	ck_assert_int_eq(slots_freeze_at_ns(&parent, 0), freeze_at);
	ck_assert_int_eq(parent.head->deadline_ns, deadline);
	ck_assert_int_eq(table_pins_until(&parent, INT64_MAX), pins);
	ck_assert_int_eq(table_on_lost(&parent, 4), ON_LOST_KILL);
	ck_assert_int_eq(table_on_lost(&parent, 5), ON_LOST_FREEZE);
	ck_assert_int_eq(parent.head->signalled[0].pid, getpid());
	ck_assert_int_eq(parent.head->signalled[0].noted, TABLE_KIN);
	check_lost(6);
}

/* cp -a of the runtime directory of a keeper that runs. */
TEST(copy_of_a_table)
{
	void *bytes;

	begin_with_host();
	bytes = malloc(table_file_bytes(&parent));
	memcpy(bytes, parent.head, table_file_bytes(&parent));
	unlinkat(dir_fd, TABLE_NAME, 0);
	write_file(TABLE_NAME, bytes, table_file_bytes(&parent), 0600);
	free(bytes);
	new_parent();
	ck_assert_ptr_nonnull(strstr(why, "is a copy of that of the host " HOST));
	ck_assert_str_eq(parent.head->twin, HOST);
	ck_assert(exists(TABLE_BAD_NAME));
	check_nothing_taken();
	new_parent();
	ck_assert_str_eq(why, "");
}

TEST(other_version_without_leases)
{
	const unsigned char states[OTHER_COUNT] = {TABLE_FREE, TABLE_ASKED, TABLE_RETURNED};

	begin_with_host();
	make_other_version(states);
	new_parent();
	ck_assert_str_eq(why, ""); /* as after every upgrade */
	check_nothing_taken();
	ck_assert(!exists(TABLE_BAD_NAME));
}

/* The same version number for another layout, as while one works on it. */
TEST(other_layout)
{
	begin_with_host();
	parent.head->slot_bytes =
		sizeof(struct table_slot) / 2; /* every second one is a piece of text numbers and sums */
	parent.head->sum = table_head_sum(parent.head);
	parent.slots[0].sum = parent.slots[1].sum = 0;
	memset(&parent.slots[0].to, 0, 64);
	memset(&parent.slots[1].to, 0, 64);
	new_parent();
	check_lost(2);
}

TEST_EACH(other_version_that_cannot_be, 2)
{
	begin_with_host();
	parent.head->version++;
	if (_i == 0)
		parent.head->slot_bytes = TABLE_SLOT_PROMISED - 1;
	else
		parent.head->head_bytes = TABLE_HEAD_PROMISED - 1;
	parent.head->sum = table_head_sum(parent.head);
	new_parent();
	ck_assert_ptr_nonnull(strstr(why, "nothing is taken from it"));
	check_nothing_taken();
}

TEST(other_version_has_too_many)
{
	struct table_slot *slots;
	struct table_head *head;
	size_t bytes = TABLE_HEAD_BYTES + (TABLE_SLOTS + 1) * sizeof(*slots);

	begin_with_host();
	head = calloc(1, bytes);
	memcpy(head, parent.head, TABLE_HEAD_PROMISED);
	head->version++;
	head->sum = table_head_sum(head);
	slots = (struct table_slot *)((char *)head + TABLE_HEAD_BYTES);
	for (size_t i = 0; i <= TABLE_SLOTS; i++)
		slots[i].word = TABLE_HELD;
	write_file(TABLE_NAME, head, bytes, 0600);
	free(head);
	table_text_close(&keeper);
	table_close(&parent);
	ck_assert_int_eq(table_open(&parent, dir_fd, why, sizeof(why)), -EFBIG);
	ck_assert(exists(TABLE_NAME) && !exists(TABLE_NEW_NAME));
}
