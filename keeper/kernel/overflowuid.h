/*
 * The uid that the kernel shows for users that have none in our user namespace (/proc/sys/kernel/overflowuid, 65534
 * unless it was changed). If a peer has that uid, it is not known which user it is. In the initial user namespace, or
 * one that maps every uid, there are no such users, and the uid is that of an ordinary one (nobody). Any thread.
 */
#ifndef DFLOCK_KEEPER_OVERFLOWUID_H
#define DFLOCK_KEEPER_OVERFLOWUID_H

#include <stdbool.h>
#include <sys/types.h>

#define OVERFLOWUID_NONE    ((uid_t)-1)
#define OVERFLOWUID_DEFAULT ((uid_t)65534)

/* The uid that stands for unknown users here; OVERFLOWUID_NONE: there are none. Without /proc: the default. */
uid_t overflowuid_get(void);

/* Does this text of /proc/PID/uid_map map every uid? */
bool overflowuid_maps_all(const char *uid_map);

#endif
