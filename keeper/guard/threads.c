/*
 * See stopped.h.
 *
 * Why an inert thread runs nothing. PTRACE_INTERRUPT and SIGSTOP each set a flag on a thread, which the kernel checks
 * whenever the thread returns to the program: the stop comes before the program's next instruction, also if that is the
 * first of a new program after execve(), which clears neither flag. If a thread was seen in state D after the flag was
 * set, it was in the kernel then. Another process's SIGCONT clears the flag of SIGSTOP; stopped_collect() sets it
 * again.
 *
 * A thread in state R may be in a call that writes without end: it is not inert. But if it got no processor since the
 * last look, it only waits for one on a busy machine, and will stop as soon as it has one: so it is not killed either.
 */
#define HASH_NONFATAL_OOM         1
#define uthash_nonfatal_oom(item) ((item)->added = false) /* as hidden.c */
#include "keeper/guard/stopped.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/log.h"

#define THREADS_RAN_NS NS_PER_MS /* a thread that ran for so long without stopping is busy in the kernel */

unsigned threads_count(const struct threads *threads)
{
	return HASH_COUNT(threads->all);
}

/* Is this entry for a whole process? */
static bool thread_is_process(const struct thread *t)
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

void threads_note_killed(struct threads *threads, const struct family *family)
{
	for (struct thread *t = threads->all; t; t = t->hh.next)
		t->killed = t->killed || family_has(family, t->pid);
}

/* Is it stopped, or about to be, and will it go on? */
static bool thread_counts(const struct thread *t)
{
	return !t->going && !t->killed && t->how != THREAD_REFUSED;
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

/* --- those that are not confirmed stopped --- */

static bool thread_is_inert(const struct threads *threads, const struct thread *t)
{
	if (t->stopped)
		return true;
	switch (t->how) {
	case THREAD_ASKED:
		return threads_find_process(threads, t->pid) && strchr("DTtZX", family_state(t->tid));
	case THREAD_TRACED:
		return strchr("DtZX", family_state(t->tid));
	case THREAD_SIGNALLED:
		return !t->at_mercy && family_is_held(t->pid);
	case THREAD_REFUSED:
		break;
	}
	return false;
}

bool threads_all_inert(const struct threads *threads)
{
	for (const struct thread *t = threads->all; t; t = t->hh.next)
		if (!thread_is_inert(threads, t))
			return false;
	return true;
}

static int thread_add_ran(void *arg, pid_t pid, pid_t tid)
{
	int64_t *sum = arg, ran = procfs_ran_ns(tid);

	(void)pid;
	*sum = ran < 0 || *sum < 0 ? -1 : *sum + ran;
	return 0;
}

/* Of a process: the sum of its threads. -1: not known. */
static int64_t thread_ran_ns(const struct thread *t)
{
	int64_t sum = 0;

	if (!thread_is_process(t))
		return procfs_ran_ns(t->tid);
	family_threads(t->pid, thread_add_ran, &sum);
	return sum;
}

void threads_watch(struct threads *threads)
{
	for (struct thread *t = threads->all; t; t = t->hh.next)
		t->ran_ns = thread_is_inert(threads, t) ? 0 : thread_ran_ns(t);
}

/* Is a stop pending, and did the thread have no processor since? */
static bool thread_waits_for_processor(const struct threads *threads, const struct thread *t)
{
	int64_t now = thread_ran_ns(t);

	if (t->at_mercy || (t->how == THREAD_ASKED && !threads_find_process(threads, t->pid)))
		return false;
	return t->ran_ns <= 0 ? t->ran_ns == 0 : now >= 0 && now - t->ran_ns < THREADS_RAN_NS;
}

void threads_kill_others(struct threads *threads, struct family *killed)
{
	for (struct thread *t = threads->all; t; t = t->hh.next) {
		if (t->killed || thread_is_inert(threads, t) || thread_waits_for_processor(threads, t) ||
		    family_has(killed, t->pid))
			continue;
		log_process(LINE_PROCESS_KILLED, t->pid, "pid %d could not be stopped in time: it is killed",
			    (int)t->pid);
		if (family_add(killed, t->pid) < 0)
			kill(t->pid, SIGKILL);
	}
	(void)!family_add_descendants(killed, getpid()); /* without memory: those that were found so far */
	for (size_t i = 0; i < family_count(killed); i++)
		kill(family_at(killed, i), SIGKILL);
	threads_note_killed(threads, killed);
}
