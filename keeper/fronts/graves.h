/*
 * Connections that wait to be closed by a front. Internal to this room; loop only.
 *
 * The last close of a connection closes what is in its queue. So a connection that has something unread when nothing
 * can be added to it any more (shutdown) is closed by a front, and waits in a grave until one is free. The keeper
 * closes the others, which are nearly all. Many graves of a user whose fronts all hang share a pit: a socket in whose
 * queue they wait, so that they take few descriptors of the keeper's. What is in pits is in flight, of which the kernel
 * allows each user as much as its RLIMIT_NOFILE.
 */
#ifndef DFLOCK_KEEPER_GRAVES_H
#define DFLOCK_KEEPER_GRAVES_H

#include "keeper/fronts/crew.h"

/* Takes over fd. NULL: it is closed. Else it waits in a grave of this user, which now has work for a front. */
struct front_user *graves_add(struct fronts *fronts, uid_t uid, int fd);
/* Gives the oldest one to an idle front. 0, or -errno: the front ends, and the grave stays. */
int graves_give(struct front *front);
/* The keeper ends: the door keeps the connections until it ends, too. */
void graves_leave(struct front_user *user);

#endif
