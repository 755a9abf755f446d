/*
 * Threads that were called back out of a lock call in which they slept (seenout.h): behind a local holder, as a rule. Such a call begins
 * anew, and its next question says what is to come of it.
 *
 *   - It keeps its place: it had been granted before the other host asked. So it waits until the probe has said whether a local process
 *     has the lock, and if so, it goes on waiting in the kernel, as on one kernel. If not, the lease goes back, and it queues behind the
 *     other host.
 *   - It is not called back again at once: the answer would be the same. The pause doubles each time, up to CALLEDBACK_MAX_MS. Then it is,
 *     since more may be wanted of the lease meanwhile, or less be in use.
 *
 * Pure memory: time is an argument. What is forgotten for want of room is called back, and queued, as if it were for the first time.
 */
#ifndef DFLOCK_KEEPER_CALLEDBACK_H
#define DFLOCK_KEEPER_CALLEDBACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "keeper/guard/underway.h"

#define CALLEDBACK_THREADS 64
#define CALLEDBACK_MIN_MS  20
#define CALLEDBACK_MAX_MS  320

/* All zero: none. Times are those of clock_now_ns(). */
struct calledback {
	struct calledback_one {
		struct underway_call call;
		int64_t at_ns, pause_ns;
		bool asked; /* its next question has come */
	} all[CALLEDBACK_THREADS];
};

/* The thread was called back out of this call. */
void calledback_note(struct calledback *calledback, const struct underway_call *call, int64_t now_ns);
/* Is it too early to call this thread back, out of a call for the same lock? */
bool calledback_lately(const struct calledback *calledback, const struct underway_call *call, int64_t now_ns);
/* Is this question (its number does not count) the one of the call that begins anew? True once for each calledback_note(). */
bool calledback_asks(struct calledback *calledback, const struct underway_call *call);

#endif
