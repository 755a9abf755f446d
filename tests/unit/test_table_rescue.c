/*
 * keeper/guard/table_open.c: files that no keeper can go on with, and tables of other versions. The holders of leases that such a file still
 * shows are ended, wherever the damage is, and whenever the parent dies meanwhile; nothing is taken from any other file. What each version
 * promises of its table (keeper/guard/table.h) is enough for that; a table that cannot be one is not believed.
 */
#include <sys/mman.h>

#include "keeper/guard/slots.h"
#include "keeper/guard/table_file.h"
#include "keeper/kernel/family.h"
#include "tests/unit/table_fixture.h"

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

static bool exists(const char *name) { return faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0; }

static void write_file(const char *name, const void *data, size_t bytes, mode_t mode)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	ck_assert_int_eq(write(fd, data, bytes), (ssize_t)bytes);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
}

static void check_nothing_taken(void)
{
	ck_assert(!table_in_use(&parent));
	ck_assert_uint_eq(take_up()->count, 0);
	ck_assert_uint_eq(take_up()->damaged, 0);
}

static void begin_with_leases(void)
{
	char host[STORE_HOST_BYTES] = HOST;
	int64_t now = clock_now_ns();
	begin();
	held(&keeper, 1);
	held(&keeper, 2);
	table_host(&keeper, host);
	table_renewed(&keeper, 0, now + 100000 * NS_PER_MS, now + 200000 * NS_PER_MS);
	table_pinned(&keeper, now + 5);
}

/* Is the whole file of lease n in the parent's sight, and the slot in this state? */
static bool is_whole_file(unsigned n, enum table_state state)
{
	const struct holders_file file = file_of(n);
	bool found = false;

	for (uint32_t i = 0; i < table_used(&parent); i++) {
		struct table_view view;

		table_view(&parent, i, &view);
		found = found || (view.state == state && view.file.dev == file.dev && view.file.ino == file.ino &&
				  view.file.kernel_dev == file.kernel_dev && view.file.kernel_ino == file.kernel_ino &&
				  view.any_space && view.from == 0 && view.to == WIRE_EOF);
	}
	return found;
}

/* The holders of leases 1 to `count` are stopped, and ended when the pins are over; and the next keeper is a new host. */
static void check_lost(unsigned count)
{
	char host[STORE_HOST_BYTES] = OTHER;

	for (unsigned n = 1; n <= count; n++)
		ck_assert(is_whole_file(n, TABLE_UNSURE));
	ck_assert_uint_eq(table_used(&parent), count);
	ck_assert_uint_eq(take_up()->count, 0);
	ck_assert_uint_eq(take_up()->damaged, count);
	table_host(&keeper, host);
	ck_assert_str_eq(host, OTHER);
	new_parent(); /* dies meanwhile, and so does the keeper */
	ck_assert_str_eq(why, "");
	ck_assert_uint_eq(take_up()->damaged, count);
	table_lose_damaged(&keeper);
	for (unsigned n = 1; n <= count; n++)
		ck_assert(is_whole_file(n, TABLE_LOST));
	new_keeper();
	ck_assert_uint_eq(take_up()->damaged, 0);
}

/* Are holders stopped now, and pins waited for as long as any may last? */
static bool nothing_is_sure(void)
{
	return slots_freeze_at_ns(&parent, 0) > 0 && slots_freeze_at_ns(&parent, 0) <= clock_now_ns() &&
	       parent.head->deadline_ns <= clock_now_ns() && table_pins_until(&parent, 12345) == 12345;
}

/* --- a head that is damaged, in other ways than byte by byte --- */

static void sum_head(void) { parent.head->sum = table_head_sum(parent.head); }

static void other_boot(void)
{
	parent.head->boot[3] ^= 1;
	sum_head();
}

static void head_of_zeros(void) { memset(parent.head, 0, sizeof(*parent.head)); }

/* One slot that stands shows that the others are of this boot, too. */
static void one_slot(void)
{
	parent.head->magic++;
	parent.slots[0].fence++;
}

static void all_slots(void)
{
	one_slot();
	parent.slots[1].sum++;
}

/* It cannot be seen from such a head: from the slots it can. */
static void slots_of_another_boot(void)
{
	parent.head->boot[5]++;
	for (int i = 0; i < 2; i++)
		parent.slots[i].sum = table_slot_sum(&parent.slots[i], 1, parent.boot + 1);
}

/* What the parent was about to do anyway. */
static void lost_leases(void)
{
	table_lose(&keeper, 0, TABLE_WHY_TAKEN);
	table_lose(&keeper, 1, TABLE_WHY_TAKEN);
	table_move(&parent, 1, TABLE_LOST, TABLE_ENDING);
	parent.head->magic++;
}

/* That no copy can be kept is no reason to let holders go on. */
static void no_copy(void)
{
	ck_assert_int_eq(mkdirat(dir_fd, TABLE_BAD_NAME, 0700), 0);
	parent.head->magic++;
}

/* The same version number for another layout, as while one works on it. */
static void other_layout(void)
{
	parent.head->slot_bytes =
		sizeof(struct table_slot) / 2; /* every second one is a piece of text numbers and sums */
	sum_head();
	parent.slots[0].sum = parent.slots[1].sum = 0;
	memset(&parent.slots[0].to, 0, 64);
	memset(&parent.slots[1].to, 0, 64);
}

static void of_sizes(uint32_t head_bytes, uint32_t slot_bytes)
{
	parent.head->version++;
	parent.head->head_bytes = head_bytes;
	parent.head->slot_bytes = slot_bytes;
	sum_head();
}

