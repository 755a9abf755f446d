/* See threads.h. */
#define HASH_NONFATAL_OOM         1
#define uthash_nonfatal_oom(item) ((item)->added = false) /* as hidden.c */
#include "keeper/guard/threads.h"

#include <stdlib.h>

#include "keeper/kernel/family.h"

unsigned threads_count(const struct threads *threads)
{
	return HASH_COUNT(threads->all);
}

bool thread_is_process(const struct thread *t)
{
	return t->how == THREAD_SIGNALLED || t->how == THREAD_REFUSED;
}

/* An entry never turns from a thread's into a process's. */
static pid_t threads_key(pid_t tid, bool process)
{
	return process ? -tid : tid;
}

static struct thread *threads_find_entry(const struct threads *threads, pid_t tid, bool process)
{
	const pid_t key = threads_key(tid, process);
	struct thread *found;

	HASH_FIND(hh, threads->all, &key, sizeof(key), found);
	return found;
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
	struct thread *copy = malloc(sizeof(*copy));

	if (!copy)
		return NULL;
	*copy = *thread;
	copy->key = threads_key(thread->tid, thread_is_process(thread));
	copy->added = true;
	HASH_ADD(hh, threads->all, key, sizeof(copy->key), copy);
	if (!copy->added) {
		free(copy);
		return NULL;
	}
	threads->changed = true;
	return copy;
}

void threads_remove(struct threads *threads, struct thread *thread)
{
	HASH_DEL(threads->all, thread);
	free(thread);
	threads->changed = true;
}

bool threads_all_stopped(const struct threads *threads)
{
	for (const struct thread *t = threads->all; t; t = t->hh.next)
		if (!t->stopped)
			return false;
	return true;
}

/* Is it stopped, or about to be? */
static bool thread_counts(const struct thread *t)
{
	return !t->going && t->how != THREAD_REFUSED;
}

/* By any of its threads: the first one may have ended. */
unsigned threads_processes(const struct threads *threads)
{
	struct family counted = {0};
	unsigned count = 0;

	for (const struct thread *t = threads->all; t; t = t->hh.next)
		if (thread_counts(t) && family_add(&counted, t->pid) < 0)
			count++; /* no memory: rather one too many */
	count += (unsigned)family_count(&counted);
	family_free(&counted);
	return count;
}
