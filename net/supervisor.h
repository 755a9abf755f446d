/*
 * The first supervisor receives the calls of the job, decides each in a thread of its own, and answers.
 *
 * The second supervisor: waits until the first one has died, takes its place, and starts another second one. Only if both die
 * at the same time do the job's lock calls fail, with ENOSYS.
 *
 * A thread of the first one may hang in a file system that does not answer, and then outlives kill -9 by any time. So the second one does
 * not wait for the end of the process, but for that of single threads, each by a robust mutex in shared memory (shared.h). The
 * kernel gives such a mutex on when its thread executes nothing any more and is in no system call.
 *
 *   shared.first   the main thread, which is in no file system. It ends only with the whole process; others of its threads may end later.
 *   caught.mine    the thread that receives a call into this place, and decides it. The second one looks at each place that is not free when
 *                  its thread has ended: so every call that was received is there, and none of the first one's system calls for it
 *                  (LOCK_UN on its description, an answer written into its memory, the answer to the kernel) comes after one of
 *                  the second. If that thread hangs, its call hangs, as it would with the first one alive, and no other one.
 *   shared.places  a thread that looks for a free place. It makes no system call meanwhile.
 *
 * A thread of a process that is being killed may run until its processor has heard of that, and receive one more call into a place that was
 * free when the second one looked. That takes microseconds; so the second one looks again a little later.
 *
 * The descriptors of both supervisors have fixed numbers, since the second one is started by exec.
 */
#ifndef DFLOCK_NET_SUPERVISOR_H
#define DFLOCK_NET_SUPERVISOR_H

#include "wire/msg.h"

enum {
	SUPERVISOR_LISTENER = NETMARK_LISTENER, /* of the filter */
	SUPERVISOR_SHARED = 4,                  /* shared.h */
	SUPERVISOR_READY = 5,                   /* of the second one: it waits */
};

/* What main() finds in argv[1] of a second supervisor. */
#define SUPERVISOR_SECOND "--standby"

/*
 * The life of a first supervisor, in its main thread, whose descriptors SUPERVISOR_LISTENER and SUPERVISOR_SHARED are there and whose shared
 * memory is mapped: starts the second one, and another one whenever that ends, and receives calls. program: argv[0]. If `ready` is not
 * negative: an empty string is written there, and it is closed, once both serve. If they cannot, a line is written there that says why, and the
 * process ends.
 */
_Noreturn void supervisor_lead(char *program, int ready);

/* The life of a second supervisor, after exec. */
_Noreturn void supervisor_wait(char *program);

/* Makes `fd` the descriptor of this number, which exec keeps. 0 or -errno; `fd` is closed. */
int supervisor_place(int fd, int number);

/* What each supervisor's process is to be: its name, limits, signals. Its session, directory and descriptors: main.c. */
void supervisor_settle(void);

#endif
