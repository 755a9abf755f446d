/*
 * What the keeper's parent does for each process of a freeze costs the same, however many there are: ten thousand may have
 * been started by one holder. This file is compiled so that each basic block counts (Makefile), and no machine's time matters.
 */
#include "keeper/guard/threads.c"
#include "keeper/kernel/family.c"

#include "tests/unit/suite.h"

#define FEW 500

#ifdef __clang__
#define UNCOUNTED __attribute__((no_sanitize("coverage")))
#else
#define UNCOUNTED __attribute__((no_sanitize_coverage))
#endif

static long steps;

void __sanitizer_cov_trace_pc(void);

UNCOUNTED void __sanitizer_cov_trace_pc(void) { steps++; }

static long steps_of(void (*work)(int n), int n)
{
	const long before = steps;

	work(n);
	return steps - before;
}

/* Eight times as many processes: what grows with the square takes 64 times as many steps. */
static void grows_with_their_number(void (*work)(int n))
{
	const long few = steps_of(work, FEW), many = steps_of(work, 8 * FEW);

	ck_assert_int_gt(few, FEW); /* they are counted */
	ck_assert_int_lt(many, 16 * few);
}

static void add_children(int n)
{
	struct procfs_stat *all = calloc((size_t)n + 1, sizeof(*all));
	struct family family = {0};

	for (int i = 0; i < n; i++) /* half of them have one child each */
		all[i] = (struct procfs_stat){.pid = 2000 + i, .parent = i % 2 ? 2000 + i - 1 : 1000};
	ck_assert_int_eq(family_add(&family, 1000), 0);
	ck_assert_int_eq(family_add_descendants_of(&family, 0, all, (size_t)n), 0);
	ck_assert_uint_eq(family_count(&family), (size_t)n + 1);
	family_free(&family);
	free(all);
}

TEST(a_family_grows_with_its_number) { grows_with_their_number(add_children); }

static void stop_and_count(int n)
{
	struct threads threads = {0};

	for (pid_t pid = 1000; pid < 1000 + n; pid++) {
		ck_assert(!threads_find(&threads, pid) && !threads_find_process(&threads, pid));
		ck_assert_ptr_nonnull(
			threads_add(&threads, &(struct thread){.pid = pid, .tid = pid, .how = THREAD_TRACED}));
	}
	ck_assert_uint_eq(threads_processes(&threads), n);
	while (threads.all)
		threads_remove(&threads, threads.all);
}

TEST(the_table_of_threads_grows_with_its_number) { grows_with_their_number(stop_and_count); }
