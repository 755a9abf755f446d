/* keeper/kernel/probe.c: record locks. No probe takes one. */
#include "tests/unit/probe_fixture.h"

static int set_record(int fd, short type, int64_t from, int64_t to)
{
	struct flock lock = {
		.l_type = type, .l_whence = SEEK_SET, .l_start = from, .l_len = to == WIRE_EOF ? 0 : to - from};

	return fcntl(fd, F_OFD_SETLK, &lock);
}

static int record_holder(short type, int64_t from, int64_t to)
{
	int fd = open_file();

	ck_assert_int_eq(set_record(fd, type, from, to), 0);
	return fd;
}

static void check_no_record(void) { close(record_holder(F_WRLCK, 0, WIRE_EOF)); }

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

TEST_EACH(record, ROWS(records))
{
	int fd = record_holder(records[_i].type, records[_i].from, records[_i].to);
	struct asked a = {.fd = open(path, O_RDONLY | O_CLOEXEC)}; /* which is enough to ask */

	ck_assert_int_eq(flock(fd, LOCK_EX), 0); /* the other space does not matter */
	start_record(&a, records[_i].want_from, records[_i].want_to, records[_i].shared_will_do, false);
	until_last(&a);
	check_answer(&a, records[_i].answer);
	close(fd);
	check_no_record();
	close(a.fd);
}

/* The lock of a process counts as well as that of a description. */
TEST(record_of_a_process)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct asked a = {0};
	int fd = open_file();

	ck_assert_int_eq(fcntl(fd, F_SETLK, &lock), 0);
	start_record(&a, 0, 1, true, false);
	until_last(&a);
	check_answer(&a, PROBE_IN_USE);
	close(a.fd);
	close(fd);
}

/* A directory cannot be opened for writing, so that nothing can wait in the kernel for a shared lock's end. */
static void open_both(bool directory, int *holding, int *probing)
{
	const char *name = directory ? folder : path;

	*holding = open(name, O_RDONLY | O_CLOEXEC);
	*probing = open(name, O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(set_record(*holding, F_RDLCK, 5, 6), 0);
}

TEST_EACH(record_waits, 2)
{
	if (!_i && suite_under_valgrind())
		return;

	struct asked a = {0};
	int fd;

	open_both(_i, &fd, &a.fd);
	start_record(&a, 0, WIRE_EOF, false, true);
	until_in_use(&a);
	ck_assert_int_eq(set_record(fd, F_RDLCK, 7, 8), 0); /* one more, behind the one that it waits for */
	ck_assert_int_eq(set_record(fd, F_UNLCK, 5, 6), 0);
	for (int i = 0; i < 10; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(a.last, 0);
	ck_assert_int_eq(set_record(fd, F_UNLCK, 7, 8), 0);
	until_last(&a);
	check_answer(&a, PROBE_FREE);
	if (!_i)
		check_no_record();
	close(fd);
	close(a.fd);
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
	until_last(&a);
	check_answer(&a, PROBE_SHARED);
	close(fd);
	check_no_record();
	close(a.fd);
}

TEST_EACH(record_stopped, 2)
{
	if (!_i && suite_under_valgrind())
		return;

	struct asked a = {0};
	int fd;

	open_both(_i, &fd, &a.fd);
	start_record(&a, 0, WIRE_EOF, false, true);
	until_in_use(&a);
	probe_stop(a.probe);
	until_last(&a);
	check_answer(&a, PROBE_STOPPED);
	close(fd);
	if (!_i)
		check_no_record();
	close(a.fd);
}

static void *let_record_go(void *arg)
{
	struct other *o = arg;

	for (volatile unsigned i = 0; i < o->turns; i++)
		;
	set_record(o->fd, F_UNLCK, 0, WIRE_EOF);
	return NULL;
}

TEST(record_races)
{
	if (suite_under_valgrind())
		return;

	int fd = open_file(), probe_fd = open_file();
	unsigned seed = 815;

	for (int i = 0; i < RACES; i++) {
		struct other other = {.fd = fd, .turns = rand_r(&seed) % 40000};
		short type = rand_r(&seed) % 2 ? F_WRLCK : F_RDLCK;
		bool shared_will_do = rand_r(&seed) % 2;
		struct asked a = {.fd = probe_fd};
		pthread_t thread;

		ck_assert_int_eq(set_record(fd, type, 3, 4), 0);
		start_record(&a, 0, WIRE_EOF, shared_will_do, true);
		ck_assert_int_eq(pthread_create(&thread, NULL, let_record_go, &other), 0);
		for (volatile int turns = rand_r(&seed) % 20000; turns; turns--)
			;
		if (rand_r(&seed) % 2)
			probe_stop(a.probe);
		until_last(&a);
		pthread_join(thread, NULL);
		ck_assert_uint_le(a.in_use, 1);
		ck_assert_int_eq(a.error, 0);
		ck_assert_int_ne(a.answer, PROBE_IN_USE);
		ck_assert(a.answer != PROBE_SHARED || shared_will_do);
		check_no_record();
	}
	close(fd);
	close(probe_fd);
}
