/*
 * What the tests of keeper/guard/supervise.c share. A keeper is a function here, which a process of its own runs; the table of
 * leases and the parent's looks are real.
 */
#ifndef DFLOCK_TESTS_UNIT_SUPERVISE_FIXTURE_H
#define DFLOCK_TESTS_UNIT_SUPERVISE_FIXTURE_H

#include <stdatomic.h>
#include <sys/mman.h>

#include "keeper/guard/supervise.h"
#include "keeper/guard/table.h"
#include "keeper/guard/table_text.h"
#include "tests/unit/base_folder.h"
#include "tests/unit/wait_until.h"

#define MOST  8
#define WRONG 77 /* a keeper's exit status: what it found is not what it should find */

/* What keepers and the test tell each other. */
static struct {
	atomic_int runs;
	_Atomic pid_t pids[MOST];
	atomic_int terms; /* SIGTERMs that keepers got */
	atomic_bool go;
} * shared;

static int dir_fd, ready[2];
static pid_t parent;

static inline void begin(void)
{
	base_make();
	dir_fd = base_open();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
	parent = 0;
}

static inline void end(void)
{
	if (parent) {
		kill(parent, SIGKILL);
		waitpid(parent, NULL, 0);
	}
	for (int i = 0; i < MOST; i++)
		if (shared->pids[i])
			kill(shared->pids[i], SIGKILL);
	munmap(shared, sizeof(*shared));
	close(dir_fd);
	close(ready[0]);
	close(ready[1]);
	base_remove();
}

/* --- keepers --- */

typedef int keeper_life(const struct supervised *keeper, int run);

static inline int run(void *arg, const struct supervised *keeper)
{
	int number = atomic_fetch_add(&shared->runs, 1);

	if (number >= MOST)
		return KEEPER_EXIT_IDLE;
	shared->pids[number] = getpid();
	return (*(keeper_life **)arg)(keeper, number);
}

/* What the supervisor of such keepers returns. */
static inline int supervise_it(keeper_life *life)
{
	const struct supervise options = {
		.runtime_dir = base, .dir_fd = dir_fd, .ready_fd = ready[1], .run = run, .arg = &life};

	return supervise(&options);
}

static inline void start(keeper_life *life)
{
	parent = fork();
	ck_assert_int_ge(parent, 0);
	if (parent == 0)
		_exit(supervise_it(life));
	close(ready[1]);
	ready[1] = -1;
}

static inline int wait_for_end(void)
{
	int status;

	ck_assert_int_eq(waitpid(parent, &status, 0), parent);
	parent = 0;
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static inline int result(keeper_life *life)
{
	start(life);
	return wait_for_end();
}

/* A keeper takes SIGTERM when it can act on it. */
static inline void await_term(void)
{
	sigset_t term;
	int number;

	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigwait(&term, &number);
	atomic_fetch_add(&shared->terms, 1);
}

static inline uint32_t take_lease(struct table *table)
{
	const struct store_range all = {WIRE_FLOCK, WIRE_EXCLUSIVE, 0, WIRE_EOF};
	const struct table_lease lease = {.token = "0123456789abcdef0123456789abcdef",
					  .name = "x",
					  .path = "/srv/x",
					  .file = {.dev = 1, .ino = UINT64_MAX},
					  .range = all};
	uint32_t slot = TABLE_NO_SLOT;

	if (table_text_open(table) != 0 || table_ask(table, &lease, &slot) != 0)
		exit(WRONG);
	table_grant(table, slot, 1, &all, &lease.file);
	return slot;
}

#endif
