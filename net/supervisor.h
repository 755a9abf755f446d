/*
 * The first supervisor: receives the calls of the job, decides each in a thread of its own, and answers.
 *
 * The descriptors of both supervisors have fixed numbers, since the second one is started by exec.
 */
#ifndef DFLOCK_NET_SUPERVISOR_H
#define DFLOCK_NET_SUPERVISOR_H

#include "wire/netmark.h"

enum {
	SUPERVISOR_LISTENER = NETMARK_LISTENER, /* of the filter */
	SUPERVISOR_SHARED = 4,                  /* shared.h */
	SUPERVISOR_READY = 5,                   /* standby.h */
};

/*
 * Begins: decides the calls that another supervisor has left in the shared memory, and receives from now on, in threads. The process ends
 * when no process is left under the filter. 0 or -errno; may be tried again.
 */
int supervisor_start(void);

/* Some time after supervisor_start(): decides calls that the other supervisor has received after all (standby.h). */
void supervisor_look_again(void);

/* Is no process left under the filter? */
int supervisor_is_over(void);

/* Makes `fd` the descriptor of this number, which exec keeps. 0 or -errno; `fd` is closed. */
int supervisor_place(int fd, int number);

/* What each supervisor's process is to be: its name, limits, signals. Its session, directory and descriptors: launch.c. */
void supervisor_settle(void);

#endif
