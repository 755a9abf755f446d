/* Tables of leases that no keeper can go on with, and what must become of the leases that they show. */
#ifndef DFLOCK_TESTS_UNIT_RESCUE_FIXTURE_H
#define DFLOCK_TESTS_UNIT_RESCUE_FIXTURE_H

#include "keeper/guard/slots.h"
#include "tests/unit/table_fixture.h"

static inline bool exists(const char *name) { return faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0; }

static inline void write_file(const char *name, const void *data, size_t bytes, mode_t mode)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

	ck_assert_int_eq(write(fd, data, bytes), (ssize_t)bytes);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
}

static inline void begin_with_leases(void)
{
	begin();
	held(&keeper, 1);
	held(&keeper, 2);
}

static inline void check_nothing_taken(void)
{
	ck_assert(!table_in_use(&parent));
	ck_assert_uint_eq(take_up()->count, 0);
	ck_assert_uint_eq(take_up()->damaged, 0);
}

static inline void begin_with_host(void)
{
	char host[STORE_HOST_BYTES] = HOST;
	int64_t now = clock_now_ns();

	begin_with_leases();
	table_host(&keeper, host);
	table_renewed(&keeper, 0, now + 100000 * NS_PER_MS, now + 200000 * NS_PER_MS);
	table_pinned(&keeper, now + 5);
}

/* Is the whole file of lease n in the parent's sight, and the slot in this state? */
static inline bool is_whole_file(unsigned n, enum table_state state)
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
static inline void check_lost(unsigned count)
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
static inline bool nothing_is_sure(void)
{
	return slots_freeze_at_ns(&parent, 0) > 0 && slots_freeze_at_ns(&parent, 0) <= clock_now_ns() &&
	       parent.head->deadline_ns <= clock_now_ns() && table_pins_until(&parent, 12345) == 12345;
}

#endif
