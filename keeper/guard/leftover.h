/*
 * A keeper that was killed and does not end: one of its threads waits in the kernel (state D) for a file system that does not
 * answer, and SIGKILL takes effect only when that wait is over. The keeper never runs another instruction of its own,
 * so the next keeper need not wait for it. But all that it had open stays open until the wait is over:
 *
 *   its connections to programs   a program that waits for an answer would wait as long
 *   its listening socket          so would a program whose connection was not accepted
 *   kernel locks of its probes    no program of this host would get such a lock
 *
 * The parent ends these from outside, with copies of the descriptors (pidfd_getfd). It cannot end two things:
 * descriptors that programs had passed, whose locks live on as long, and locks of probes on file systems that are not
 * local. It also shuts down connections to the store; what the keeper sent before may arrive at any time.
 */
#ifndef DFLOCK_KEEPER_LEFTOVER_H
#define DFLOCK_KEEPER_LEFTOVER_H

#include <sys/types.h>

/*
 * Stops waiting for the end of such a process, a child of the caller, and cuts it off. Nothing of it runs any more, so
 * the next keeper may start: this one cannot write to the table of leases, and what it sent to the store may arrive
 * late, as from every keeper that died. Does not block: it touches only files of local file systems. Logs that it
 * does so, or that the process cannot be cut off (the kernel is older than Linux 6.9).
 */
void leftover_leave(pid_t pid);

/* Reaps the processes that have ended meanwhile. */
void leftover_reap(void);

#endif
