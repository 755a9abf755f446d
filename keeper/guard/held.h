/*
 * Threads that are not confirmed stopped (threads.h): which of them are held, and the end of those that are not.
 *
 * "Held" is a thread that is not confirmed stopped, and cannot run one instruction of its program before it is: its stop
 * is pending, and it waits in the kernel (state D), as a parent in vfork() does for a child that we stopped, or a thread
 * whose file system does not answer. What it asked the kernel for may still be done.
 *
 * Parent only. Reads /proc/TID/stat and the like; does not wait for any process.
 */
#ifndef DFLOCK_KEEPER_HELD_H
#define DFLOCK_KEEPER_HELD_H

#include <stdbool.h>

#include "keeper/guard/threads.h"
#include "keeper/kernel/family.h"

/* Is each thread confirmed stopped, or held? */
bool held_all(const struct threads *threads);
/*
 * held_warn() notes how long each of the other threads has been on a processor. held_kill_rest() kills, once each,
 * those that are still not held and have run since, or can be continued by a tracer that is not stopped. It does not kill
 * a thread whose stop is pending and that only waits for a processor. It adds those that it kills to `killed`.
 */
void held_warn(struct threads *threads);
void held_kill_rest(struct threads *threads, struct family *killed);

#endif