static void slots_too_small(void) { of_sizes(parent.head->head_bytes, TABLE_SLOT_PROMISED - 1); }
static void head_too_small(void) { of_sizes(TABLE_HEAD_PROMISED - 1, parent.head->slot_bytes); }

/* Other users could have written it, or have. */
static void writable(void)
{
	ck_assert_int_eq(fchmodat(dir_fd, TABLE_NAME, 0620, 0), 0);
	parent.head->magic = 0;
}

static void of_another_user(void)
{
	ck_assert_int_eq(fchownat(dir_fd, TABLE_NAME, 12345, 12345, 0), 0);
	parent.head->magic = 0;
}

static const struct {
	void (*spoil)(void);
	const char *why;
	bool lost; /* else nothing is taken */
} spoilt[] = {
	{other_boot, "", false},
	{head_of_zeros, "leases (2) are ended", true},
	{one_slot, "leases (2) are ended", true},
	{all_slots, "nothing is taken from it", false},
	{slots_of_another_boot, "nothing is taken from it", false},
	{lost_leases, "leases (2) are ended", true},
	{no_copy, "it could not be kept as leases.bad", true},
	{other_layout, "leases (2) are ended", true},
	{slots_too_small, "nothing is taken from it", false},
	{head_too_small, "nothing is taken from it", false},
	{writable, "nothing is taken from it", false},
	{of_another_user, "nothing is taken from it", false},
};

TEST_EACH(spoilt_in_a_way, ROWS(spoilt))
{
	if (spoilt[_i].spoil == of_another_user && geteuid() != 0)
		return;
	begin_with_leases();
	spoilt[_i].spoil();
	new_parent();
	ck_assert_msg(*spoilt[_i].why ? strstr(why, spoilt[_i].why) != NULL : !*why, "%s", why);
	ck_assert_int_eq(exists(TABLE_BAD_NAME), *spoilt[_i].why != '\0');
	if (spoilt[_i].lost)
		check_lost(2);
	else
		check_nothing_taken();
}

TEST(damaged_head)
{
	for (size_t at = 0; at < offsetof(struct table_head, sum) + sizeof(uint64_t); at++) {
		begin_with_leases();
		((char *)parent.head)[at] ^= (char)0xff;
		new_parent();
		ck_assert_ptr_nonnull(strstr(why, "is damaged: kept as leases.bad"));
		ck_assert(exists(TABLE_BAD_NAME) && !exists(TABLE_NEW_NAME));
		ck_assert(nothing_is_sure());
		check_lost(2);
	}
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

/* Locks in both spaces count, and what the rules say of them. */
TEST(what_is_claimed)
{
	struct claims claims = {0};

	begin_with_leases();
	table_set_on_lost(&keeper, 0, ON_LOST_KILL);
	table_set_on_lost(&keeper, 1, ON_LOST_WARN);
	parent.head->magic++;
	new_parent();
	ck_assert(slots_any(&parent, SLOTS_SURE_UNTIL | SLOTS_AS(ON_LOST_KILL)));
	ck_assert_int_eq(slots_claims(&parent, SLOTS_SURE_UNTIL, &claims), 0);
	ck_assert_uint_eq(claims_count(&claims), 4);
	for (size_t file = 0; file < 2; file++)
		for (int space = 0; space < WIRE_SPACES; space++) {
			size_t next = SIZE_MAX;

			ck_assert_ptr_nonnull(claims_next(&claims, file, space, 1000000, 1000001, &next));
		}
	claims_free(&claims);
	ck_assert_uint_eq(take_up()->damaged, 2);
	table_lose_damaged(&keeper);
	ck_assert(is_whole_file(1, TABLE_LOST));
	ck_assert(!slots_any(&parent, SLOTS_AS(ON_LOST_WARN) | ~(SLOTS_IN(TABLE_FREE) | SLOTS_AS(ON_LOST_KILL))));
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

	begin_with_leases();
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

/* --- files that are no tables --- */

static void check_cannot_open(int result)
{
	table_text_close(&keeper);
	table_close(&parent);
	ck_assert_int_eq(table_open(&parent, dir_fd, why, sizeof(why)), result);
	ck_assert(exists(TABLE_NAME) && !exists(TABLE_NEW_NAME));
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

TEST(cannot_put_aside)
{
	begin();
	put_foreign(TABLE_NAME, 0);
	ck_assert_int_eq(mkdirat(dir_fd, TABLE_BAD_NAME, 0700), 0);
	check_cannot_open(-EISDIR);
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

/* --- other versions --- */

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

	begin_with_leases();
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

	begin_with_leases();
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
	begin_with_leases();
	make_other_version(states);
	new_parent();
	ck_assert_str_eq(why, ""); /* as after every upgrade */
	check_nothing_taken();
	ck_assert(!exists(TABLE_BAD_NAME));
}

TEST(other_version_has_too_many)
{
	struct table_slot *slots;
	struct table_head *head;
	size_t bytes = TABLE_HEAD_BYTES + (TABLE_SLOTS + 1) * sizeof(*slots);

	begin_with_leases();
	head = calloc(1, bytes);
	memcpy(head, parent.head, TABLE_HEAD_PROMISED);
	head->version++;
	head->sum = table_head_sum(head);
	slots = (struct table_slot *)((char *)head + TABLE_HEAD_BYTES);
	for (size_t i = 0; i <= TABLE_SLOTS; i++)
		slots[i].word = TABLE_HELD;
	write_file(TABLE_NAME, head, bytes, 0600);
	free(head);
	check_cannot_open(-EFBIG);
}
