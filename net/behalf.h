/*
 * Asking the keeper on behalf of a thread, with that thread's rights. A connection of root's supervisors is root's, and the keeper would
 * look at each file with root's rights, and count each call as root's. So root's supervisor connects as the user of the thread: the
 * kernel tells the keeper the effective user and the groups that the connecting thread has in connect() (SO_PEERCRED, SO_PEERGROUPS).
 *
 * Only where all four user ids of the thread are those of one user other than root. A thread that has root's id among them can become
 * root again; it, and one with the ids of several users, is asked for as root. An ordinary user's supervisor asks as itself.
 *
 * A call that waits goes on waiting only while no signal has come for its thread: that is looked for each ASK_LOOK_MS.
 */
#ifndef DFLOCK_NET_BEHALF_H
#define DFLOCK_NET_BEHALF_H

#include <stddef.h>
#include <sys/types.h>

#include "net/thread.h"
#include "shim/ask.h"

struct behalf {
	const struct thread *of;
	bool signalled, gone; /* why a wait for the keeper has ended: a signal for T, or its death */
	uid_t uid;            /* 0: this process asks as itself; then nothing below counts */
	gid_t gid;
	gid_t *groups; /* owned; NULL: none */
	size_t group_count;
};

/* Fills *ask for questions on behalf of T, while *behalf and T last. 0; -ESRCH: the call is over; or -errno. behalf_end() follows in any
 * case. */
int behalf_begin(struct behalf *behalf, struct thread *t, struct ask *ask);
void behalf_end(struct behalf *behalf);

#endif
