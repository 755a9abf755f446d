/*
 * One caught call on its way to its answer: what it wants, whether the file is protected, and the keeper's word.
 *
 * No lock is ever taken here. A granted call is continued: the kernel takes the lock, and does what the call's manual page
 * says of waiting, errors and signals.
 */
#ifndef DFLOCK_NET_DECIDE_H
#define DFLOCK_NET_DECIDE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "net/lockcall.h"
#include "net/shared.h"
#include "net/thread.h"
#include "shim/ask.h"
#include "shim/intent.h"

/* Answers that are neither 0 nor an errno. */
#define DECIDE_CONTINUE 1 /* the kernel makes the call */
#define DECIDE_GONE     2 /* there is no call any more; nothing to answer */

/* The kernel's own errno, which no program sees: EINTR, or the call begins anew, as the handler of the signal says. */
#define DECIDE_RESTARTSYS 512

/*
 * The answer to a call: one of the above; 0: it succeeds, and all is done; or -errno. All copies of T's descriptors are
 * closed. Waits for as long as the call does. *until_ns: if that is not 0, a grant that ends then (CLOCK_BOOTTIME): the call must
 * be continued before, or decided anew.
 */
int decide(struct caught *caught, int listener, int64_t *until_ns);

/*
 * --- behalf.c ---
 *
 * Asking the keeper on behalf of a thread, with that thread's rights. A connection of root's supervisors is root's, and the keeper would
 * look at each file with root's rights, and count each call as root's. So root's supervisor connects as the user of the thread: the
 * kernel tells the keeper the effective user and the groups that the connecting thread has in connect() (SO_PEERCRED, SO_PEERGROUPS).
 *
 * Only where all four user ids of the thread are those of one user other than root. A thread that has root's id among them can become
 * root again; it, and one with the ids of several users, is asked for as root. An ordinary user's supervisor asks as itself.
 *
 * A call that waits goes on waiting only while no signal has come for its thread: that is looked for each ASK_LOOK_MS.
 */
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

/* --- want.c: which lock a caught call wants: the call's arguments, the thread's memory and its descriptor, together --- */

/* The call is the kernel's alone: it unlocks, or fails by itself. Not an errno. */
#define WANT_KERNEL 1

struct want {
	int fd;               /* a copy of the thread's descriptor; -1: none */
	struct flock64 lock;  /* record space: as it is in the thread's memory */
	bool unread;          /* this memory cannot be read: nothing is known of the lock */
	struct intent intent; /* want_resolve() */
};

/* Copies the descriptor, and reads struct flock unless `known` is it. 0, WANT_KERNEL, or -errno: it cannot be found out; -ESRCH
 * as in thread.h. want_close() follows in any case. */
int want_open(struct want *want, struct thread *t, const struct lockcall *call, const struct flock64 *known);
void want_close(struct want *want);

/* Fills want->intent. 0; -EINVAL, -EOVERFLOW, -EFAULT as fcntl(2) gives them; else the errno of what cannot be found out. */
int want_resolve(struct want *want, const struct thread *t, const struct lockcall *call);

/* Would a second look find the same file, and a lock that is not larger? Only after want_resolve(). */
bool want_is_same(const struct want *want, struct thread *t, const struct lockcall *call);

/* Has another owner a lock in the kernel that is in the way now? Only after want_resolve(). False also if that cannot be found out: it
 * is for people. */
bool want_is_taken(const struct want *want, const struct thread *t);

/* --- note_out.c: for which thread the lines of this one are written (shim/note.h) --- */

/* From now on, the lines that this thread of the supervisor writes go to descriptor 2 of `t`; NULL: they are lost. */
void note_out_for(const struct thread *t);

#endif
