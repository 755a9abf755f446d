/*
 * The door: a process that the keeper forks while it has one thread, and that forks the fronts (front.h). It also has a
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

#endif
