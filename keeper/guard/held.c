/*
 * See held.h.
 *
 * Why a held thread runs nothing. PTRACE_INTERRUPT and SIGSTOP each set a flag on a thread, which the kernel checks
 * whenever the thread returns to the program: the stop comes before the program's next instruction, also if that is the
 * first of a new program after execve(), which clears neither flag. If a thread was seen in state D after the flag was
 * set, it was in the kernel then. Another process's SIGCONT clears the flag of SIGSTOP; stopped_collect() sets it
 * again.
 *
 * A thread in state R may be in a call that writes without end: it is not held. But if it got no processor since the
 * last look, it only waits for one on a busy machine, and will stop as soon as it has one: so it is not killed either.
 */
#include "keeper/guard/held.h"

#include <signal.h>
#include <string.h>

#include "keeper/clock.h"
#include "keeper/kernel/family.h"
#include "keeper/log.h"

#define HELD_RAN_NS NS_PER_MS /* a thread that ran for so long without stopping is busy in the kernel */

static bool held_thread(const struct threads *threads, const struct thread *t)
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

bool held_all(const struct threads *threads)
{
	for (const struct thread *t = threads->all; t; t = t->hh.next)
		if (!held_thread(threads, t))
			return false;
	return true;
}

static int held_add_ran(void *arg, pid_t pid, pid_t tid)
{
	int64_t *sum = arg, ran = procfs_ran_ns(tid);

	(void)pid;
	*sum = ran < 0 || *sum < 0 ? -1 : *sum + ran;
	return 0;
}

/* Of a process: the sum of its threads. -1: not known. */
static int64_t held_ran_ns(const struct thread *t)
{
	int64_t sum = 0;

	if (!thread_is_process(t))
		return procfs_ran_ns(t->tid);
	family_threads(t->pid, held_add_ran, &sum);
	return sum;
}

void held_warn(struct threads *threads)
{
	for (struct thread *t = threads->all; t; t = t->hh.next)
		t->ran_ns = held_thread(threads, t) ? 0 : held_ran_ns(t);
}

/* Is a stop pending, and did the thread have no processor since? */
static bool held_waits_for_processor(const struct threads *threads, const struct thread *t)
{
	int64_t now = held_ran_ns(t);

	if (t->at_mercy || (t->how == THREAD_ASKED && !threads_find_process(threads, t->pid)))
		return false;
	return t->ran_ns <= 0 ? t->ran_ns == 0 : now >= 0 && now - t->ran_ns < HELD_RAN_NS;
}

void held_kill_rest(struct threads *threads, struct family *killed)
{
	for (struct thread *t = threads->all; t; t = t->hh.next) {
		if (t->killed || held_thread(threads, t) || held_waits_for_processor(threads, t))
			continue;
		log_process(LINE_PROCESS_KILLED, t->pid, "pid %d could not be stopped in time: it is killed",
			    (int)t->pid);
		kill(t->pid, SIGKILL);
		t->killed = true;
		(void)!family_add(killed, t->pid); /* it is only for people */
	}
}
