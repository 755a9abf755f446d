/*
 * Is the file protected? As shim/protect.h, but for a thread that may have another root directory or mount namespace (it
 * is elsewhere): then a page that does not name the file's path proves nothing, and the keeper is asked.
 */
#ifndef DFLOCK_NET_GROUND_H
#define DFLOCK_NET_GROUND_H

#include <stdbool.h>

#include "shim/protect.h"

/* dflock has no part in the call. Not an errno. */
#define GROUND_KERNEL 1

/* protect_look() for such a thread: protect_ask() then asks as it must. 0: it may be protected; GROUND_KERNEL; or -ENOLCK. */
int ground_look(int fd, struct protect_look *look, bool elsewhere);

#endif
