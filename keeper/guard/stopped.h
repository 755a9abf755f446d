/*
 * The processes that the keeper's parent has stopped, or is about to.
 *
 * By PTRACE_SEIZE and PTRACE_INTERRUPT, with EXITKILL: should we die, they die with us. What they fork is traced from
 * its first moment. Where ptrace is refused, or does not come back in time: SIGSTOP (signalled.h). From one thread
 * alone, since ptrace belongs to a thread. None of these functions waits for one of the processes.
 *
 * A process that was stopped by SIGSTOP stays so when we die. Each is therefore noted in memory that outlives us before
 * it gets the signal, so that the next of us lets it go: else it would look as if somebody else had stopped it before.
 *
 * "Held" is a thread that is not confirmed stopped, and yet cannot run one instruction of its program before it is: its
 * stop is pending, and it waits in the kernel (state D), as a parent in vfork() does for a child that we stopped, or who
 * has to do with a file system that does not answer. What it asked the kernel for may still be done.
 */
#ifndef DFLOCK_KEEPER_STOPPED_H
#define DFLOCK_KEEPER_STOPPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper/guard/fence.h"
#include "keeper/guard/signalled.h"

enum how {
	ASKED,     /* PTRACE_SEIZE did not come back at once: it is tried again */
	TRACED,    /* its stop is pending, or confirmed */
	SIGNALLED, /* a process, by SIGSTOP: it is pending, or confirmed */
	REFUSED,   /* ditto; both were refused: it is known, so that this is said once */
};

struct thread {
	pid_t pid, tid;
	enum how how;
	int signal;       /* TRACED: to be delivered when it is let go */
	bool stopped;     /* confirmed */
	bool before;      /* SIGNALLED: it was stopped before, and stays so */
	bool killed;
	bool going;       /* TRACED: to be let go as soon as its stop is confirmed */
	unsigned tries;   /* ASKED */
	int64_t asked_ns; /* ASKED: first */
	int64_t again_ns; /* ASKED: not before this */
	uint64_t started; /* ASKED: which one was meant */
	int64_t ran_ns;   /* on a processor, at stopped_warn(); 0: it was held then */
};

struct stopped {
	pid_t keeper; /* never touched, like ourselves */
	struct thread *threads;
	size_t count, room;
	struct signalled signalled;
	int64_t limit_ns; /* for how long PTRACE_SEIZE may be tried before a process gets SIGSTOP */
	int64_t lost_ns;  /* what was waited in vain for it in this freeze */
	bool changed;     /* somebody came or went; reset by whom it interests */
};

/* Notes in `noted` whom it stops by SIGSTOP, and takes up whom an earlier one has noted there. */
void stopped_adopt(struct stopped *stopped, struct fence_signalled *noted, size_t room);
/* Another freeze, or another limit. */
void stopped_limit(struct stopped *stopped, int64_t limit_ns);
/* Begins to stop all threads of a process. Those that are known are left as they are. */
void stopped_stop(struct stopped *stopped, pid_t pid);
/* Takes what the kernel has to say of them: who has stopped, was born, or has ended. Tries again what did not work. */
void stopped_collect(struct stopped *stopped);
/* Is everybody confirmed stopped, as last collected? */
bool stopped_all(const struct stopped *stopped);
/* Confirmed, or held? */
bool stopped_all_held(const struct stopped *stopped);
/*
 * Those who are neither, and have run between stopped_warn() and stopped_kill_rest(), are killed, each once. Those whose stop
 * is pending, and that only wait for a processor, are not.
 */
void stopped_warn(struct stopped *stopped);
void stopped_kill_rest(struct stopped *stopped);
/* Lets go of all; returns how many processes. Those that cannot be let go of yet remain: to be called again. */
unsigned stopped_let_go(struct stopped *stopped);
/* How many processes there are, but for those that are only to be let go. */
unsigned stopped_processes(const struct stopped *stopped);

#endif
