/*
 * PTRACE_SEIZE with a limit of time.
 *
 * PTRACE_SEIZE waits for the target's cred_guard_mutex. A process has that mutex during all of an execve(), also while
 * the program's file system does not answer. After a signal the kernel begins the wait anew (ERESTARTNOINTR), so only a
 * signal handler that does not return ends it: a timer's handler jumps out. A free mutex is taken without waiting, so a
 * fraction of a millisecond is enough.
 *
 * The jump loses nothing: if it comes after the call has succeeded, PTRACE_INTERRUPT, which the kernel allows only to
 * the tracer, succeeds as well. So the parent always knows which threads it traces.
 *
 * To be called from one thread only: ptrace belongs to a thread, and so does the timer, whose handler takes SIGALRM.
 */
#ifndef DFLOCK_KEEPER_SEIZE_H
#define DFLOCK_KEEPER_SEIZE_H

#include <stdint.h>
#include <sys/types.h>

/* To be called once, first. Without a timer the limit is not kept; the log says so. */
void seize_prepare(void);
/*
 * Seizes a thread, with EXITKILL and with a stop for each child or thread that it starts, and tells it to stop. limit_ns:
 * less than a second. 0; -errno of ptrace; -ETIMEDOUT: it did not come back in time, and the thread is not traced.
 */
int seize_thread(pid_t tid, int64_t limit_ns);

#endif
