/* See threads.h. */
#include "keeper/guard/threads.h"

unsigned threads_count(const struct threads *threads)
{
	return utarray_len(&threads->all);
}

struct thread *threads_at(const struct threads *threads, size_t i)
{
	return array_at(&threads->all, i);
}

bool thread_is_process(const struct thread *t)
{
	return t->how == THREAD_SIGNALLED || t->how == THREAD_REFUSED;
}

static struct thread *threads_find_entry(const struct threads *threads, pid_t tid, bool process)
{
	for (size_t i = 0; i < threads_count(threads); i++)
		if (threads_at(threads, i)->tid == tid && thread_is_process(threads_at(threads, i)) == process)
			return threads_at(threads, i);
	return NULL;
}

struct thread *threads_find(const struct threads *threads, pid_t tid)
{
	return threads_find_entry(threads, tid, false);
}

struct thread *threads_find_process(const struct threads *threads, pid_t pid)
{
	return threads_find_entry(threads, pid, true);
}

struct thread *threads_add(struct threads *threads, const struct thread *thread)
{
	if (array_push(&threads->all, thread, sizeof(*thread)) < 0)
		return NULL;
	threads->changed = true;
	return threads_at(threads, threads_count(threads) - 1);
}

void threads_remove(struct threads *threads, struct thread *thread)
{
	*thread = *threads_at(threads, threads_count(threads) - 1);
	utarray_pop_back(&threads->all);
	threads->changed = true;
}

bool threads_all_stopped(const struct threads *threads)
{
	for (size_t i = 0; i < threads_count(threads); i++)
		if (!threads_at(threads, i)->stopped)
			return false;
	return true;
}

/* Is it stopped, or about to be? */
static bool thread_counts(const struct thread *t)
{
	return !t->going && t->how != THREAD_REFUSED;
}

static bool threads_counted(const struct threads *threads, size_t before, pid_t pid)
{
	for (size_t i = 0; i < before; i++)
		if (threads_at(threads, i)->pid == pid && thread_counts(threads_at(threads, i)))
			return true;
	return false;
}

/* By any of its threads: the first one may have ended. Those of a process come one after the other, mostly. */
unsigned threads_processes(const struct threads *threads)
{
	unsigned count = 0;
	pid_t last = 0;

	for (size_t i = 0; i < threads_count(threads); i++) {
		const struct thread *t = threads_at(threads, i);

		if (!thread_counts(t) || t->pid == last)
			continue;
		last = t->pid;
		count += !threads_counted(threads, i, last);
	}
	return count;
}
