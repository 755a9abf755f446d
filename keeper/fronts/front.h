/*
 * A front: a process that touches descriptors of another user in the keeper's place. Closing a descriptor, opening its
 * file anew and locking it can wait for ever, in a state that SIGKILL does not end (a FUSE server that does not answer
 * FLUSH); then the front hangs, and neither the keeper nor another user waits for it. The keeper may leave it behind:
 * all that it has of the keeper is its end of one socket.
 *
 * This is the process's own code: it obeys the keeper (frontmsg.h), and ends when the keeper has ended. It reads
 * questions and closes connections until it is told to keep files (away.h).
 */
#ifndef DFLOCK_KEEPER_FRONT_H
#define DFLOCK_KEEPER_FRONT_H

#define FRONT_LIMIT_S 6 /* how long a front may work on one question: then a signal ends what a signal can end */

/* In a process of its own, with nothing open but FRONT_CONTROL. */
__attribute__((noreturn)) void front_main(void);

#endif
