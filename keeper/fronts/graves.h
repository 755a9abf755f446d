/*
 * Connections that wait to be closed by a front. Internal to this room; loop only.
 *
 * The last close of a connection closes what is in its queue. So if a connection has something unread when nothing can
 * be added to it any more (shutdown), a front closes it; it waits in a grave until a front is free. The keeper closes
 * the others itself, nearly all. If all fronts of a user hang, its graves share a pit: they wait in the queue of one
 * socket, and so take few of the keeper's descriptors. Descriptors in a pit are in flight; the kernel allows each user
 * as many of these as its RLIMIT_NOFILE.
 */
#ifndef DFLOCK_KEEPER_GRAVES_H
#define DFLOCK_KEEPER_GRAVES_H

#include "keeper/fronts/crew.h"

/* Takes over fd. Returns NULL if it closed fd. Else fd waits in a grave of this user, and a front of the user has
 * work. */
struct front_user *graves_add(struct fronts *fronts, uid_t uid, int fd);
/* Gives the oldest grave to an idle front. 0, or -errno: the front ends, and the grave stays. */
int graves_give(struct front *front);
/* The keeper ends: the door keeps the connections until it ends, too. */
void graves_leave(struct front_user *user);

#endif
