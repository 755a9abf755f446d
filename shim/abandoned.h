/*
 * Conversations with the keeper that a program left by longjmp() out of a signal handler. Their sockets would stay
 * open, and other hosts would wait for a caller that waits no longer. So each conversation is noted while it lasts, and
 * each lock or unlock call ends those of its own thread that cannot be going on. Until the thread's next such call
 * nothing notices.
 *
 * Callable wherever flock() is.
 */
#ifndef DFLOCK_SHIM_ABANDONED_H
#define DFLOCK_SHIM_ABANDONED_H

#include <stdint.h>

#include "shim/ask.h"

/* How many are noted at a time. More are not noted, and nothing ends them. */
#define ABANDONED_NOTED 64

/* Notes a conversation whose ask->sock is open, a socket or a timer. `ask` must be a variable on the thread's stack, of a function that runs
 * as long as the conversation. Sets ask->identity; and ask->cookie, unless it could not be noted. errno may change. */
void abandoned_note(struct ask *ask);

/* The conversation ends in good order. */
void abandoned_forget(struct ask *ask);

/* For abandoned_end(). */
extern uint32_t abandoned_noted;
__attribute__((noinline)) void abandoned_end_slow(void);

/* Ends the conversations that this thread has left; errno is kept. One load if no thread of the process waits for a
 * keeper. */
static inline void abandoned_end(void)
{
	if (__builtin_expect(__atomic_load_n(&abandoned_noted, __ATOMIC_RELAXED) != 0, 0))
		abandoned_end_slow();
}

#endif
