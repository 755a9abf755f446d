/*
 * Probes of keeper/kernel/probe.c on one file: every answer is compared with what another description can lock.
 */
#ifndef DFLOCK_TESTS_UNIT_PROBE_FIXTURE_H
#define DFLOCK_TESTS_UNIT_PROBE_FIXTURE_H

#include <pthread.h>
#include <sys/file.h>

#include "keeper/kernel/family.h"
#include "keeper/kernel/probe.h"
#include "tests/unit/suite.h"

#define DEADLINE_MS 20000
#define RACES       1000

/* One probe and what it said. */
struct asked {
	struct probe *probe;
	int fd;
	unsigned in_use, last; /* how often */
	enum probe_answer answer;
	int error;
	bool wait;
};

static char folder[SUITE_PATH_BYTES], path[SUITE_PATH_BYTES + 8];
static uv_loop_t loop;
static struct probes *probes;
static uv_timer_t deadline;
static bool one_answer; /* the loop comes back after each: what was tested at once is told before it sleeps */

static inline void make_file(void)
{
	int fd;

	suite_make_folder(folder, "/tmp");
	snprintf(path, sizeof(path), "%s/file", folder);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

static inline void remove_file(void)
{
	unlink(path);
	rmdir(folder);
}

static inline void on_deadline(uv_timer_t *timer) { ck_abort_msg("a probe has not answered in %d ms", DEADLINE_MS); }

static inline int count_thread(void *arg, pid_t pid, pid_t tid)
{
	*(unsigned *)arg += tid != pid;
	return 0;
}

/* How many threads this process has, without the one of the test. */
static inline unsigned threads(void)
{
	unsigned count = 0;

	family_threads(getpid(), count_thread, &count);
	return count;
}

/* Threads end some time after the last answer. */
static inline void until_threads(unsigned count)
{
	while (threads() != count) {
		uv_run(&loop, UV_RUN_NOWAIT); /* its deadline */
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
}

static inline void setup(void)
{
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	probes = probes_new(&loop);
	ck_assert_ptr_nonnull(probes);
	uv_timer_init(&loop, &deadline);
	uv_timer_start(&deadline, on_deadline, DEADLINE_MS, 0);
	uv_unref((uv_handle_t *)&deadline);
	until_threads(0); /* those of an earlier test, if all run in one process */
}

static inline void close_handle(uv_handle_t *handle, void *arg)
{
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

static inline void teardown(void)
{
	probes_free(probes);
	uv_walk(&loop, close_handle, NULL); /* as the keeper does */
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}

/* A description of its own. */
static inline int open_file(void)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static inline int holder(int op)
{
	int fd = open_file();

	if (op)
		ck_assert_int_eq(flock(fd, op | LOCK_NB), 0);
	return fd;
}

/* What could somebody else lock now? LOCK_EX, LOCK_SH or nothing (LOCK_UN). */
static inline int possible(void)
{
	static const int ops[] = {LOCK_EX, LOCK_SH};
	int got = LOCK_UN, fd = open_file();

	for (int i = 0; i < 2 && got == LOCK_UN; i++)
		if (flock(fd, ops[i] | LOCK_NB) == 0)
			got = ops[i];
	close(fd);
	return got;
}

static inline void on_answer(void *arg, enum probe_answer answer, int error)
{
	struct asked *a = arg;

	ck_assert_uint_eq(a->last, 0); /* nothing comes after the last one */
	if (one_answer)
		uv_stop(&loop);
	if (answer == PROBE_IN_USE && a->wait) {
		ck_assert_int_eq(error, 0);
		a->in_use++;
		return;
	}
	a->last++;
	a->answer = answer;
	a->error = error;
}

static inline void start_want(struct asked *a, const struct probe_want *want)
{
	if (!a->fd)
		a->fd = open_file();
	a->wait = want->wait;
	a->probe = probe_start(probes, a->fd, want, on_answer, a);
	ck_assert_ptr_nonnull(a->probe);
	ck_assert_uint_eq(a->in_use + a->last, 0); /* never from inside the call */
}

static inline void start(struct asked *a, bool shared_will_do, bool wait)
{
	start_want(a, &(struct probe_want){.to = WIRE_EOF, .shared_will_do = shared_will_do, .wait = wait});
}

/* What a probe asks of a file on a local file system, when it waits for the end of all locks. */
static inline void start_local(struct asked *a)
{
	start_want(a, &(struct probe_want){.to = WIRE_EOF, .wait = true, .local = true});
}

static inline void start_record(struct asked *a, int64_t from, int64_t to, bool shared_will_do, bool wait)
{
	start_want(a, &(struct probe_want){WIRE_RECORD, from, to, shared_will_do, wait, false});
}

static inline void until_answer(void)
{
	one_answer = true;
	uv_run(&loop, UV_RUN_ONCE);
	one_answer = false;
}

static inline void until_last(struct asked *a)
{
	while (!a->last)
		until_answer();
}

static inline void until_in_use(struct asked *a)
{
	while (!a->in_use)
		until_answer();
	ck_assert_uint_eq(a->in_use, 1);
	ck_assert_uint_eq(a->last, 0);
}

static inline void check_answer(const struct asked *a, enum probe_answer answer)
{
	ck_assert_int_eq(a->answer, answer);
	ck_assert_int_eq(a->error, 0);
}

/* The last answer, and the end of the test of this probe. */
static inline void ends(struct asked *a, enum probe_answer answer)
{
	until_last(a);
	check_answer(a, answer);
	close(a->fd);
}

static inline int set_record(int fd, short type, int64_t from, int64_t to)
{
	struct flock lock = {
		.l_type = type, .l_whence = SEEK_SET, .l_start = from, .l_len = to == WIRE_EOF ? 0 : to - from};

	return fcntl(fd, F_OFD_SETLK, &lock);
}

static inline int record_holder(short type, int64_t from, int64_t to)
{
	int fd = open_file();

	ck_assert_int_eq(set_record(fd, type, from, to), 0);
	return fd;
}

static inline void check_no_record(void) { close(record_holder(F_WRLCK, 0, WIRE_EOF)); }

struct other {
	int fd;
	unsigned turns;
	bool record;
};

/* Another thread that ends its lock after some turns, as a program would at any moment. */
static inline void *let_go(void *arg)
{
	struct other *o = arg;

	for (volatile unsigned i = 0; i < o->turns; i++)
		;
	if (o->record)
		set_record(o->fd, F_UNLCK, 0, WIRE_EOF);
	else
		flock(o->fd, LOCK_UN);
	return NULL;
}
FIXTURE_ONCE(make_file, remove_file)
FIXTURE(setup, teardown)

#endif
