/* See threads.h. */
#include "keeper/guard/threads.h"

#include <stdlib.h>

bool thread_is_process(const struct thread *t)
{
	return t->how == THREAD_SIGNALLED || t->how == THREAD_REFUSED;
}

static struct thread *threads_find_entry(const struct threads *threads, pid_t tid, bool process)
{
	for (size_t i = 0; i < threads->count; i++)
		if (threads->all[i].tid == tid && thread_is_process(&threads->all[i]) == process)
			return &threads->all[i];
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
	if (threads->count == threads->room) {
		size_t room = threads->room ? 2 * threads->room : 64;
		struct thread *all = realloc(threads->all, room * sizeof(*all));

		if (!all)
			return NULL;
		threads->all = all;
		threads->room = room;
	}
	threads->all[threads->count] = *thread;
	threads->changed = true;
	return &threads->all[threads->count++];
}

void threads_remove(struct threads *threads, struct thread *thread)
{
	*thread = threads->all[--threads->count];
	threads->changed = true;
}

bool threads_all_stopped(const struct threads *threads)
{
	for (size_t i = 0; i < threads->count; i++)
		if (!threads->all[i].stopped)
			return false;
	return true;
}

unsigned threads_processes(const struct threads *threads)
{
	unsigned count = 0;

	for (size_t i = 0; i < threads->count; i++) {
		const struct thread *t = &threads->all[i];

		if (t->tid == t->pid && !t->going && t->how != THREAD_REFUSED &&
		    (thread_is_process(t) || !threads_find_process(threads, t->pid)))
			count++;
	}
	return count;
}
