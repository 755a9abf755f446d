/*
 * Stops processes, and lets them go: by PTRACE_SEIZE and PTRACE_INTERRUPT of each thread, with EXITKILL: if the parent
 * dies, they die with it, since nobody would watch them any more. What they fork is traced from its first moment. Where
 * ptrace is refused, or does not come back in time (seize.h): by SIGSTOP (signalled.h).
 *
 * A process that got SIGSTOP stays stopped when the parent dies. So each is noted in memory that outlives the parent
 * before it gets the signal, and the next parent lets it go: else that one would take it for a process that somebody
 * else had stopped before.
 *
 * From one thread alone, since ptrace belongs to a thread. None of these functions waits for one of the processes.
 */
#ifndef DFLOCK_KEEPER_STOPPED_H
#define DFLOCK_KEEPER_STOPPED_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper/guard/table.h"
#include "keeper/guard/signalled.h"
#include "keeper/guard/threads.h"

struct stopped {
	pid_t keeper; /* never touched, as the caller itself */
	struct threads threads;
	struct signalled signalled;
	int64_t limit_ns; /* for how long PTRACE_SEIZE may be tried before a process gets SIGSTOP */
	int64_t lost_ns;  /* what was waited for it in vain in this freeze */
};

/* Notes in `noted` the processes that get SIGSTOP, and takes up those that an earlier parent has noted there. */
void stopped_adopt(struct stopped *stopped, struct table_signalled *noted, size_t room);
/* Another freeze begins, or another limit counts. */
void stopped_limit(struct stopped *stopped, int64_t limit_ns);
/* Begins to stop all threads of a process. Threads that are in the table are left as they are. */
void stopped_stop(struct stopped *stopped, pid_t pid);
/* Takes what the kernel has to say: which threads have stopped, were born, or have ended. Tries again what failed. */
void stopped_collect(struct stopped *stopped);
/*
 * Lets go of all; returns how many processes there were. Threads that cannot be let go of yet stay in the table: to be
 * called again.
 */
unsigned stopped_let_go(struct stopped *stopped);

#endif
