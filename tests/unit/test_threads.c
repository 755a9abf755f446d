/* keeper/guard/threads.c: the table of what the parent stops, and what it counts. */
#include "keeper/guard/stopped.h"

#include "tests/unit/suite.h"

static struct threads threads;

static struct thread *add(pid_t pid, pid_t tid, enum thread_how how)
{
	return threads_add(&threads, &(struct thread){.pid = pid, .tid = tid, .how = how});
}

static void teardown(void)
{
	while (threads.all)
		threads_remove(&threads, threads.all);
	threads = (struct threads){0};
}
FIXTURE(NULL, teardown)

TEST(a_process_is_not_its_first_thread)
{
	add(5, 5, THREAD_ASKED);
	ck_assert_ptr_nonnull(threads_find(&threads, 5));
	ck_assert_ptr_null(threads_find_process(&threads, 5));
	add(5, 5, THREAD_SIGNALLED);
	ck_assert_int_eq(threads_find(&threads, 5)->how, THREAD_ASKED);
	ck_assert_int_eq(threads_find_process(&threads, 5)->how, THREAD_SIGNALLED);
	ck_assert_ptr_null(threads_find(&threads, 6));
}

TEST(each_process_counts_once)
{
	ck_assert_uint_eq(threads_processes(&threads), 0);
	add(5, 5, THREAD_TRACED);
	add(5, 6, THREAD_TRACED);
	ck_assert_uint_eq(threads_processes(&threads), 1);
	add(5, 5, THREAD_SIGNALLED); /* of the same process */
	ck_assert_uint_eq(threads_processes(&threads), 1);
	add(7, 7, THREAD_REFUSED); /* goes on */
	ck_assert_uint_eq(threads_processes(&threads), 1);
	add(8, 8, THREAD_SIGNALLED);
	ck_assert_uint_eq(threads_processes(&threads), 2);
	add(9, 9, THREAD_TRACED)->going = true; /* only waits to be let go */
	ck_assert_uint_eq(threads_processes(&threads), 2);
	add(10, 12, THREAD_TRACED); /* its first thread has ended */
	add(10, 13, THREAD_TRACED);
	add(11, 11, THREAD_TRACED);
	add(10, 14, THREAD_TRACED);
	ck_assert_uint_eq(threads_processes(&threads), 4);
}

TEST(all_stopped)
{
	ck_assert(threads_all_stopped(&threads));
	add(5, 5, THREAD_TRACED)->stopped = true;
	ck_assert(threads_all_stopped(&threads));
	add(6, 6, THREAD_ASKED);
	ck_assert(!threads_all_stopped(&threads));
}

TEST(it_grows_and_shrinks)
{
	for (pid_t pid = 1; pid <= 1000; pid++)
		ck_assert_ptr_nonnull(add(pid, pid, THREAD_TRACED));
	ck_assert(threads.changed);
	threads.changed = false;
	for (pid_t pid = 1; pid <= 1000; pid += 2)
		threads_remove(&threads, threads_find(&threads, pid));
	ck_assert(threads.changed);
	ck_assert_uint_eq(threads_count(&threads), 500);
	for (pid_t pid = 1; pid <= 1000; pid++)
		ck_assert_int_eq(threads_find(&threads, pid) != NULL, pid % 2 == 0);
}
