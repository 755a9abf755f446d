/*
 * Conversations with the keeper that a program left by longjmp() out of a signal handler: their sockets would stay
 * open, and other hosts would wait for a caller that waits no more. Each conversation is noted while it lasts; who
 * makes a call ends those of its own thread that cannot be going on any more. Until the thread's next lock or unlock
 * call nobody knows.
 *
 * Callable wherever flock() is.
 */
#ifndef DFLOCK_SHIM_ABANDONED_H
#define DFLOCK_SHIM_ABANDONED_H

#include <stdint.h>

#include "shim/ask.h"

/* How many are noted at a time; of more, the newest are. */
#define ABANDONED_NOTED 64

/* ask->sock is open: notes it. `ask` must be in the stack of the thread, in a function that lasts as long as that. */
void abandoned_note(struct ask *ask);

/* It ends in good order. */
void abandoned_forget(struct ask *ask);

extern uint32_t abandoned_noted;
__attribute__((noinline)) void abandoned_end_slow(void);

/* Ends what this thread has left. One load where nobody of the process waits for a keeper. */
static inline void abandoned_end(void)
{
	if (__builtin_expect(__atomic_load_n(&abandoned_noted, __ATOMIC_RELAXED) != 0, 0))
		abandoned_end_slow();
}

#endif
