/*
 * keeper/guard/table_rescue.c: a table of another version of dflock, or of another layout. What each version promises of its table
 * (keeper/guard/table.h) is enough to end the holders of its leases; a table that cannot be one is not believed.
 */
#include "keeper/guard/table_file.h"
#include "keeper/guard/table_sums.h"
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

START_TEST(other_version)
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
	ck_assert_int_eq(slots_freeze_at_ns(&parent), freeze_at);
	ck_assert_int_eq(slots_deadline_ns(&parent), deadline);
	ck_assert_int_eq(table_pins_until(&parent, INT64_MAX), pins);
	ck_assert_int_eq(table_on_lost(&parent, 4), ON_LOST_KILL);
	ck_assert_int_eq(table_on_lost(&parent, 5), ON_LOST_FREEZE);
	ck_assert_int_eq(parent.head->signalled[0].pid, getpid());
	ck_assert_int_eq(parent.head->signalled[0].noted, TABLE_KIN);
	check_lost(6);
}
END_TEST

/* cp -a of the runtime directory of a keeper that runs. */
START_TEST(copy_of_a_table)
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
END_TEST

/* --- dflock 0.1: numbers of its file "fence", as compiled from its sources --- */

enum { FENCE_BYTES = 98416, FENCE_SLOT = 72, FENCE_FREEZE_AT = 64, FENCE_USED = 80, FENCE_SIGNALLED = 8288 };

/* Its lease i has the state i, as of 0.1 (0: free). */
static void make_fence(uint32_t count, int64_t freeze_at)
{
	static unsigned char file[FENCE_BYTES + 16 * FENCE_SLOT];
	const struct table_signalled note = {.pid = getpid(), .noted = TABLE_KIN, .started = family_started(getpid())};

	memset(file, 0, sizeof(file));
	memcpy(file, "dlfence5", 8);
	memcpy(file + 8, parent.head->boot, CLOCK_BOOT_BYTES);
	memcpy(file + FENCE_FREEZE_AT, &freeze_at, 8);
	memcpy(file + FENCE_USED, &count, 4);
	memcpy(file + FENCE_SIGNALLED + 16, &note, 16);
	for (uint32_t i = 0; i < count; i++) {
		unsigned char *slot = file + FENCE_BYTES + i * FENCE_SLOT;
		const struct holders_file of = file_of(i);

		memcpy(slot, &i, 4);
		memcpy(slot + 16, &of, sizeof(of));
		slot[64] = i == 4 ? ON_LOST_KILL : ON_LOST_FREEZE;
	}
	write_file("fence", file, FENCE_BYTES + (size_t)count * FENCE_SLOT, 0600);
	write_file("journal", "x", 1, 0600);
}

START_TEST(of_0_1)
{
	begin();
	make_fence(6, clock_now_ns() + 12345);
	new_parent();
	ck_assert_ptr_nonnull(strstr(why, "dflock 0.1 was killed"));
	ck_assert_ptr_nonnull(strstr(why, "leases (5) are ended"));
	ck_assert(exists("fence.bad") && !exists("fence") && !exists("journal"));
	ck_assert_int_le(slots_freeze_at_ns(&parent), clock_now_ns());
	ck_assert_int_eq(table_pins_until(&parent, INT64_MAX) <= clock_now_ns() + 12345, true);
	ck_assert_int_eq(table_on_lost(&parent, 3), ON_LOST_KILL);
	ck_assert_int_eq(parent.head->signalled[0].pid, getpid());
	check_lost(5);
}
END_TEST

/* A keeper of this version was killed before that of 0.1 began. */
START_TEST(of_0_1_beside_a_table)
{
	begin_with_leases();
	make_fence(6, clock_now_ns());
	new_parent();
	for (unsigned n = 3; n < 6; n++)
		ck_assert(is_whole_file(n, TABLE_UNSURE));
	ck_assert_uint_eq(take_up()->count, 2);
	ck_assert_uint_eq(take_up()->damaged, 5);
}
END_TEST

START_TEST(of_0_1_that_cannot_be)
{
	begin();
	if (_i == 0)
		parent.head->boot[0] ^= 1;
	make_fence(6, 1);
	if (_i == 0)
		parent.head->boot[0] ^= 1;
	else if (_i == 1)
		write_file("fence", "dlfence4", 8, 0600);
	else
		ck_assert_int_eq(fchmodat(dir_fd, "fence", 0620, 0), 0);
	new_parent();
	ck_assert_int_eq(strstr(why, "nothing is taken from it") != NULL,
			 _i != 0); /* 0: of another boot, as after each start */
	check_nothing_taken();
	ck_assert(!exists("fence"));
}
END_TEST

START_TEST(other_version_without_leases)
{
	const unsigned char states[OTHER_COUNT] = {TABLE_FREE, TABLE_ASKED, TABLE_RETURNED};

	begin_with_host();
	make_other_version(states);
	new_parent();
	ck_assert_str_eq(why, ""); /* as after every upgrade */
	check_nothing_taken();
	ck_assert(!exists(TABLE_BAD_NAME));
}
END_TEST

/* The same version number for another layout, as while one works on it. */
START_TEST(other_layout)
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
END_TEST

START_TEST(other_version_that_cannot_be)
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
END_TEST

START_TEST(other_version_has_too_many)
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
END_TEST

static void add_tests(TCase *tests)
{
	tcase_add_test(tests, other_version);
	tcase_add_test(tests, copy_of_a_table);
	tcase_add_test(tests, of_0_1);
	tcase_add_test(tests, of_0_1_beside_a_table);
	tcase_add_loop_test(tests, of_0_1_that_cannot_be, 0, 3);
	tcase_add_test(tests, other_version_without_leases);
	tcase_add_test(tests, other_layout);
	tcase_add_loop_test(tests, other_version_that_cannot_be, 0, 2);
	tcase_add_test(tests, other_version_has_too_many);
}

int main(void)
{
	return run_tests("table_version", add_tests, 120);
}
