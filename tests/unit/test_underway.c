/* Calls under way: what is noted, what ends it, and what is left of it after a crash. */
#include "keeper/guard/underway.h"

#include "tests/unit/base_folder.h"
#include "wire/msg.h"

static struct underway keeper;
static int dir_fd;

static void setup(void)
{
	base_make();
	dir_fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(dir_fd, 0);
	ck_assert_int_eq(underway_open(&keeper, dir_fd), 0);
}

static void teardown(void)
{
	underway_close(&keeper);
	close(dir_fd);
	base_remove();
}
FIXTURE(setup, teardown)

static struct underway_call call_of(int32_t thread, uint64_t number)
{
	return (struct underway_call){.thread = thread,
				      .pid = thread,
				      .started = 100,
				      .number = number,
				      .dev = 1,
				      .ino = 2,
				      .space = WIRE_RECORD,
				      .from = 10,
				      .to = 20};
}

static void note(int32_t thread, uint64_t number)
{
	const struct underway_call call = call_of(thread, number);

	ck_assert_int_eq(underway_note(&keeper, &call), 0);
}

static unsigned count_in(const struct underway *underway)
{
	struct underway_call call;
	unsigned count = 0;

	for (size_t next = 0; underway_next(underway, &next, &call);)
		count++;
	return count;
}

TEST(is_on_what_it_overlaps)
{
	struct underway_call call;
	size_t next = 0;

	note(5, 1);
	ck_assert(underway_next(&keeper, &next, &call));
	ck_assert(underway_is_on(&call, 1, 2, WIRE_RECORD, 0, WIRE_EOF));
	ck_assert(underway_is_on(&call, 1, 2, WIRE_RECORD, 19, 20));
	ck_assert(!underway_is_on(&call, 1, 2, WIRE_RECORD, 20, WIRE_EOF));
	ck_assert(!underway_is_on(&call, 1, 2, WIRE_RECORD, 0, 10));
	ck_assert(!underway_is_on(&call, 1, 2, WIRE_FLOCK, 0, WIRE_EOF));
	ck_assert(!underway_is_on(&call, 1, 3, WIRE_RECORD, 0, WIRE_EOF));
	ck_assert(!underway_is_on(&call, 2, 2, WIRE_RECORD, 0, WIRE_EOF));
}

/* Thread 5, of 100, has been noted with this number: is what it begins now no earlier call, and is the entry left? */
static const struct {
	uint64_t noted, started, number;
	bool begins, left;
} begins[] = {
	{1, 100, 2, true, false},
	{1, 100, 1, true, true}, /* the same call, asked again */
	{7, 100, 6, false, true},
	{UINT64_MAX, 100, 0, true, false}, /* numbers pass zero */
	{0, 100, UINT64_MAX, false, true},
	{7, 101, 1, true, false}, /* another thread has the number of one that has ended: its calls are numbered anew */
};

TEST_EACH(a_later_call_ends_the_earlier_ones, ROWS(begins))
{
	note(5, begins[_i].noted);
	note(6, 1);
	note(5, begins[_i].noted);
	ck_assert_uint_eq(count_in(&keeper), 2);
	ck_assert_int_eq(underway_begin(&keeper, 5, begins[_i].started, begins[_i].number), begins[_i].begins);
	ck_assert_uint_eq(count_in(&keeper), 1 + begins[_i].left);
}

TEST(ends_only_what_was_seen)
{
	struct underway_call call;
	size_t next = 0;

	note(5, 1);
	ck_assert(underway_next(&keeper, &next, &call));
	ck_assert(underway_begin(&keeper, 5, 100, 2));
	note(5, 2);
	underway_end(&keeper, &call);
	ck_assert_uint_eq(count_in(&keeper), 1);
	next = 0;
	ck_assert(underway_next(&keeper, &next, &call));
	underway_end(&keeper, &call);
	ck_assert_uint_eq(count_in(&keeper), 0);
}

TEST(counts_and_finds_what_is_one_threads)
{
	struct underway_call call = call_of(7, 1);
	size_t of_user, next = 0;

	note(5, 1);
	note(6, 1);
	call.uid = 1000;
	ck_assert_int_eq(underway_note(&keeper, &call), 0);
	ck_assert_uint_eq(underway_count(&keeper, 1000, &of_user), 3);
	ck_assert_uint_eq(of_user, 1);
	ck_assert(underway_next_of(&keeper, 6, &next, &call));
	ck_assert_int_eq(call.thread, 6);
	ck_assert(!underway_next_of(&keeper, 6, &next, &call));
	underway_end(&keeper, &call);
	ck_assert_uint_eq(underway_count(&keeper, 0, &of_user), 2);
	ck_assert_uint_eq(of_user, 1);
}

TEST(room_is_bounded_and_used_again)
{
	const struct underway_call more = call_of(-1, 1);

	for (int i = 1; i <= UNDERWAY_CALLS; i++)
		note(i, 1);
	ck_assert_int_eq(underway_note(&keeper, &more), -ENOSPC);
	ck_assert(underway_begin(&keeper, 17, 100, 2));
	ck_assert_int_eq(underway_note(&keeper, &more), 0);
	ck_assert_uint_eq(count_in(&keeper), UNDERWAY_CALLS);
}

/* The next keeper, and the parent, see the same; after another boot it is void. */
TEST_EACH(outlives_the_keeper, 2)
{
	struct underway next;
	int fd = openat(dir_fd, UNDERWAY_NAME, O_RDWR | O_CLOEXEC);

	note(5, 1);
	if (_i)
		ck_assert_int_eq(pwrite(fd, "x", 1, 16), 1);
	ck_assert_int_eq(underway_open(&next, dir_fd), 0);
	ck_assert_uint_eq(count_in(&next), !_i);
	underway_close(&next);
	close(fd);
}

TEST(of_another_user_or_kind)
{
	struct underway next;

	underway_close(&keeper);
	ck_assert_int_eq(unlinkat(dir_fd, UNDERWAY_NAME, 0), 0);
	ck_assert_int_eq(mkfifoat(dir_fd, UNDERWAY_NAME, 0600), 0);
	ck_assert_int_lt(underway_open(&next, dir_fd), 0);
	ck_assert_int_eq(unlinkat(dir_fd, UNDERWAY_NAME, 0), 0);
	ck_assert_int_eq(symlinkat("/etc/passwd", dir_fd, UNDERWAY_NAME), 0);
	ck_assert_int_lt(underway_open(&next, dir_fd), 0);
	ck_assert_int_eq(unlinkat(dir_fd, UNDERWAY_NAME, 0), 0);
}

TEST(closed_there_is_nothing)
{
	struct underway closed = {.file = NULL};
	const struct underway_call call = call_of(5, 1);

	ck_assert_int_eq(underway_note(&closed, &call), -ENOSPC);
	ck_assert(underway_begin(&closed, 5, 100, 1));
	ck_assert_uint_eq(count_in(&closed), 0);
	underway_end(&closed, &call);
	underway_close(&closed);
}
