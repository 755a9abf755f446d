/*
 * A question that is asked on behalf of a thread (wire/msg.h): which thread that is, and whether the peer may ask for it. Any
 * thread; reads /proc, which waits for no process.
 */
#ifndef DFLOCK_KEEPER_ONBEHALF_H
#define DFLOCK_KEEPER_ONBEHALF_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

struct onbehalf {
	pid_t thread;     /* 0: the peer asks for itself */
	pid_t pid;        /* its process */
	uint64_t started; /* of the thread: family_started() */
	uid_t uid;        /* who started it: its real user. Whoever asks, its calls count as this user's */
};

/* 0; or -ESRCH: there is no such thread, -EPERM: the peer may not ask for it, -EXDEV: the peer's numbers of processes are
 * others than this process's (pid namespace), -EMFILE: there is no descriptor to look with. */
int onbehalf_look(const struct ucred *peer, pid_t thread, struct onbehalf *out);
/* For people: why the keeper does not believe the peer. ret: as above, negative. */
const char *onbehalf_why(int ret);

#endif
