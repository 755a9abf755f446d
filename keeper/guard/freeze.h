/*
 * The parent's side of the fence: stops, lets go and kills processes. Everything is done from the parent's one thread,
 * since ptrace belongs to a thread; nothing waits for one of the processes, so that none can keep us from the others.
 *
 * A process is stopped by PTRACE_SEIZE and PTRACE_INTERRUPT of all its threads: shells with job control and other
 * parents see nothing, SIGCONT does not wake it, and should we die it dies with us (EXITKILL), since nobody would watch
 * it any more. Where ptrace is refused, or does not come back (a process in execve() on a mount that does not answer)
 * within a tenth of the margin: SIGSTOP, which the next parent takes up (fence->signalled).
 */
#ifndef DFLOCK_KEEPER_FREEZE_H
#define DFLOCK_KEEPER_FREEZE_H

#include <stdbool.h>
#include <sys/types.h>

#include "keeper/guard/fence.h"

struct freezer;

/* Takes up whom an earlier parent has stopped by SIGSTOP. NULL: no memory. */
struct freezer *freezer_new(struct fence *fence);
/* keeper: never touched, like ourselves. */
void freezer_keeper(struct freezer *freezer, pid_t keeper);

/*
 * Looks at the fence and does what is due: freezes when freeze_at has come, kills holders of lost leases, lets go when
 * everything is sure again. Returns how long it may take until the next look, in ms (at most max_ms).
 */
int freezer_look(struct freezer *freezer, int max_ms);

#endif
