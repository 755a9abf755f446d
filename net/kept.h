/*
 * Calls that wait at the supervisor, and what ends their wait from outside: a signal for their thread, or its death. One
 * thread looks at all of them, and interrupts the waits of those that must end.
 *
 * kept_start() once; then kept_begin() and kept_end() around each wait, in any thread.
 */
#ifndef DFLOCK_NET_KEPT_H
#define DFLOCK_NET_KEPT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "net/thread.h"

struct kept {
	LIST_ENTRY(kept) others;
	const struct thread *of;
	pthread_t waits; /* the thread of this process that waits */
	int64_t look_ns; /* CLOCK_MONOTONIC: when to look next */
	int64_t pause_ns;
	bool signalled, gone; /* to be read after kept_end() */
};

/* 0 or -errno. */
int kept_start(void);

/*
 * From now until kept_end(), system calls of this thread that wait fail with EINTR, again and again, once the call must not wait
 * any more. *kept stays the caller's.
 */
void kept_begin(struct kept *kept, const struct thread *of);
void kept_end(struct kept *kept);

#endif
