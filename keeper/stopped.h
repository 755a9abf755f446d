/*
 * The threads that the keeper's parent has stopped, or is about to.
 *
 * By PTRACE_SEIZE and PTRACE_INTERRUPT, with EXITKILL: should we die, they die with us. What they fork is traced from
 * its first moment. Where ptrace is refused: SIGSTOP. From one thread alone, since ptrace belongs to a thread.
 *
 * A process that was stopped by SIGSTOP stays so when we die. Each is therefore noted in memory that outlives us before
 * it gets the signal, so that the next of us lets it go: else it would look as if somebody else had stopped it before.
 */
#ifndef DFLOCK_KEEPER_STOPPED_H
#define DFLOCK_KEEPER_STOPPED_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "keeper/fence.h"

enum how {
	TRACED,
	SIGNALLED, /* SIGSTOP: ptrace was refused */
	REFUSED,   /* both were: it is known, so that this is said once */
};

struct thread {
	pid_t pid, tid;
	enum how how;
	int signal;   /* to be delivered when it is let go */
	bool stopped; /* confirmed */
	bool before;  /* SIGNALLED: it was stopped before, and stays so */
	bool killed;
};

struct stopped {
	pid_t keeper; /* never touched, like ourselves */
	struct thread *threads;
	size_t count, room;
	struct fence_signalled *noted; /* outlives us */
	size_t noted_room;
	bool changed; /* somebody came or went; reset by whom it interests */
};

/* Notes in `noted` whom it stops by SIGSTOP, and takes up whom an earlier one has noted there. */
void stopped_adopt(struct stopped *stopped, struct fence_signalled *noted, size_t room);
/* Begins to stop all threads of a process. Those that are known are left as they are. */
void stopped_stop(struct stopped *stopped, pid_t pid);
/* Takes what the kernel has to say of them: who has stopped, was born, or has ended. */
void stopped_collect(struct stopped *stopped);
/* Is everybody confirmed stopped, as last collected? */
bool stopped_all(const struct stopped *stopped);
/* Kills those who are not, each once. */
void stopped_kill_rest(struct stopped *stopped);
/* Lets go of all; returns how many processes. Those that cannot be let go of yet remain: to be called again. */
unsigned stopped_let_go(struct stopped *stopped);
/* How many processes there are. */
unsigned stopped_processes(const struct stopped *stopped);

#endif
