/*
 * Work that may never return, since what it asks the kernel may wait for one hung process or file server: a thread does
 * it, and is left behind if it takes too long.
 *
 * The work's memory belongs to both sides: it is freed by the one that lets go of it last. What both touch while the
 * work goes on must be atomic; after errand_wait() has said "ended" it is the caller's alone.
 *
 * Any thread. At most ERRANDS_MAX threads are left behind at a time, in the whole process.
 */
#ifndef DFLOCK_KEEPER_ERRAND_H
#define DFLOCK_KEEPER_ERRAND_H

#include <stdbool.h>

#define ERRANDS_MAX 32

struct errand;

/* run(memory) in a thread; done(memory) frees it. NULL: no thread can be had; then memory was freed. */
struct errand *errand_start(void (*run)(void *memory), void (*done)(void *memory), void *memory);
/* Waits for ms at the most. True: it has ended. */
bool errand_wait(struct errand *errand, int ms);
/* Lets go of it, whether or not it has ended. memory is not to be touched any more. */
void errand_leave(struct errand *errand);

#endif
