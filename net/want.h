/* Which lock a caught call wants: the call's arguments, the thread's memory and its descriptor, together. */
#ifndef DFLOCK_NET_WANT_H
#define DFLOCK_NET_WANT_H

#include <fcntl.h>
#include <stdbool.h>

#include "net/lockcall.h"
#include "net/thread.h"
#include "shim/intent.h"

/* The call is the kernel's alone: it unlocks, or fails by itself. Not an errno. */
#define WANT_KERNEL 1

struct want {
	int fd;               /* a copy of the thread's descriptor; -1: none */
	struct flock64 lock;  /* record space: as it is in the thread's memory */
	struct intent intent; /* want_resolve() */
};

/* Copies the descriptor, and reads struct flock unless `known` is it. 0, WANT_KERNEL, or -errno: it cannot be found out; -ESRCH
 * as in thread.h. want_close() follows in any case. */
int want_open(struct want *want, struct thread *t, const struct lockcall *call, const struct flock64 *known);
void want_close(struct want *want);

/* Fills want->intent. 0; -EINVAL, -EOVERFLOW as fcntl(2) gives them; else the errno of a file that does not say its size. */
int want_resolve(struct want *want, const struct lockcall *call);

/* Would a second look find the same file, and a lock that is not larger? Only after want_resolve(). */
bool want_is_same(const struct want *want, struct thread *t, const struct lockcall *call);

/* Has another owner a lock in the kernel that is in the way now? Only after want_resolve(). False also if that cannot be found out: it
 * is for people. */
bool want_is_taken(const struct want *want, const struct thread *t);

#endif
