/*
 * Work that may never return, since its system calls may wait for a hung process or file server: a thread does it, and
 * is left behind if it takes too long.
 *
 * The work's memory belongs to both sides: the side that lets go of it last frees it. Data that both touch while the
 * work goes on must be atomic. After errand_wait() has returned true, the memory is the caller's alone.
 *
 * Any thread. At most ERRANDS_MAX threads are left behind at a time, in the whole process.
 */
#ifndef DFLOCK_KEEPER_ERRAND_H
#define DFLOCK_KEEPER_ERRAND_H

#include <stdbool.h>
#include <stddef.h>

#define ERRANDS_MAX 32

/* Starts a thread for which nobody waits; it blocks all signals but one (0: all), since other threads wait for them. 0 or an errno. */
int errand_thread(size_t stack_bytes, int but_signal, void *(*run)(void *arg), void *arg);

struct errand;

/* run(memory) in a thread; done(memory) frees it. NULL: there is no thread for it; memory was freed. */
struct errand *errand_start(void (*run)(void *memory), void (*done)(void *memory), void *memory);
/* Waits for ms at the most. True: it has ended. */
bool errand_wait(struct errand *errand, int ms);
/* Lets go of the errand, whether or not it has ended. The caller must not touch its memory any more. */
void errand_leave(struct errand *errand);

#endif
