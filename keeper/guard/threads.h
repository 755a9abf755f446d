/*
 * The table of threads and processes that the parent has stopped, or is about to stop. An entry is found by its number in constant time: a holder may have started ten thousand processes.
 *
 * An entry is a thread that is stopped by ptrace (ASKED, TRACED), or a whole process that is stopped by SIGSTOP
 * (SIGNALLED, REFUSED). One process may have both: threads that are still ASKED, and SIGSTOP.
 *
 * Without memory the table stays as it is: the parent must go on then, and stop the others.
 *
 * "Inert" is a thread that is not confirmed stopped, and cannot run one instruction of its program before it is: its stop
 * is pending, and it waits in the kernel (state D), as a parent in vfork() does for a child that we stopped, or a thread
 * whose file system does not answer. What it asked the kernel for may still be done.
 *
 * Parent only. Does not wait for any process.
 */
#ifndef DFLOCK_KEEPER_THREADS_H
#define DFLOCK_KEEPER_THREADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <uthash.h>

#include "keeper/kernel/family.h"

enum thread_how {
	THREAD_ASKED,     /* PTRACE_SEIZE did not come back at once: it is tried again */
	THREAD_TRACED,    /* its stop is pending, or confirmed */
	THREAD_SIGNALLED, /* a process: SIGSTOP is pending, or confirmed */
	THREAD_REFUSED,   /* a process: both ways were refused; noted so that it is logged once */
};

struct thread {
	pid_t pid, tid; /* the same for a process */
	pid_t key;      /* threads.c's */
	bool added;     /* threads.c's */
	enum thread_how how;
	int signal;       /* TRACED: to be delivered when it is let go */
	bool stopped;     /* confirmed */
	bool before;      /* SIGNALLED: it was stopped before, and stays so */
	bool at_mercy;    /* SIGNALLED: another process traces a thread of it, and is not stopped */
	bool killed;      /* it got SIGKILL from the parent, and only has to end */
	bool going;       /* TRACED: to be let go as soon as its stop is confirmed */
	unsigned tries;   /* ASKED: how often */
	int64_t asked_ns; /* ASKED: when first */
	int64_t again_ns; /* ASKED: not again before this */
	uint64_t started; /* ASKED: family_started(), which tells it from a later thread with the same number */
	int64_t ran_ns;   /* threads_watch(): its time on a processor; 0: it was inert then */
	UT_hash_handle hh;
};

struct threads {
	struct thread *all; /* in the order in which they were added: hh.next */
	bool changed;       /* an entry was added or removed; the user of the table resets it */
};

unsigned threads_count(const struct threads *threads);
/* Is this entry for a whole process? */
bool thread_is_process(const struct thread *thread);
/* NULL: there is none. */
struct thread *threads_find(const struct threads *threads, pid_t tid);
struct thread *threads_find_process(const struct threads *threads, pid_t pid);
/* Adds a copy, which stays where it is until it is removed. NULL: no memory. */
struct thread *threads_add(struct threads *threads, const struct thread *thread);
void threads_remove(struct threads *threads, struct thread *thread);
/* Are all confirmed stopped? */
bool threads_all_stopped(const struct threads *threads);
/* These processes got SIGKILL. */
void threads_note_killed(struct threads *threads, const struct family *family);
/* The number of processes, also of those whose first thread has ended; without those that are only waiting to be let go or to end, or
 * that could not be stopped at all. */
unsigned threads_processes(const struct threads *threads);

/* Is each thread confirmed stopped, or inert? */
bool threads_all_inert(const struct threads *threads);
/*
 * threads_watch() notes how long each of the other threads has been on a processor. threads_kill_others() kills, once each,
 * those that are still not inert and have run since, or can be continued by a tracer that is not stopped. It does not kill
 * a thread whose stop is pending and that only waits for a processor. It adds those that it kills to `killed`.
 */
void threads_watch(struct threads *threads);
void threads_kill_others(struct threads *threads, struct family *killed);

#endif
