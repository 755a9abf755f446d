/* keeper/kernel/probe.c: record locks. No probe takes one. */
#include "tests/unit/probe_fixture.h"

static const struct {
	short type; /* of what somebody has */
	int64_t from, to;
	int64_t want_from, want_to;
	bool shared_will_do;
	enum probe_answer answer;
} records[] = {
	{F_UNLCK, 0, WIRE_EOF, 0, WIRE_EOF, false, PROBE_FREE},
	{F_UNLCK, 0, WIRE_EOF, 0, WIRE_EOF, true, PROBE_FREE},
	{F_WRLCK, 0, WIRE_EOF, 0, WIRE_EOF, false, PROBE_IN_USE},
	{F_WRLCK, 0, WIRE_EOF, 0, WIRE_EOF, true, PROBE_IN_USE},
	{F_RDLCK, 0, WIRE_EOF, 0, WIRE_EOF, false, PROBE_IN_USE},
	{F_RDLCK, 0, WIRE_EOF, 0, WIRE_EOF, true, PROBE_SHARED},
	{F_WRLCK, 10, 20, 0, 10, false, PROBE_FREE},
	{F_WRLCK, 10, 20, 0, 11, false, PROBE_IN_USE},
	{F_WRLCK, 10, 20, 19, 20, false, PROBE_IN_USE},
	{F_WRLCK, 10, 20, 20, WIRE_EOF, false, PROBE_FREE},
	{F_WRLCK, 10, 20, 19, WIRE_EOF, false, PROBE_IN_USE},
	{F_WRLCK, 10, 11, 0, WIRE_EOF, true, PROBE_IN_USE},
	{F_RDLCK, 10, 11, 0, WIRE_EOF, true, PROBE_SHARED},
	{F_WRLCK, WIRE_EOF - 1, WIRE_EOF, 0, WIRE_EOF - 1, false, PROBE_FREE},
	{F_WRLCK, WIRE_EOF - 1, WIRE_EOF, 0, WIRE_EOF, false, PROBE_IN_USE},
};

TEST_EACH(record, 2 * ROWS(records))
{
	const bool local = _i % 2;
	int row = _i / 2, fd = record_holder(records[row].type, records[row].from, records[row].to);
	struct asked a = {.fd = open(path, O_RDONLY | O_CLOEXEC)}; /* which is enough to ask */

	ck_assert_int_eq(flock(fd, LOCK_EX), 0); /* the other space does not matter */
	start_want(&a, &(struct probe_want){.space = WIRE_RECORD,
					    .from = records[row].want_from,
					    .to = records[row].want_to,
					    .shared_will_do = records[row].shared_will_do,
					    .wait = local && records[row].answer == PROBE_FREE,
					    .local = local});
	ends(&a, records[row].answer);
	if (local)
		ck_assert_uint_eq(threads(), 0);
	close(fd);
	check_no_record();
}

/* The lock of a process counts as well as that of a description. */
TEST(record_of_a_process)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct asked a = {0};
	int fd = open_file();

	ck_assert_int_eq(fcntl(fd, F_SETLK, &lock), 0);
	start_record(&a, 0, 1, true, false);
	ends(&a, PROBE_IN_USE);
	close(fd);
}

/* A directory cannot be opened for writing, so that nothing can wait in the kernel for a shared lock's end. */
TEST_EACH(record_waits, 4)
{
	const bool directory = _i & 1, stopped = _i & 2;

	if (!directory && suite_under_valgrind())
		return;

	const char *name = directory ? folder : path;
	struct asked a = {.fd = open(name, O_RDONLY | O_CLOEXEC)};
	int fd = open(name, O_RDONLY | O_CLOEXEC);

	ck_assert_int_eq(set_record(fd, F_RDLCK, 5, 6), 0);
	start_record(&a, 0, WIRE_EOF, false, true);
	until_in_use(&a);
	if (stopped) {
		probe_stop(a.probe);
	} else {
		ck_assert_int_eq(set_record(fd, F_RDLCK, 7, 8), 0); /* behind the one that it waits for */
		ck_assert_int_eq(set_record(fd, F_UNLCK, 5, 6), 0);
		for (int i = 0; i < 10; i++)
			uv_run(&loop, UV_RUN_NOWAIT);
		ck_assert_uint_eq(a.last, 0);
		ck_assert_int_eq(set_record(fd, F_UNLCK, 7, 8), 0);
	}
	ends(&a, stopped ? PROBE_STOPPED : PROBE_FREE);
	close(fd);
	if (!directory)
		check_no_record();
}

TEST(record_downgrade)
{
	if (suite_under_valgrind())
		return;

	int fd = record_holder(F_WRLCK, 5, 6);
	struct asked a = {0};

	start_record(&a, 0, WIRE_EOF, true, true);
	until_in_use(&a);
	ck_assert_int_eq(set_record(fd, F_RDLCK, 5, 6), 0);
	ends(&a, PROBE_SHARED);
	close(fd);
	check_no_record();
}
