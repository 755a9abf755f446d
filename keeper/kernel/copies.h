/*
 * Has this process ever started another one? The other one has copies of all descriptors until exec() has closed them, and
 * that may be some time after posix_spawn() has returned. While there is a copy, close() does not take a descriptor out of
 * epoll.
 *
 * The processes that the keeper gives descriptors to on purpose (fronts.h) do not count, nor does the door, which the keeper
 * forks before it has any connection. Loop only.
 */
#ifndef DFLOCK_KEEPER_COPIES_H
#define DFLOCK_KEEPER_COPIES_H

#include <stdbool.h>

/* Before a process is started. */
void copies_begin(void);

/* False: no process has copies. */
bool copies_are_possible(void);

#endif
