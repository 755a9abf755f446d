/* keeper/kernel/errand.c: an errand that never returns is left behind, and the side that lets go last frees the memory,
 * once. */
#include "keeper/kernel/errand.h"

#include "keeper/clock.h"
#include "tests/unit/suite.h"
#include "tests/unit/wait_until.h"

#define DEADLINE_MS 10000

static int freed; /* atomic */

struct work {
	int pipe;
	bool ran;
};

static void run(void *memory)
{
	struct work *w = memory;
	char c;

	w->ran = w->pipe < 0 || read(w->pipe, &c, 1) == 0;
}

static void done(void *memory)
{
	free(memory);
	__atomic_add_fetch(&freed, 1, __ATOMIC_ACQ_REL);
}

static struct work *work_new(int pipe)
{
	struct work *w = calloc(1, sizeof(*w));

	ck_assert_ptr_nonnull(w);
	w->pipe = pipe;
	return w;
}

static void wait_freed(int count) { wait_until(__atomic_load_n(&freed, __ATOMIC_ACQUIRE) == count); }

TEST(one_that_ends)
{
	struct work *w = work_new(-1);
	struct errand *e;

	freed = 0;
	e = errand_start(run, done, w);

	ck_assert_ptr_nonnull(e);
	ck_assert(errand_wait(e, DEADLINE_MS));
	ck_assert(w->ran);
	ck_assert_int_eq(freed, 0);
	errand_leave(e);
	wait_freed(1);
}

TEST(those_that_hang)
{
	struct errand *all[ERRANDS_MAX], *more = NULL;
	int fds[2];

	freed = 0;
	ck_assert_int_eq(pipe(fds), 0);
	for (int i = 0; i < ERRANDS_MAX; i++) {
		all[i] = errand_start(run, done, work_new(fds[0]));
		ck_assert_ptr_nonnull(all[i]);
	}
	ck_assert(!errand_wait(all[0], 10));
	for (int i = 0; i < ERRANDS_MAX; i++)
		errand_leave(all[i]);
	ck_assert_int_eq(freed, 0);
	ck_assert_ptr_null(errand_start(run, done, work_new(-1))); /* as many as may hang */
	ck_assert_int_eq(freed, 1);
	close(fds[1]);
	wait_freed(ERRANDS_MAX + 1);
	wait_until((more = errand_start(run, done, work_new(-1))) != NULL); /* the threads end a moment later */
	ck_assert(errand_wait(more, DEADLINE_MS));
	errand_leave(more);
	close(fds[0]);
}
