/*
 * The door: a process that the keeper forks while it has one thread, and that forks the fronts (front.c). It also has a
 * copy of the listening socket, so that the keeper's is never the last one: the process that closes the last copy also
 * closes the descriptors that wait in connections which were not accepted. Door and fronts end when the keeper does.
 *
 * None of these functions waits for the door.
 */
#ifndef DFLOCK_KEEPER_DOOR_H
#define DFLOCK_KEEPER_DOOR_H

/* Forks the door. To be called before there are threads. Its socket (close-on-exec, non-blocking), or -errno. */
int door_start(void);
/* A new front: its socket (close-on-exec, non-blocking), or -errno. -EPIPE, -ECONNRESET: the door has ended. */
int door_new_front(int door);
/* The door keeps a copy of fd until it ends. 0 or -errno. */
int door_leave(int door, int fd);

/*
 * --- front.c ---
 *
 * A front: a process that touches descriptors of another user in the keeper's place. Closing a descriptor, opening its
 * file anew and locking it can wait for ever, in a state that SIGKILL does not end (a FUSE server that does not answer
 * FLUSH); then the front hangs, and neither the keeper nor another user waits for it. The keeper may leave it behind:
 * all that it has of the keeper is its end of one socket.
 *
 * This is the process's own code: it obeys the keeper (frontmsg.h), and ends when the keeper has ended. It reads
 * questions and closes connections until it is told to keep files (away.h).
 */

#define FRONT_LIMIT_S 6 /* how long a front may work on one question: then a signal ends what a signal can end */

/* In a process of its own, with nothing open but FRONT_CONTROL. */
__attribute__((noreturn)) void front_main(void);

#endif
