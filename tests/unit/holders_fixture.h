/*
 * For the tests of what the parent does to holders: a table of leases, and files 0 and 1 of a folder with a lease for each. The log is
 * a hook: the test has log_process() and log_about().
 */
#ifndef DFLOCK_TESTS_UNIT_HOLDERS_FIXTURE_H
#define DFLOCK_TESTS_UNIT_HOLDERS_FIXTURE_H

#include "keeper/guard/table.h"
#include "keeper/guard/table_text.h"
#include "keeper/log.h"
#include "tests/unit/base_folder.h"

#define HOLDERS 2

static int dir_fd;
static struct table table;
static uint32_t slots[HOLDERS];

void log_debug(const char *format, ...) {}
void log_event(enum event_kind kind, const char *format, ...) {}

static inline int file_open(int n)
{
	char name[2] = {(char)('0' + n), '\0'};
	int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static inline void take_slot_in(int n, unsigned member)
{
	const struct store_range all = {.space = WIRE_FLOCK, .mode = WIRE_EXCLUSIVE, .to = WIRE_EOF};
	struct table_lease lease = {.token = "0123456789abcdef0123456789abcdef",
				    .name = "n",
				    .path = "/n",
				    .range = all,
				    .member = member,
				    .on_lost = ON_LOST_FREEZE};
	int fd = file_open(n);
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	lease.file.dev = st.st_dev;
	lease.file.ino = st.st_ino;
	ck_assert_int_eq(table_ask(&table, &lease, &slots[n]), 0);
	table_grant(&table, slots[n], 1, &all, &lease.file);
	close(fd);
}

static inline void take_slot(int n) { take_slot_in(n, 0); }

static inline void holders_open(void)
{
	char why[256];

	base_make();
	dir_fd = base_open();
	ck_assert_int_eq(table_open(&table, dir_fd, why, sizeof(why)), 0);
	ck_assert_int_eq(table_text_open(&table), 0);
}

static inline void holders_close(void)
{
	table_close(&table);
	close(dir_fd);
	base_remove();
}

#endif
