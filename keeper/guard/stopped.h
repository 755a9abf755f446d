/*
 * Stops processes, and lets them go. The means is PTRACE_SEIZE and PTRACE_INTERRUPT of each thread, with EXITKILL: if
 * the parent dies, the processes die with it, since no process would watch them any more. What they fork is traced from
 * its first moment. Where ptrace is refused, or does not return in time (stopped.c), the means is SIGSTOP (signalled.h).
 *
 * A process that got SIGSTOP stays stopped when the parent dies. So each is noted, before it gets the signal, in memory
 * that outlives the parent, and the next parent lets it go: otherwise the next parent would take it for a process that
 * an operator had stopped.
 *
 * To be called from one thread only, since ptrace belongs to a thread. None of these functions waits for one of the
 * processes.
 */
#ifndef DFLOCK_KEEPER_STOPPED_H
#define DFLOCK_KEEPER_STOPPED_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper/guard/signalled.h"
#include "keeper/guard/table.h"
#include "keeper/guard/threads.h"

struct stopped {
	pid_t keeper; /* never touched, as the caller itself */
	struct threads threads;
	struct signalled signalled;
	int64_t limit_ns; /* for how long PTRACE_SEIZE may be tried before a process gets SIGSTOP */
	int64_t lost_ns;  /* how long this freeze has waited for it in vain */
};

/* The processes that get SIGSTOP will be noted in `noted`. Takes up those that an earlier parent noted there. */
void stopped_adopt(struct stopped *stopped, struct table_signalled *noted, size_t room);
/* Another freeze begins, or another limit applies. */
void stopped_limit(struct stopped *stopped, int64_t limit_ns);
/* Begins to stop all threads of a process, and what else traces them. Threads that are in the table are left as they are. */
void stopped_stop(struct stopped *stopped, pid_t pid);
/* Collects the kernel's reports: which threads have stopped, were born, or have ended. Repeats attempts that failed. */
void stopped_collect(struct stopped *stopped);
/*
 * Lets all go; returns how many processes there were. Threads that cannot go at once stay in the table: call it again.
 */
unsigned stopped_let_go(struct stopped *stopped);

#endif
